"""The parts of `--help`."""

from __future__ import annotations

from cyclopts import Group

PANELS = {
    name: Group(name, sort_key=place)
    for place, name in enumerate(
        ("Arguments", "Options", "Models", "Decoding", "Output", "Live", "Machine")
    )
}
"""In the order in which they are shown."""
