"""`cordee score`: DIR... scores recordings and runs; a word of COMMANDS in its place is a command of its own."""

from __future__ import annotations

# By name: the module whose `command` it is, and one line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "import": ("cordee.cli.score.import_", "Make a recording of what gssr, jobreport or DCGM have measured."),
    "export": ("cordee.cli.score.export", "Write samples as one table: Parquet, CSV or JSON."),
}
