"""`mmspec info`: what can be done with a model, and why not."""

from __future__ import annotations

from typing import Annotated

import typer

from mmspec.cli import options as o
from mmspec.output.console import offline_if_unreachable, quiet_libraries

Facts = list[tuple[str, str]]


def info(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A directory, a hub id, sample, vision-sample or voice-sample; without one, all "
            "families.",
            show_default=False,
        ),
    ] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            "--draft",
            "-d",
            metavar="DRAFT",
            help="Would this one fit as a drafter? May be given several times.",
            show_default=False,
        ),
    ] = None,
    device: o.Device = None,
    trust_remote_code: o.TrustRemoteCode = False,
    verbose: o.Verbose = False,
) -> int:
    """Say what mmspec can do with a model, and why not.

    \b
    mmspec info
    mmspec info sample --draft sample
    mmspec info DIR/whisper-base --draft DIR/whisper-tiny.en --draft early-exit:3
    """
    if model is None:
        from mmspec.tasks.info import families

        _show("Families, by transformers' model type", families())
        return 0
    offline_if_unreachable([model, *(draft or [])])
    with quiet_libraries(verbose):
        from mmspec.tasks.info import facts_of

        facts = facts_of(model, draft or [], device, trust_remote_code)
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
