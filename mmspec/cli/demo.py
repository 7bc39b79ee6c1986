"""`mmspec demo`: the embedded samples, plain and speculative, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mmspec.cli.groups import Only, given, grouped
from mmspec.cli.settings import OutputSettings
from mmspec.modalities.base.options import option
from mmspec.output.console import quiet_libraries
from mmspec.tasks.settings import MOST_THREADS, ModelSettings


@dataclass(frozen=True)
class DemoModels(ModelSettings):
    """What is shown.

    Attributes:
        target: Whose transcripts they are.
        draft: Who proposes transcripts.
        gamma: Tokens drafted per round.
        threads: CPU threads; small models want one.
    """

    target: str = option("sample", short="-t", metavar="MODEL", panel="Options")
    draft: str = option("sample", short="-d", metavar="DRAFT", panel="Options")
    gamma: str = option("adaptive", metavar="adaptive|N", panel="Options")
    threads: int = option(1, metavar="N", least=1, most=MOST_THREADS, panel="Options")


@grouped
def demo(
    *,
    models: Annotated[DemoModels, Only("target", "draft", "gamma", "threads")],
    report: Annotated[
        Path | None,
        given("Write one page of HTML there: every token and how it was obtained.", metavar="FILE"),
    ] = None,
    output: Annotated[OutputSettings, Only("verbose")],
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

    models.check()
    OutputSettings(report=report).check([])
    console = Console(highlight=False)
    with quiet_libraries(output.verbose):
        parts = [hear(models, console, report is not None)]
        if models.target == models.draft == "sample":
            for what, missing_sample, part in (
                ("Images are", demo_looking.missing_sample, demo_looking.look),
                ("Speech is", demo_speaking.missing_sample, demo_speaking.say),
            ):
                if missing := missing_sample():
                    console.print(plain_text(f"{what} left out: {missing}"), soft_wrap=True)
                else:
                    parts.append(part(models.gamma, console, report is not None))
    if report is not None:
        from mmspec.page.writing import write_page
        from mmspec.tasks.settings import as_json

        write_page(report, as_json(models), [entry for _, entries in parts for entry in entries])
    console.print(plain_text("Next: mmspec transcribe FILE -t DIR_OR_HUB_ID -d ngram --compare hf"))
    return 0 if all(pair.equal for pairs, _ in parts for pair in pairs) else 1
