"""`python -m cordee.faces.cli` is the `cordee` command."""

from cordee.faces.cli import main

main()
