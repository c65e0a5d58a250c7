"""`cordee score`: DIR... scores recordings and runs; a word of COMMANDS in its place is a command of its own."""

from __future__ import annotations

# By name: the module whose `command` it is, and one line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "import": ("cordee.systems.score.cli.import_", "Make a recording of what gssr or DCGM have measured."),
    "export": ("cordee.systems.score.cli.export", "Write samples as one table: Parquet, CSV or JSON."),
    "baseline": ("cordee.systems.score.cli.baseline", "Keep what a workload reached, to judge later runs against it."),
    "baselines": ("cordee.systems.score.cli.baselines", "List or check a folder of baselines."),
    "rules": ("cordee.systems.score.cli.rules", "List the rules of diagnosis, or put a file of rules on trial."),
}
