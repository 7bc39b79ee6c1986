"""`mmspec info`: what can be done with a model, and why not."""

from __future__ import annotations

from typing import Annotated

from mmspec.cli.groups import Only, argument, given, grouped
from mmspec.cli.settings import OutputSettings
from mmspec.output.console import offline_if_unreachable, quiet_libraries
from mmspec.tasks.settings import ModelSettings

Facts = list[tuple[str, str]]


@grouped
def info(
    model: Annotated[
        str | None,
        argument(
            "MODEL",
            "A directory, a hub id, sample, vision-sample or voice-sample; without one, all "
            "families.",
        ),
    ] = None,
    /,
    *,
    draft: Annotated[
        list[str] | None,
        given(
            "Would this one fit as a drafter? May be given several times.",
            metavar="DRAFT",
            short="-d",
        ),
    ] = None,
    models: Annotated[ModelSettings, Only("device", "trust_remote_code")],
    output: Annotated[OutputSettings, Only("verbose")],
) -> int:
    """Say what mmspec can do with a model, and why not.

    mmspec info
    mmspec info sample --draft sample
    mmspec info DIR/whisper-base --draft DIR/whisper-tiny.en --draft early-exit:3
    """
    if model is None:
        from mmspec.tasks.info import families

        _show("Families, by transformers' model type", families())
        return 0
    offline_if_unreachable([model, *(draft or [])])
    with quiet_libraries(output.verbose):
        from mmspec.tasks.info import facts_of

        facts = facts_of(model, draft or [], models.device, models.trust_remote_code)
    _show(model, facts)
    return 0


def _show(model: str, facts: Facts) -> None:
    from rich.console import Console
    from rich.text import Text

    from mmspec.output.render import new_table, plain_text

    table = new_table(model, show_header=False, pad_edge=False)
    table.add_column(style="cyan", overflow="fold", max_width=30)
    table.add_column(overflow="fold")
    for name, value in facts:
        style = "yellow" if value.startswith("no:") else ""
        table.add_row(Text(name), plain_text(value, style))
    Console(highlight=False).print(table)
