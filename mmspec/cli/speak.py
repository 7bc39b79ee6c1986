"""`mmspec speak`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from mmspec.cli.groups import argument, given, grouped
from mmspec.cli.settings import SpeechSettings
from mmspec.errors import OptionError
from mmspec.tasks.settings import SpeakingSettings
from mmspec.tasks.tts.request import SpeechRequest


@grouped
def speak(
    *texts: Annotated[str, argument("TEXT", "What to say.")],
    file: Annotated[
        Path | None,
        given("Say what stands there too, line by line; - is standard input.", metavar="FILE"),
    ] = None,
    models: SpeakingSettings,
    decoding: SpeechRequest,
    output: SpeechSettings,
    batch: Annotated[
        int,
        given(
            "Say so many texts side by side: the same codes, less time.",
            1,
            panel="Machine",
            metavar="N",
            least=1,
            kind=int,
        ),
    ] = 1,
) -> int:
    """Say texts aloud.

    The codes are exactly what the target would have written without a drafter; a
    drafter only decides how soon they come. Each sound file has its codes beside
    it; standard output holds the names of the sound files. A text that can't be
    said costs one line on standard error, an empty line here, and exit code 2 at
    the end.

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

    check_request(decoding, output, batch)
    models.check()
    output.check([])
    sayings = [*texts, *read_texts(file)]
    if not sayings:
        raise OptionError("found no text, expected TEXT or --file FILE")
    if output.stream:
        check_stream(decoding, output, batch)
        return stream_aloud(sayings, models, output, decoding)
    request = replace(decoding, sound=not output.codes_only)
    places = output.places(len(sayings))
    return SpeakRun(sayings, places, models, output, request, batch).go()


def check_request(request: SpeechRequest, output: SpeechSettings, batch: int) -> None:
    """Raise where options don't go with each other.

    Raises:
        OptionError: names them.
    """
    peers = output.peers(batch)
    if request.seconds is not None and request.max_new_tokens is not None:
        raise OptionError("--seconds, --max-new-tokens: found both, expected one of them")
    if request.approximate is not None and peers:
        raise OptionError("--approximate: expected no --compare, its codes aren't the target's")


def check_stream(request: SpeechRequest, output: SpeechSettings, batch: int) -> None:
    """Raise where what is wanted needs all of the sound.

    Raises:
        OptionError: names the option.
    """
    whole = {
        "--out": output.out,
        "--output-dir": output.output_dir,
        "--codes-only": output.codes_only,
        "--json": output.json,
        "--report": output.report,
        "--compare": output.compare,
        "--grounding": request.grounding is not None,
        "--batch": batch > 1,
        "--table": output.table,
    }
    for name in (name for name, wanted in whole.items() if wanted):
        raise OptionError(f"--stream: expected no {name}, sound goes out as it is made")
