"""The command line for `python -m cordee.cli`."""

from __future__ import annotations

from cordee.faces.cli import main as main

if __name__ == "__main__":
    main()
