"""What is written and where, checked before anything is done for it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mmspec.errors import InputError, OptionError
from mmspec.modalities.base.options import option
from mmspec.output.formats import FORMATS, SOUND_FORMATS, output_names

STDOUT = Path("-")
"""How a shell names it."""


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """What is written, and where.

    Attributes:
        format: txt: one line per recording, in order (an empty one where it failed).
        output_dir: A file per input there, instead of standard output.
        json: Write everything there: texts, ids, reports, comparisons.
        report: Write a page there (HTML): every token and how it was obtained, rounds, times.
        compare: Decode with these as well, compare ids and time: plain (mmspec without
            speculation), hf (transformers), hf-assisted (its own speculation, same drafter).
        table: The report as a table on standard error; by default where someone watches.
        quiet: No tables and no progress, errors only.
        verbose: Let the libraries say what they have to say.
        formats: those that there are.
    """

    formats: ClassVar[tuple[str, ...]] = FORMATS

    format: str = option("txt", short="-f", metavar="|".join(FORMATS))
    output_dir: Path | None = option(None, short="-o", metavar="DIR")
    json: Path | None = option(None, metavar="FILE")
    report: Path | None = option(None, metavar="FILE")
    compare: str = option("", metavar="PEERS")
    table: bool | None = option(None, negative=True)
    quiet: bool = option(False, short="-q")
    verbose: bool = option(False)

    def __post_init__(self) -> None:
        """`--json -` is one document on standard output, where results would have gone."""
        if self.json == STDOUT and "json" in self.formats and self.output_dir is None:
            object.__setattr__(self, "json", None)
            object.__setattr__(self, "format", "json")

    def peers(self, batch: int = 1) -> list[str]:
        """Whom to compare with.

        Raises:
            OptionError: one that isn't known, or peers for what shares its passes with others.
        """
        return peers_of(self.compare, batch)

    def check(self, files: Sequence[Path]) -> None:
        """Raise where the results couldn't be written, before anything is done for them.

        Raises:
            OptionError: names the option.
            InputError: names the place.
        """
        if self.format not in self.formats:
            raise OptionError(
                f"--format: found {self.format!r}, expected one of {', '.join(self.formats)}"
            )
        if self.format in ("srt", "vtt") and self.output_dir is None and len(files) > 1:
            raise OptionError(
                f"--format {self.format}: found {len(files)} files for one standard output, "
                "expected --output-dir"
            )
        for name, place, folder in (
            ("--json", self.json, False),
            ("--report", self.report, False),
            ("--output-dir", self.output_dir, True),
        ):
            if place is not None and not (name == "--json" and self._prints_json):
                check_place(name, place, folder)
        check_apart({"--json": self.json, "--report": self.report}, [*files, *self._results(files)])

    @property
    def _prints_json(self) -> bool:
        """Whether results go to files, and what is said of them to standard output."""
        return self.json == STDOUT and "json" in self.formats

    def _results(self, files: Sequence[Path]) -> list[Path]:
        """Where the result of each input goes, if not to standard output."""
        if self.output_dir is None:
            return []
        return [self.output_dir / name for name in output_names(files, self.format)]


@dataclass(frozen=True, slots=True)
class LookOutput(OutputSettings):
    """The same for what was seen.

    Attributes:
        format: How descriptions are written.
    """

    formats: ClassVar[tuple[str, ...]] = ("txt", "json")

    format: str = option("txt", short="-f", metavar="txt|json")


@dataclass(frozen=True, slots=True)
class SpeechSettings(OutputSettings):
    """Where sound and codes go.

    Attributes:
        format: Of files that --out doesn't name.
        output_dir: A file for each text there: speech-1.wav, speech-2.wav, ...
        out: The sound of one text: wav, flac or ogg. Without it speech.wav, unless that is there
            already.
        codes_only: Write codes (.npz) and make no sound of them.
        stream: Write raw samples to standard output as soon as they are certain: 16 bits,
            little-endian, channels interleaved.
    """

    formats: ClassVar[tuple[str, ...]] = SOUND_FORMATS

    format: str = option("wav", short="-f", metavar="|".join(SOUND_FORMATS))
    out: Path | None = option(None, metavar="FILE")
    codes_only: bool = option(False)
    stream: bool = option(False)

    def check(self, files: Sequence[Path]) -> None:
        """Raise where the results couldn't be written, before anything is done for them.

        Raises:
            OptionError: names the option.
            InputError: names the place.
        """
        OutputSettings.check(self, files)
        if self.out is not None:
            self._check_out(self.out)

    def places(self, texts: int) -> list[Path]:
        """A place for each text: of its sound, or of its codes alone.

        Raises:
            OptionError: too many texts for one file.
            InputError: nobody named a file, and ours is taken.
        """
        from mmspec.tasks.tts.code_files import sidecar

        def named(folder: Path, name: str) -> Path:
            place = folder / f"{name}.{self.format}"
            return sidecar(place) if self.codes_only else place

        if self.output_dir is not None:
            digits = len(str(texts))
            names = (f"speech-{number:0{digits}}" for number in range(1, texts + 1))
            return [named(self.output_dir, name) for name in names]
        if texts > 1:
            raise OptionError(f"found {texts} texts for one file, expected --output-dir DIR")
        if self.out is not None:
            return [self.out]
        place = named(Path(), "speech")
        for taken in (place, sidecar(Path(f"speech.{self.format}"))):
            if taken.exists():
                raise InputError(f"{taken}: it is there already; name a file with --out")
        return [place]

    def _check_out(self, out: Path) -> None:
        if self.output_dir is not None:
            raise OptionError("--out, --output-dir: found both, expected one of them")
        suffix = out.suffix.lower().removeprefix(".")
        if suffix not in self.formats and not (self.codes_only and suffix == "npz"):
            known = ", ".join([*self.formats, *["npz"] * self.codes_only])
            raise OptionError(f"--out {out}: found the suffix {out.suffix!r}, expected {known}")
        check_place("--out", out, folder=False)


@dataclass(frozen=True, slots=True)
class PageOptions:
    """How documents are opened, and who reads them first.

    Attributes:
        reading: With --draft hypothesis, whose reading drafts: tesseract, pdf (the text layer),
            none, a file, or auto: the text layer where there is one, else Tesseract.
        dpi: Pixels per inch that a PDF's pages are rendered at.
        password: Of encrypted PDFs.
    """

    reading: str = option("auto", metavar="READER", panel="Models")
    dpi: float = option(200.0, metavar="N", least=1, panel="Decoding")
    password: str | None = option(None, metavar="TEXT", panel="Decoding")


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """How a live stream is heard.

    Attributes:
        pace: of a file: 1 is real time, 2 twice as fast, 0 as fast as it is heard.
        step_s: seconds of new audio that are worth a decode.
        raw: format of raw samples on standard input.
    """

    pace: float = 0.0
    step_s: float = 1.0
    raw: str = "s16le"

    def check(self, files: Sequence[Path]) -> None:
        """Raise where a stream can't be meant so.

        Raises:
            OptionError: names the option.
        """
        if len(files) != 1:
            raise OptionError(f"--stream: found {len(files)} files, expected one, or - for a pipe")
        if self.raw not in ("s16le", "f32le"):
            raise OptionError(f"--raw: found {self.raw!r}, expected s16le or f32le")
        if not 0 <= self.pace < math.inf:
            raise OptionError(f"--pace: found {self.pace}, expected 0 or more")


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Whether a recording is heard live, and how.

    Attributes:
        stream: Hear FILE as it comes and print text as soon as it is certain; - is raw samples on
            standard input.
        pace: Pace of a streamed file: 1 is real time; as fast as it is heard where missing or 0.
        step: Seconds of new audio that a stream is decoded again for; 1 where missing.
        raw: Samples on standard input, mono at 16 kHz; s16le where missing.
    """

    stream: bool = option(False)
    pace: float | None = option(None, metavar="X", least=0)
    step: float | None = option(None, metavar="S")
    raw: str | None = option(None, metavar="s16le|f32le")

    def settings(self) -> LiveSettings | None:
        """How a stream is heard, None where none is wanted.

        Raises:
            OptionError: an option of streams without `--stream`.

        Example:
            >>> LiveOptions(stream=True, pace=1.0).settings()
            LiveSettings(pace=1.0, step_s=1.0, raw='s16le')
        """
        asked = {"pace": self.pace, "step_s": self.step, "raw": self.raw}
        said: dict[str, Any] = {name: one for name, one in asked.items() if one is not None}
        if self.stream:
            return LiveSettings(**said)
        for name in said:
            raise OptionError(f"--{name.removesuffix('_s')}: only with --stream")
        return None


def check_apart(places: Mapping[str, Path | None], taken: Sequence[Path] = ()) -> None:
    """Raise where one file would be written over another one of the same run.

    Args:
        places: by option; what is no regular file may be named twice.
        taken: inputs, and files that nobody named.

    Raises:
        OptionError: two options name one place.
        InputError: the place is one of the inputs, or of the results.
    """
    others = {os.path.realpath(path) for path in taken}
    named: dict[str, str] = {}
    for name, place in places.items():
        if place is None or (place.exists() and not place.is_file()):
            continue
        where = os.path.realpath(place)
        if where in named:
            raise OptionError(f"{named[where]}, {name}: found {place} for both, expected two files")
        if where in others:
            raise InputError(
                f"{name} {place}: found an input or a result of this run, expected another file"
            )
        named[where] = name


def check_place(option: str, place: Path, folder: bool) -> None:
    """Raise where nothing could be written.

    Raises:
        InputError: names the option, and why.
    """
    if place == STDOUT:
        raise OptionError(f"{option}: found -, expected a file: standard output has the results")
    try:
        _check_writable(option, place, folder)
    except OSError as error:
        raise InputError(
            f"{option} {place}: found a place that can't be written "
            f"({error.strerror or error}), expected a writable one"
        ) from None


def _check_writable(option: str, place: Path, folder: bool) -> None:
    if place.exists() and place.is_dir() != folder:
        found, expected = ("a file", "a directory") if folder else ("a directory", "a file")
        raise InputError(f"{option} {place}: found {found}, expected {expected}")
    there = place if place.exists() else next(p for p in place.absolute().parents if p.exists())
    writable_parent = there.is_dir() or place.exists()
    if not writable_parent or not os.access(there, os.W_OK):
        raise InputError(f"{option} {place}: found no right to write there, expected a place to")


def peers_of(names: str, batch: int = 1) -> list[str]:
    """The peers in `--compare a,b`.

    Raises:
        OptionError: one that isn't known, or peers for what shares its passes with others.
    """
    peers = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not peers:
        return peers
    from mmspec.compare.peers import PEERS

    for peer in peers:
        if peer not in PEERS:
            raise OptionError(f"--compare: found {peer!r}, expected names among {', '.join(PEERS)}")
    if peers and batch > 1:
        raise OptionError(f"--batch {batch}: expected no --compare, which takes one at a time")
    return peers
