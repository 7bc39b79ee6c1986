"""`mmspec`, and `python -m mmspec`, from the first moment on."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; interrupted or unread, it leaves without a traceback."""
    for name in ("stdout", "stderr"):  # closed before this began: nobody reads what is said
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        from mmspec.cli import main as command_line
    except KeyboardInterrupt:  # while it was being imported
        print("mmspec: interrupted", file=sys.stderr)
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
