"""The commands of `cordee` in sections, each with the module whose `command` it is."""

from __future__ import annotations

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "A run's life": {
        "init": ("cordee.faces.cli.init", "Write a commented cordee.toml for what is in a folder."),
        "check": ("cordee.faces.cli.check", "Validate everything and show exactly what would be submitted."),
        "run": ("cordee.faces.cli.run", "Run a job: vet, start, sample, restart, report."),
        "runs": ("cordee.faces.cli.runs", "List runs."),
        "show": ("cordee.faces.cli.show", "Show one run: state, nodes, ranks, failures."),
        "logs": ("cordee.faces.cli.logs", "Show what the ranks printed."),
        "watch": ("cordee.faces.cli.watch.command", "Watch a run in the terminal."),
        "shell": ("cordee.faces.cli.shell", "Open a shell inside a running job, on one of its nodes."),
        "cancel": ("cordee.faces.cli.cancel", "End a run; ranks that can save are asked to first."),
        "resume": ("cordee.faces.cli.resume", "Continue a run that has ended, from its newest checkpoint."),
        "report": ("cordee.faces.cli.report", "Render a run's report: text, JSON and one HTML file."),
        "serve": ("cordee.faces.cli.serve", "Show runs as web pages, live."),
        "diff": ("cordee.systems.sizes.cli.diff", "Say in what two runs differ: code, documents, data, results."),
        "size": ("cordee.systems.sizes.cli.size", "Say what to ask for next time, by what runs used."),
        "farm": (
            "cordee.systems.trials.cli.farm",
            "Run each line of a file as a task, many at a time, in one allocation.",
        ),
        "sweep": ("cordee.systems.trials.cli.sweep", "The trials of a sweep: show them, add some, take the best."),
    },
    "Data and models": {
        "data": ("cordee.systems.data.cli", "Data sets: survey, pack, verify, measure the loader alone."),
        "checkpoint": ("cordee.systems.checkpoints.cli", "Checkpoints: list, verify, export the weights, prune."),
        "plan": (
            "cordee.systems.sizing.cli",
            "Say what a model takes of a GPU's memory, and in which layouts it fits.",
        ),
    },
    "Environments and services": {
        "env": ("cordee.systems.environments.cli", "Container environments: resolve, explain, check, run, images."),
        "service": ("cordee.systems.services.cli", "Services around a training, from a catalogue: deploy, ask, stop."),
    },
    "Machines": {
        "cluster": ("cordee.faces.cli.cluster", "Show what Cordée knows of clusters."),
        "vet": ("cordee.systems.vetting.cli.vet", "Vet the nodes of this allocation, or this machine, by a protocol."),
        "nodes": ("cordee.systems.vetting.cli.nodes", "History of nodes: vettings, offenders, actions."),
        "rules": ("cordee.systems.rules.cli", "Rules of operators about runs: try them, judge them on old runs."),
        "topology": ("cordee.systems.explain.cli.topology", "Say where a run or job sits on the network; draw it."),
    },
    "Slow, hung or failed": {
        "advise": ("cordee.systems.advise.cli", "Say why a run waits or failed, and what to change."),
        "score": (
            "cordee.systems.score.cli.default",
            "Measure GPU utilisation, explain what limits it, suggest fixes.",
        ),
        "record": ("cordee.faces.cli.record", "Sample any command, for `cordee score`."),
        "profile": ("cordee.systems.explain.cli.profile", "Trace some steps of ranks of a running job."),
        "stragglers": (
            "cordee.systems.explain.cli.stragglers",
            "Show who the others wait for: by how much, since when, why.",
        ),
        "stacks": ("cordee.systems.explain.cli.stacks", "Show where all ranks of a run stand, as one tree."),
        "flight": (
            "cordee.systems.explain.cli.flight",
            "Say which rank broke the collective that a training hangs in.",
        ),
        "correlate": ("cordee.systems.explain.cli.correlate", "Say which metrics moved with the time of a step."),
    },
    "Safety": {
        "scan": ("cordee.systems.scan.cli", "Look at model files, scripts and notebooks: poison, leaked keys."),
        "egress": (
            "cordee.systems.egress.cli",
            "What runs send where: one run, or a site's against what is agreed on.",
        ),
    },
    "For developers": {
        "testing": ("cordee.testing.cli", "Test helpers: a private Slurm, a private HTCondor pool."),
    },
}

COMMANDS = {name: about for part in SECTIONS.values() for name, about in part.items()}
