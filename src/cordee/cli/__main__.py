"""`python -m cordee.cli` is the `cordee` command."""

from cordee.cli import main

main()
