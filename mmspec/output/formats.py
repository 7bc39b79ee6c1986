"""What `mmspec transcribe` writes: plain lines, JSON, SubRip and WebVTT.

Text that a model wrote is never trusted: what could steer a terminal, break a line or open a tag
is neutralised in every format. Files appear whole or not at all.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mmspec.errors import InputError

SCHEMA_VERSION = 1
"""Of the JSON; changes only where a reader of the old one would break."""

FORMATS = ("txt", "json", "srt", "vtt")
SOUND_FORMATS = ("wav", "flac", "ogg")

_JOINERS = (
    "\u200c\u200d\u200e\u200f\u00ad"
    """Invisible, harmless, and needed to spell some languages."""
)
_NUMBERS = re.compile(r"\[\n\s+-?\d[-+.eE\d]*(?:,\n\s+-?\d[-+.eE\d]*)*\n\s+\]")
"""A list of numbers, one a line (in JSON a line break is never part of a string)."""
_REPLACEMENT = "\ufffd"


class SpokenWord(Protocol):
    """What a subtitle needs of a word."""

    @property
    def start_s(self) -> float:
        """Seconds from the start of the audio."""
        ...

    @property
    def text(self) -> str:
        """The word, with the space before it where there is one."""
        ...


class SpokenSegment(Protocol):
    """What a subtitle needs of a segment."""

    @property
    def start_s(self) -> float:
        """Seconds from the start of the audio."""
        ...

    @property
    def end_s(self) -> float:
        """Seconds from the start of the audio."""
        ...

    @property
    def text(self) -> str:
        """What is said."""
        ...

    @property
    def words(self) -> Sequence[SpokenWord] | None:
        """The same by word, where their times are known."""
        ...


def one_line(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal would obey.

    Line breaks and tabs become spaces; control characters, ANSI escapes included, and characters
    that reorder a line become U+FFFD.

    Example:
        >>> one_line(" red \\x1b[31malert\\n twice ")
        'red \ufffd[31malert twice'
    """
    return re.sub(r"\s+", " ", neutral(text)).strip()


def neutral(text: str) -> str:
    """A piece of a line: as `one_line`, but its spaces are left where they are."""
    return "".join(_harmless(character) for character in text)


def _harmless(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    if character.isspace():
        return " "
    unsafe = unicodedata.category(character) in ("Cc", "Cf", "Cs")
    return _REPLACEMENT if unsafe else character


def to_json(settings: Mapping[str, Any], files: Sequence[Mapping[str, Any]]) -> str:
    """The document of a run: `{"version", "settings", "files"}`.

    Characters that don't print are escaped, so that the document can be shown as it is; numbers
    that JSON can't hold (infinity, NaN) become null.
    """
    document = {"version": SCHEMA_VERSION, "settings": settings, "files": list(files)}
    return dump_json(document)


def dump_json(document: Any) -> str:
    """Indented JSON, safe to print, with a line break at its end."""
    text = json.dumps(_finite(document), ensure_ascii=False, indent=2, allow_nan=False, default=str)
    text = _NUMBERS.sub(
        lambda found: re.sub(r"\s+", " ", found[0]).replace("[ ", "[")[:-2] + "]", text
    )
    shown = [c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text]
    return "".join(shown) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def to_srt(segments: Sequence[SpokenSegment]) -> str:
    """SubRip: numbered cues; where words have times, a cue for each with that word underlined.

    Example:
        >>> from types import SimpleNamespace as Cue
        >>> words = [Cue(start_s=2.0, text=" Oh,"), Cue(start_s=2.4, text=" no")]
        >>> one = Cue(start_s=0.0, end_s=1.5, text=" a --> b", words=None)
        >>> print(to_srt([one, Cue(start_s=2.0, end_s=3.0, text=" Oh, no", words=words)]), end="")
        1
        00:00:00,000 --> 00:00:01,500
        a → b
        <BLANKLINE>
        2
        00:00:02,000 --> 00:00:02,400
        <u>Oh,</u> no
        <BLANKLINE>
        3
        00:00:02,400 --> 00:00:03,000
        Oh, <u>no</u>
        <BLANKLINE>
    """
    cues = [
        cue
        for segment in _spoken(segments)
        for cue in (_underlined(segment, segment.words) if segment.words else [_plain(segment)])
    ]
    return "".join(
        f"{number}\n{_time(start_ms, ',')} --> {_time(end_ms, ',')}\n{text}\n\n"
        for number, (start_ms, end_ms, text) in enumerate(cues, 1)
    )


def _plain(segment: SpokenSegment) -> tuple[int, int, str]:
    return *_span_ms(segment), one_line(segment.text).replace("-->", "→")


def _underlined(
    segment: SpokenSegment, words: Sequence[SpokenWord]
) -> Iterator[tuple[int, int, str]]:
    """The segment once per word, from where the word begins until the next one does."""
    start_ms, end_ms = _span_ms(segment)
    texts = [neutral(word.text).replace("-->", "→") for word in words]
    begins = [start_ms, *(min(round(word.start_s * 1000), end_ms) for word in words[1:]), end_ms]
    spans = itertools.pairwise(itertools.accumulate(begins, max))  # times never run backwards
    for number, (text, (from_ms, until_ms)) in enumerate(zip(texts, spans, strict=True)):
        if from_ms < until_ms:
            space = text[: len(text) - len(text.lstrip())]
            shown = [*texts[:number], f"{space}<u>{text.strip()}</u>", *texts[number + 1 :]]
            yield from_ms, until_ms, re.sub(r"\s+", " ", "".join(shown)).strip()


def to_vtt(segments: Sequence[SpokenSegment]) -> str:
    """WebVTT: what could open a tag or a cue is escaped; words with times light up one by one.

    Example:
        >>> from types import SimpleNamespace as Cue
        >>> one = Cue(start_s=3599.9996, end_s=3600.5, text="<b> & -->", words=None)
        >>> words = [Cue(start_s=4000.0, text=" Oh,"), Cue(start_s=4000.4, text=" no")]
        >>> other = Cue(start_s=4000.0, end_s=4001.0, text=" Oh, no", words=words)
        >>> print(to_vtt([one, other]), end="")
        WEBVTT
        <BLANKLINE>
        01:00:00.000 --> 01:00:00.500
        &lt;b&gt; &amp; --&gt;
        <BLANKLINE>
        01:06:40.000 --> 01:06:41.000
        Oh, <01:06:40.400>no
        <BLANKLINE>
    """
    cues = ["WEBVTT\n\n"]
    for segment in _spoken(segments):
        start, end = (_time(edge_ms, ".") for edge_ms in _span_ms(segment))
        text = _escaped(segment.text) if segment.words is None else _timed(segment, segment.words)
        cues.append(f"{start} --> {end}\n{text}\n\n")
    return "".join(cues)


def _escaped(text: str) -> str:
    return one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _timed(segment: SpokenSegment, words: Sequence[SpokenWord]) -> str:
    """Words with the times from which on they are shown as spoken.

    The format wants them to rise, and to lie inside the cue: a word that begins with the cue, or
    together with the one before it, has none of its own.
    """
    latest_ms, end_ms = (round(edge_s * 1000) for edge_s in (segment.start_s, segment.end_s))
    pieces: list[str] = []
    for word in words:
        spaced = neutral(word.text).startswith(" ") and bool(pieces)
        start_ms = round(word.start_s * 1000)
        mark = ""
        if latest_ms < start_ms < end_ms:
            mark, latest_ms = f"<{_time(start_ms, '.')}>", start_ms
        pieces.append(" " * spaced + mark + _escaped(word.text))
    return "".join(pieces)


def _spoken(segments: Sequence[SpokenSegment]) -> list[SpokenSegment]:
    return [segment for segment in segments if one_line(segment.text)]


def _span_ms(segment: SpokenSegment) -> tuple[int, int]:
    """Start and end of a cue; the end is behind the start, as both formats demand."""
    start_ms = max(0, round(segment.start_s * 1000))
    return start_ms, max(start_ms + 1, round(segment.end_s * 1000))


def _time(milliseconds: int, point: str) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{rest:03}"


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file, text in UTF-8, so that it is there whole or not at all, whatever interrupts.

    Raises:
        InputError: the place can't be written to.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():  # a device or a pipe: nothing to rename over
            if path.is_dir():
                raise IsADirectoryError("it is a directory")
            path.write_bytes(data)
            return
        path = path.resolve()  # a link stays a link
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_and_rename(path, data)
    except OSError as error:
        reason = error.strerror or str(error)
        found = f"found a place that can't be written ({reason})"
        raise InputError(f"{path}: {found}, expected a writable one") from None


def _write_and_rename(path: Path, data: bytes) -> None:
    # Names have at most 255 bytes, and a character has up to 4.
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def output_names(inputs: Sequence[Path], suffix: str) -> list[str]:
    """A file name per input: its stem, or its whole name where two inputs share a stem.

    Example:
        >>> output_names([Path("x/a.wav"), Path("b.wav"), Path("b.flac")], "srt")
        ['a.srt', 'b.wav.srt', 'b.flac.srt']
    """
    stems = Counter(path.stem for path in inputs)
    names: dict[str, None] = {}
    for path in inputs:
        base = path.stem if stems[path.stem] == 1 else path.name
        name, number = f"{base}.{suffix}", 2
        while name in names:
            name, number = f"{base}-{number}.{suffix}", number + 1
        names[name] = None
    return list(names)
