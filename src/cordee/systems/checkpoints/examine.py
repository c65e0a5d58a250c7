"""What a restart would do: continue from a checkpoint, or start from scratch."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path, PurePath

from cordee.core.backends import abilities
from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size
from cordee.job.command import script_of
from cordee.job.document import EXISTING, FRESH, SELF, CheckpointTable
from cordee.job.load import LoadedJob
from cordee.job.plan import model
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan
from cordee.job.scripts import Script, read_script
from cordee.machine.foreign_files import read_json
from cordee.machine.node_tiers import MEMORY_SHARE
from cordee.runs.checkpoint import Checkpoint as Found
from cordee.runs.folder import RunFolder
from cordee.systems.checkpoints.node.folder import (
    MANIFEST,
    PATTERN,
    candidates,
    checkpoint_at,
    find_checkpoints,
    read_manifest,
)
from cordee.systems.checkpoints.node.owner import owner_of, owners_folder, trainers
from cordee.systems.checkpoints.storage import purge_finding, striping_advice
from cordee.wire.stores import Patience, open_store
from cordee.wire.stores.patience import SilentStore

# Copies of a node's part: on it and on its neighbour, and those that are on their way to a store. See "On nodes first".
_KEPT, _SENT = 3, 2
# Runs of this job that are looked into for what they saved.
_LOOKED_AT = 10
_STAMP = len("20261127T101831Z-wqgb")  # of a run's id: when it was made
# A store is asked once when a job is checked.
_PATIENCE = Patience(total_s=10.0, tries=3, connect_s=5.0, stall_s=5.0)


class CheckpointExamination(Examination):
    """Where checkpoints lie, and what a restart would do."""

    field = "checkpoint"

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        """Return where checkpoints lie."""
        policy = plan_checkpoint(self.loaded.job.checkpoint, self.loaded.folder, self.run_folder)
        if not _shares_files(self.loaded):
            policy = _that_travel(policy, self.loaded, self.run_folder)
        tier = self.loaded.cluster.tier_at(policy.path)
        known = {"node_places": self.loaded.cluster.node_places, "purge_s": tier[1].purge if tier else None}
        return Contribution(policy.model_copy(update=known))

    def judge(self, plan: Plan) -> list[Finding]:
        """Say what a restart would do."""
        return [*examine_checkpoint(self.loaded, plan), *_memory(self.loaded, plan, self.run_folder.parent)]


def keep_checkpoints(folder: RunFolder, loaded: LoadedJob, plan: Plan) -> tuple[str, ...]:
    """Make the folder of checkpoints; it and what lies beside it is no code."""
    checkpoint = plan.step.checkpoint
    os.makedirs(checkpoint.path, exist_ok=True)
    at_home = [str(loaded.folder / checkpoint.seen_as)] if checkpoint.seen_as else []
    return checkpoint.path, owners_folder(Path(checkpoint.path)), *at_home


def _shares_files(loaded: LoadedJob) -> bool:
    return abilities(loaded.cluster.scheduler).shares_files


def _that_travel(policy: model.CheckpointPolicy, loaded: LoadedJob, run_folder: Path) -> model.CheckpointPolicy:
    """Return where checkpoints lie that come back with a run: in its own folder, wherever its script saves them."""
    seen_as = None if policy.own_folder else os.path.relpath(policy.path, loaded.folder)
    own = {"path": str(run_folder / "checkpoints"), "own_folder": True, "ignore": {}, "seen_as": seen_as}
    return policy.model_copy(update=own)


def plan_checkpoint(document: CheckpointTable | None, folder: Path, run_folder: Path) -> model.CheckpointPolicy:
    declared = document or CheckpointTable()
    path = folder / declared.path if declared.path is not None else run_folder / "checkpoints"
    there = find_checkpoints(path, declared.pattern) if declared.path is not None else []
    return model.CheckpointPolicy(
        path=str(path),
        pattern=declared.pattern,
        resume="self" if declared.resume == (SELF,) else declared.resume,
        signal=declared.signal,
        every_s=declared.every,
        grace_s=declared.grace,
        ignore={checkpoint.name: checkpoint.mtime_ns for checkpoint in there},
        declared=document is not None,
        own_folder=declared.path is None,
        begin=_begin(declared, folder, there),
        asynchronous=declared.asynchronous or len(declared.tiers) > 1,
        pace=declared.pace,
        keep=declared.keep,
        milestones=declared.milestones,
        tiers=declared.tiers,
    )


def _begin(declared: CheckpointTable, folder: Path, there: list[Found]) -> model.BeginFrom | None:
    """Return what the run begins from by an explicit word; empty `checkpoints` when there is nothing of the kind."""
    given = declared.begin
    if given in (None, FRESH):
        return None
    if given != EXISTING:
        place = folder / Path(given).expanduser()
        one = checkpoint_at(place) if _is_checkpoint(place, declared.pattern) else None
        there = [one] if one is not None else find_checkpoints(place, declared.pattern)
    there = sorted(there, key=lambda found: (-1 if found.step is None else found.step, found.mtime_ns))
    return model.BeginFrom(given=given, checkpoints={found.path: found.mtime_ns for found in there})


def _is_checkpoint(place: Path, pattern: str) -> bool:
    """Return whether a path is a checkpoint and no folder that holds some: by its manifest, else by what it holds."""
    return place.is_file() or (place / MANIFEST).exists() or not candidates(place, pattern)


def examine_checkpoint(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Return the findings on checkpoints and restarts."""
    name = script_of(loaded.job.run)
    script = read_script(loaded.folder / name, loaded.folder) if name else Script()
    findings = _restart(loaded, plan, script)
    findings += _signal(loaded, plan, script)
    findings += _place(loaded, plan)
    findings += _own_folder(loaded, plan, script)
    findings += _others(loaded, plan, script)
    findings += [*_storage(loaded, plan), *_store(loaded, plan)]
    if not _shares_files(loaded):
        return findings + _travelling(loaded, plan)
    if plan.step.checkpoint.begin is not None:
        return findings + _begins(loaded, plan)
    return findings + _earlier(loaded, plan)


def _travelling(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Refuse what a run that travels cannot have: checkpoints outside of the job's folder, and some to begin from."""
    findings, checkpoint = [], plan.step.checkpoint
    if checkpoint.seen_as is not None and (checkpoint.seen_as == "." or checkpoint.seen_as.startswith("..")):
        file, line = loaded.place("checkpoint", "path")
        text = f"the machines of {loaded.cluster.name} do not see this checkpoint folder, and the run's own comes back with it"
        what = "leave out [checkpoint] path, or choose one below the job's folder"
        given = loaded.job.checkpoint.path if loaded.job.checkpoint else None
        findings.append(
            Finding(text, "error", "checkpoint-place", file, line, given, "a path below the job's folder", what)
        )
    if checkpoint.begin is not None:
        file, line = loaded.place("checkpoint", "begin")
        text = f"a run on {loaded.cluster.name} cannot begin from another run's checkpoint: it does not travel along"
        what = "`cordee resume RUN` continues an earlier run; else leave out --begin"
        findings.append(Finding(text, "error", "not-honoured", file, line, checkpoint.begin.given, FRESH, what))
    return findings


def _earlier(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Say what lies in the folder already; refuse it where the script would go on from it, whatever we do."""
    checkpoint = plan.step.checkpoint
    if not checkpoint.ignore:
        return []
    file, line = loaded.place("checkpoint", "path")
    count = len(checkpoint.ignore)
    there = ("1 checkpoint lies" if count == 1 else f"{count} checkpoints lie") + f" in {checkpoint.path} already"
    given = sorted(checkpoint.ignore)[-5:]
    if checkpoint.resume == "self":
        text = f'{there}, and with resume = "self" the script would continue from the newest'
        allowed = "a folder without another run's checkpoints, or the word that they are meant"
        what = "--begin existing continues from them; else leave out [checkpoint] path, or choose another"
        return [Finding(text, "error", "foreign-checkpoints", file, line, given, allowed, what)]
    text = f"{there}; this run does not continue from what was there before"
    what = "`cordee resume RUN` continues with an earlier run, and --begin existing begins from the newest of these"
    return [Finding(text, "info", "earlier-checkpoints", file=file, line=line, given=given, next=what)]


def _begins(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Say which checkpoint the run begins from, or that there is none such."""
    checkpoint = plan.step.checkpoint
    assert checkpoint.begin is not None
    begin = checkpoint.begin
    file, line = loaded.place("checkpoint", "begin")

    def refusal(text: str, allowed: str, what: str) -> list[Finding]:
        return [Finding(text, "error", "no-beginning", file, line, begin.given, allowed, what)]

    if begin.given == EXISTING and checkpoint.own_folder:
        text = "nothing is there to begin from: without [checkpoint] path a run saves in its own folder, which is new"
        return refusal(text, "fresh, or the path of a checkpoint", "--begin PATH names the checkpoint")
    if not begin.checkpoints:
        where = checkpoint.path if begin.given == EXISTING else begin.given
        text = f"there is no complete checkpoint to begin from: {where}"
        allowed = f"a complete checkpoint, or a folder with some that are called {checkpoint.pattern}"
        return refusal(text, allowed, "leave out --begin to begin at zero, or correct the path")
    if checkpoint.resume == "self" and any(
        Path(checkpoint.path, name) not in map(Path, begin.checkpoints) for name in checkpoint.ignore
    ):
        text = f'with resume = "self" the script looks into {checkpoint.path} by itself'
        return refusal(text, EXISTING, "--begin existing, or resume with {checkpoint} in it")
    newest = list(begin.checkpoints)[-1]
    found = checkpoint_at(newest)
    run = owner_of(found, trainers(Path(newest).parent)) if found else None
    text = f"this run begins from {newest}, which {f'run {run}' if run else 'an unknown run'} made"
    return [Finding(text, "info", "begins-from", file=file, line=line, given=begin.given)]


def _others(loaded: LoadedJob, plan: Plan, script: Script) -> list[Finding]:
    """Warn of a run that trains with the same folder now: what scripts save by themselves cannot be told apart then."""
    checkpoint = plan.step.checkpoint
    if checkpoint.own_folder or "cordee.checkpointer" in script.calls:
        return []
    others = [trainer.run for trainer in trainers(checkpoint.path) if trainer.training]
    if not others:
        return []
    file, line = loaded.place("checkpoint", "path")
    text = (
        f"run {others[0]} trains with the same checkpoint folder; what a script saves while both train belongs to neither, "
        "and a restart does not continue from it"
    )
    what = "leave out [checkpoint] path, so that each run has a folder of its own, or wait for that run"
    return [Finding(text, "warn", "shared-checkpoints", file=file, line=line, given=checkpoint.path, next=what)]


def _storage(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Say what the storage does to checkpoints: what is removed with age, how files are spread."""
    checkpoint = plan.step.checkpoint
    ranks = plan.step.request.nodes * plan.step.request.ranks_per_node
    found = [purge_finding(checkpoint.model_dump()), striping_advice(Path(checkpoint.path), ranks)]
    file, line = loaded.place("checkpoint", "path")
    return [dataclasses.replace(one, file=file, line=line) for one in found if one is not None]


def _store(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Refuse an object store that says no, and warn of one that says nothing, before saves are not brought there."""
    address = plan.step.checkpoint.tiers[-1]
    if "://" not in address:
        return []
    try:
        list(open_store(f"{address.rstrip('/')}/{plan.run}", _PATIENCE).list())
    except CordeeError as error:
        file, line = loaded.place("checkpoint", "tiers")
        if isinstance(error, SilentStore):  # nodes may have another way to it
            text, severity = (
                f"whether checkpoints can go to the object store cannot be seen from here: {error.text}",
                "warn",
            )
        else:
            text, severity = f"checkpoints cannot go to the object store: {error.text}", "error"
        return [Finding(text, severity, "checkpoint-store", file, line, address, error.allowed, error.next or "")]
    return []


def _memory(loaded: LoadedJob, plan: Plan, runs: Path) -> list[Finding]:
    """Warn where what the last run of this job saved would not fit into the memory of its nodes as often as it may lie there."""
    policy, memory, nodes = plan.step.checkpoint, loaded.job.need.memory, plan.step.request.nodes
    if policy.tiers[0] != "memory" or memory is None:
        return []
    size = _last_bytes(runs, loaded.job.name) if policy.own_folder else _newest_bytes(policy.path)
    copies = 1 + _KEPT * (2 if nodes > 1 else 1) + _SENT * (len(policy.tiers) > 2)
    needed = copies * size // nodes
    if needed <= MEMORY_SHARE * memory:
        return []
    file, line = loaded.place("checkpoint", "tiers")
    text = (
        f"saves may take up to {format_size(needed)} of the memory of each node: the last one had {format_size(size)}, and {copies} "
        "copies of a node's part may be there; what does not fit goes to shared storage at once"
    )
    given, allowed = f"need.memory {format_size(memory)}", f"at least {format_size(int(needed / MEMORY_SHARE))}"
    what = 'ask for more memory or more nodes, or write tiers = ["node", "shared"]'
    return [Finding(text, "warn", "checkpoint-memory", file, line, given, allowed, what)]


def _last_bytes(runs: Path, name: str) -> int:
    """Return the bytes of the newest checkpoint of the last run of a job that has one in its own folder, 0 without any."""
    folders = sorted(runs.glob(f"{escape(name)}-*/checkpoints"), reverse=True)[:_LOOKED_AT]
    return next(filter(None, map(_newest_bytes, folders)), 0)


def _newest_bytes(folder: Path | str) -> int:
    newest = next(reversed([one for one in candidates(folder, PATTERN) if (Path(one.path) / MANIFEST).is_file()]), None)
    try:
        return sum(read_manifest(newest.path)["files"].values()) if newest is not None else 0
    except (OSError, ValueError):
        return 0


def _own_folder(loaded: LoadedJob, plan: Plan, script: Script) -> list[Finding]:
    """Warn where checkpoints are looked for in the run's own folder, which the script does not seem to know."""
    checkpoint = plan.step.checkpoint
    if not checkpoint.own_folder or checkpoint.resume is None or script.goes_on or not script.savers:
        return []
    if any("CORDEE_CHECKPOINT_DIR" in word for word in loaded.job.run):
        return []
    file, line = loaded.place("checkpoint")
    text = "without [checkpoint] path the run's own folder is meant, and the script does not seem to save there"
    what = "set path to the folder that the script saves in, or have it save in CORDEE_CHECKPOINT_DIR"
    return [Finding(text, "warn", "checkpoint-folder", file=file, line=line, next=what)]


def _restart(loaded: LoadedJob, plan: Plan, script: Script) -> list[Finding]:
    checkpoint = plan.step.checkpoint
    if checkpoint.resume is not None or script.goes_on:
        return []
    own = next((word for word in loaded.job.run if word.startswith("-") and "resume" in word), None)
    file, line = loaded.place("checkpoint")
    if own is not None:
        text = f"a restart runs the same command again: whether {own} then continues is up to the script"
        what = 'resume = "self" in [checkpoint] says that it finds its newest checkpoint'
        return [Finding(text, "info", "resume-in-run", file=file, line=line, given=own, next=what)]
    option = script.option("resume", "load-checkpoint", "from-checkpoint", "ckpt-path", "load-ckpt")
    argument = f"{option.name if option and option.takes_value else '--resume'} {{checkpoint}}"
    what = f'[checkpoint] with path, pattern and resume = "{argument}"'
    text = "no resume command is configured: a restart starts training from scratch"
    if checkpoint.declared and "pattern" in (loaded.job.checkpoint.model_fields_set if loaded.job.checkpoint else ()):
        given, what = checkpoint.pattern, f'add resume = "{argument}" to [checkpoint]'
    else:
        given, what = shlex.join(loaded.job.run), f"save with cordee.checkpointer(...), or add {what}"
    what += ', or resume = "self" if the script finds its newest checkpoint by itself'
    severity, count = "warn", plan.step.segment.max_segments
    earlier = list(_runs_of_folder(Path(plan.folder).parent, plan.job_folder))
    same = [run for run, command in earlier if script_of(command) == script_of(loaded.job.run)]
    if checkpoint.begin is None and any(map(_went_on, same)):
        return []
    if earlier:
        severity = "info"  # it was said when the first of them was begun
    if checkpoint.begin is not None:
        severity = "error"
        text = "--begin cannot be honoured: no resume command is configured"
    if count > 1:
        severity = "error"
        what += f", or ask for no more than {format_duration(plan.step.segment.limit_s or 0)}"
        text = f"no resume command is configured: each of the {count} segments of this chain would start training from scratch"
    return [Finding(text, severity, "restart-from-zero", file=file, line=line, given=given, next=what)]


def _runs_of_folder(runs: Path, job_folder: str) -> Iterator[tuple[RunFolder, tuple[str, ...]]]:
    """Yield the newest runs of the jobs of a folder, each with its command."""
    newest = sorted(runs.glob("*/plan.json"), key=lambda path: path.parent.name[-_STAMP:], reverse=True)
    for made in newest[:_LOOKED_AT]:
        run = RunFolder(made.parent)
        with suppress(OSError, ValueError, KeyError, TypeError, IndexError):
            plan = read_json(run.plan, run.root)
            if plan["job_folder"] == job_folder:
                yield run, tuple(map(str, plan["steps"][0]["tasks"]["argv"]))


def _went_on(run: RunFolder) -> bool:
    """Return whether a run's report saw its script continue where it was, with no checkpoint that was known."""
    try:
        report = read_json(run.report / "report.json", run.root)
    except (OSError, ValueError):
        return False
    return isinstance(report, dict) and report.get("resumed_by_itself") is True


def _signal(loaded: LoadedJob, plan: Plan, script: Script) -> list[Finding]:
    """Warn when a script that can be read does not handle the signal that would end it."""
    name = plan.step.checkpoint.signal
    if name is None or not script.parsed or name in script.signals or "signal.signal" in script.calls:
        return []
    file, line = loaded.place("checkpoint", "signal")
    text = f"the script does not seem to handle {name}, which would end it instead of making it save"
    allowed = f"a script that calls signal.signal(signal.SIG{name}, ...)"
    what = "handle it, or remove [checkpoint] signal"
    return [Finding(text, "warn", "unhandled-signal", file=file, line=line, given=name, allowed=allowed, next=what)]


def _place(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Refuse a checkpoint folder that cannot be one, before an hour of training is lost to it."""
    checkpoint = plan.step.checkpoint
    if checkpoint.own_folder:
        return []
    path = Path(checkpoint.path)
    existing = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    file, line = loaded.place("checkpoint", "path")
    if not existing.is_dir():
        text, allowed = f"{existing} is not a folder", "a folder"
    elif not os.access(existing, os.W_OK | os.X_OK):
        text, allowed = f"{existing} cannot be written", "a folder that you may write"
    else:
        return _looks_unmatched(loaded, plan, path)
    what = "choose another [checkpoint] path"
    given = checkpoint.path
    return [Finding(text, "error", "checkpoint-place", file=file, line=line, given=given, allowed=allowed, next=what)]


def _looks_unmatched(loaded: LoadedJob, plan: Plan, path: Path) -> list[Finding]:
    """Say when the folder holds numbered files that the pattern misses: the pattern is likely wrong."""
    pattern = plan.step.checkpoint.pattern
    if plan.step.checkpoint.resume is None or "/" in pattern or not path.is_dir():
        return []
    names = [name for name in sorted(os.listdir(path)) if not name.startswith(".") and any(map(str.isdigit, name))]
    if not names or any(fnmatch.fnmatchcase(name, pattern) for name in names):
        return []
    file, line = loaded.place("checkpoint", "pattern")
    text = f"no file in {path} is called {pattern}, such as {PurePath(names[-1]).name} is"
    what = "correct [checkpoint] pattern if these are checkpoints"
    return [Finding(text, "info", "pattern-matches-none", file=file, line=line, given=pattern, next=what)]
