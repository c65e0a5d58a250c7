"""The name by which installed commands and `python -m` of earlier versions know the command line."""

from __future__ import annotations

from cordee.faces.cli import main as main

if __name__ == "__main__":
    main()
