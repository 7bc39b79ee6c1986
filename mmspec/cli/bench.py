"""`mmspec bench`."""

from __future__ import annotations

import typer

bench_app = typer.Typer(
    name="bench", help="Measure, by the benchmark contract.", no_args_is_help=True
)


@bench_app.command("asr")
def asr() -> int:
    """Not yet."""
    return 0


@bench_app.command("b")
def b() -> int:
    """Not yet."""
    return 0
