"""The commands of `cordee`, each with the module whose `command` it is."""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("cordee.faces.cli.init", "Write a commented cordee.toml for what is in a folder."),
    "check": ("cordee.faces.cli.check", "Validate everything and show exactly what would be submitted."),
    "run": ("cordee.faces.cli.run", "Run a job: vet, start, sample, restart, report."),
    "vet": ("cordee.systems.vetting.cli.vet", "Vet the nodes of this allocation, or this machine, by a protocol."),
    "record": ("cordee.faces.cli.record", "Sample any command, for `cordee score`."),
    "runs": ("cordee.faces.cli.runs", "List runs."),
    "show": ("cordee.faces.cli.show", "Show one run: state, nodes, ranks, failures."),
    "logs": ("cordee.faces.cli.logs", "Show what the ranks printed."),
    "watch": ("cordee.faces.cli.watch.command", "Watch a run in the terminal."),
    "serve": ("cordee.faces.cli.serve", "Show runs as web pages, live."),
    "cancel": ("cordee.faces.cli.cancel", "End a run; ranks that can save are asked to first."),
    "resume": ("cordee.faces.cli.resume", "Continue a run that has ended, from its newest checkpoint."),
    "report": ("cordee.faces.cli.report", "Render a run's report: text, JSON and one HTML file."),
    "advise": ("cordee.systems.advise.cli", "Say why a run waits or failed, and what to change."),
    "flight": ("cordee.systems.explain.cli.flight", "Say which rank broke the collective that a training hangs in."),
    "stacks": ("cordee.systems.explain.cli.stacks", "Show where all ranks of a run stand, as one tree."),
    "stragglers": (
        "cordee.systems.explain.cli.stragglers",
        "Show who the others wait for: by how much, since when, why.",
    ),
    "profile": ("cordee.systems.explain.cli.profile", "Trace some steps of ranks of a running job."),
    "correlate": ("cordee.systems.explain.cli.correlate", "Say which metrics moved with the time of a step."),
    "topology": ("cordee.systems.explain.cli.topology", "Say where a run or job sits on the network; draw it."),
    "shell": ("cordee.faces.cli.shell", "Open a shell inside a running job, on one of its nodes."),
    "cluster": ("cordee.faces.cli.cluster", "Show what Cordée knows of clusters."),
    "data": ("cordee.systems.data.cli", "Data sets: survey, pack, verify, measure the loader alone."),
    "env": ("cordee.systems.environments.cli", "Container environments: resolve, explain, check, run, images."),
    "scan": ("cordee.systems.scan.cli", "Look at model files, scripts and notebooks: poison, leaked keys."),
    "egress": ("cordee.systems.egress.cli", "What runs send where: one run, or a site's against what is agreed on."),
    "nodes": ("cordee.faces.cli.nodes", "History of nodes: vettings, offenders, actions, findings of runs."),
    "rules": ("cordee.systems.rules.cli", "Rules of operators about runs: try them, judge them on old runs."),
    "score": ("cordee.systems.score.cli.default", "Measure GPU utilisation, explain what limits it, suggest fixes."),
    "testing": ("cordee.testing.cli", "Test helpers: a private Slurm, synthetic runs."),
}
