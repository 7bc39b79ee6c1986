"""`mmspec demo`: the embedded samples, plain and speculative, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mmspec.cli import options as o
from mmspec.cli.settings import OutputSettings
from mmspec.output.console import quiet_libraries
from mmspec.tasks.settings import ModelSettings

DemoTarget = Annotated[
    str, typer.Option("--target", "-t", metavar="MODEL", help="Whose transcripts they are.")
]
DemoDraft = Annotated[
    str, typer.Option("--draft", "-d", metavar="DRAFT", help="Who proposes transcripts.")
]
DemoGamma = Annotated[
    str, typer.Option("--gamma", metavar="adaptive|N", help="Tokens drafted per round.")
]
DemoThreads = Annotated[
    int,
    typer.Option(
        "--threads",
        min=1,
        max=o.MOST_THREADS,
        metavar="N",
        help="CPU threads; small models want one.",
    ),
]
DemoReport = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write one page of HTML there: every token and how it was obtained.",
        show_default=False,
    ),
]


def demo(
    target: DemoTarget = "sample",
    draft: DemoDraft = "sample",
    gamma: DemoGamma = "adaptive",
    threads: DemoThreads = 1,
    report: DemoReport = None,
    verbose: o.Verbose = False,
) -> int:
    """Show it: hear the embedded clips, see the images, say a sentence, offline.

    The sample targets decode everything plainly, one token per forward pass, and
    speculatively. The ids have to be equal; the tables say what speculation did.
    Another --target or --draft hears the clips; all else is for the samples.
    """
    from rich.console import Console

    from mmspec.output.render import plain_text
    from mmspec.tasks.asr.demo import hear
    from mmspec.tasks.tts import demo as demo_speaking
    from mmspec.tasks.vlm import demo as demo_looking

    models = ModelSettings(target, draft, gamma, threads=threads)
    models.check()
    OutputSettings(report=report).check([])
    console = Console(highlight=False)
    with quiet_libraries(verbose):
        parts = [hear(models, console, report is not None)]
        if target == draft == "sample":
            for what, missing_sample, part in (
                ("Images are", demo_looking.missing_sample, demo_looking.look),
                ("Speech is", demo_speaking.missing_sample, demo_speaking.say),
            ):
                if missing := missing_sample():
                    console.print(plain_text(f"{what} left out: {missing}"), soft_wrap=True)
                else:
                    parts.append(part(gamma, console, report is not None))
    if report is not None:
        from mmspec.page.writing import write_page
        from mmspec.tasks.settings import as_json

        write_page(report, as_json(models), [entry for _, entries in parts for entry in entries])
    console.print(plain_text("Next: mmspec transcribe FILE -t DIR_OR_HUB_ID -d ngram --compare hf"))
    return 0 if all(pair.equal for pairs, _ in parts for pair in pairs) else 1
