"""The command line for `python -m cordee`."""

from __future__ import annotations

from cordee.faces.cli import main

if __name__ == "__main__":
    main()
