"""`python -m mmspec` is `mmspec`."""

from mmspec.cli import main

if __name__ == "__main__":
    main()
