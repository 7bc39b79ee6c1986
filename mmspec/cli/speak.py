"""`mmspec speak`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mmspec.cli import options as o
from mmspec.cli.settings import SpeechSettings, peers_of
from mmspec.errors import OptionError
from mmspec.tasks.settings import SpeakingSettings


def speak(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="What to say.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Say what stands there too, line by line; - is standard input.",
            show_default=False,
        ),
    ] = None,
    target: o.SpeakTarget = "sample",
    draft: o.SpeakDraft = "none",
    trust_remote_code: o.TrustRemoteCode = False,
    seconds: o.Seconds = None,
    temperature: o.SpeakTemperature = None,
    seed: o.Seed = None,
    guidance: o.Guidance = None,
    max_new_tokens: o.SpeakSteps = None,
    grounding: o.SpeakGrounding = None,
    approximate: o.Approximate = None,
    budget: o.Budget = None,
    gamma: o.Gamma = "adaptive",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The sound of one text: wav, flac or ogg. Without it speech.wav, unless that is "
            "there already.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            metavar="DIR",
            help="A file for each text there: speech-1.wav, speech-2.wav, ...",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="wav|flac|ogg",
            help="Of files that --out doesn't name.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = "wav",
    codes_only: Annotated[
        bool,
        typer.Option(
            "--codes-only",
            help="Write codes (.npz) and make no sound of them.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Write raw samples to standard output as soon as they are certain: 16 bits, "
            "little-endian, channels interleaved.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = False,
    json: o.Json = None,
    report: o.ReportPage = None,
    compare: o.Compare = "",
    table: o.Table = None,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    batch: Annotated[
        int,
        typer.Option(
            "--batch",
            min=1,
            metavar="N",
            help="Say so many texts side by side: the same codes, less time.",
            rich_help_panel=o.MACHINE,
        ),
    ] = 1,
    threads: o.Threads = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    packed: o.Packed = True,
) -> int:
    """Say texts aloud.

    The codes are exactly what the target would have written without a drafter; a
    drafter only decides how soon they come. Each sound file has its codes beside
    it; standard output holds the names of the sound files. A text that can't be
    said costs one line on standard error, an empty line here, and exit code 2 at
    the end.

    \b
    With nothing downloaded:
      mmspec speak "The teacher sold the heavy pencil this evening." -d sample
    A file of sentences, several side by side:
      mmspec speak --file sentences.txt -o spoken -t DIR -d lookup+DIR2 --batch 4
    Is it the same, and is it faster?
      mmspec speak "Hello." -t DIR -d DIR2 --temperature 0 --compare plain,hf
    Heard as it is made:
      mmspec speak "Hello." -t DIR --stream | aplay -q -t raw -f S16_LE -r 16000
    """
    from mmspec.cli.speaking import SpeakRun, read_texts, stream_aloud
    from mmspec.tasks.tts.code_files import SOUND_FORMATS

    models = SpeakingSettings(
        target, draft, gamma, device, dtype, packed, threads, trust_remote_code
    )
    wanted = SpeechSettings(
        format_,
        output_dir,
        json,
        quiet=quiet,
        table=table,
        report=report,
        formats=SOUND_FORMATS,
        out=out,
        codes_only=codes_only,
    )
    peers = peers_of(compare, batch)
    if seconds is not None and max_new_tokens is not None:
        raise OptionError("--seconds, --max-new-tokens: found both, expected one of them")
    request = {
        "seconds": seconds,
        "temperature": temperature,
        "seed": seed,
        "guidance": guidance,
        "max_new_tokens": max_new_tokens,
        "grounding": grounding,
        "approximate": approximate,
        "budget": budget,
    }
    if approximate is not None and peers:
        raise OptionError("--approximate: expected no --compare, its codes aren't the target's")
    models.check()
    wanted.check([])
    sayings = [*(texts or []), *read_texts(file)]
    if not sayings:
        raise OptionError("found no text, expected TEXT or --file FILE")
    if stream:
        whole = {
            "--out": out,
            "--output-dir": output_dir,
            "--codes-only": codes_only,
            "--json": json,
            "--report": report,
            "--compare": compare,
            "--grounding": grounding is not None,
            "--batch": batch > 1,
            "--table": table,
        }
        for name, given in whole.items():
            if given:
                raise OptionError(f"--stream: expected no {name}, sound goes out as it is made")
        return stream_aloud(sayings, models, request, quiet=quiet, verbose=verbose)
    places = wanted.places(len(sayings))
    return SpeakRun(sayings, places, models, wanted, request, peers, verbose, batch).go()
