"""The checkpoints of a run or folder, for commands: what lies there, whether it is whole, what may go."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordee.core.errors import CheckpointError
from cordee.job.terminal.run_args import found
from cordee.machine.foreign_files import read_json
from cordee.runs.checkpoint import Checkpoint
from cordee.runs.folder import RunFolder
from cordee.systems.checkpoints.node.folder import MANIFEST, PATTERN, candidates, checkpoint_at
from cordee.systems.checkpoints.node.owner import owner_of, trainers
from cordee.systems.checkpoints.node.sums import verify
from cordee.systems.checkpoints.node.tiers.node_saves import NodeSaves
from cordee.systems.checkpoints.node.tiers.object_saves import ObjectSaves, address_of, step_of
from cordee.systems.checkpoints.node.training_folder import discard, staying

# Names of checkpoints of Cordée, of the Trainer of transformers, of DeepSpeed, of Megatron, of Lightning, and of scripts.
_PATTERNS = (PATTERN, "checkpoint-*", "global_step*", "iter_*", "*.ckpt", "epoch*", "*.pt", "*.pth", "*.safetensors")


@dataclass(frozen=True)
class KeptCheckpoint:
    """One checkpoint.

    Attributes:
        step: the number in its name, None without one.
        run: that made it, None where that is not known.
        bytes: of all its files.
        tier: `shared`; `nodes`: it lies on the nodes of a run alone, and `path` names them; or `store`.
        complete: whether it is whole by names and sizes; `reason`: why not.
        time: UTC epoch seconds of its last change; None where it is not known.
        described: whether `cordee.checkpointer` wrote it.
    """

    name: str
    path: str
    step: int | None
    run: str | None
    bytes: int
    tier: str = "shared"
    complete: bool = True
    reason: str = ""
    time: float | None = None
    described: bool = True

    def document(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        names = ("name", "step", "path", "run", "complete", "bytes", "time")
        reason = {} if self.complete else {"reason": self.reason}
        return {**{name: getattr(self, name) for name in names}, "tier": self.tier, **reason}


@dataclass(frozen=True)
class CheckpointLibrary:
    """Checkpoints in one folder, the newest last; `run` is the one that was asked for, if one was."""

    path: str
    checkpoints: list[KeptCheckpoint] = field(default_factory=list)
    run: RunFolder | None = None


def library_of(target: str, runs: str | None) -> CheckpointLibrary:
    """Return the checkpoints of a path or a run.

    Args:
        target: a checkpoint, a folder of them, a run's folder, or what `cordee show` takes.
        runs: where runs lie, None: as usual.

    Raises:
        UsageError: there is no such path.
        RunNotFound: it is neither a path nor a run.
    """
    path = Path(target)
    if (path.exists() and not RunFolder(path).exists()) or (os.sep in target and not path.exists()):
        if not path.exists():
            raise CheckpointError(
                "there is no such path", given=target, allowed="a checkpoint, a folder of them, or a run"
            )
        if path.is_file() or (path / MANIFEST).exists() or (path / ".metadata").exists():
            return CheckpointLibrary(str(path.absolute().parent), _kept([_entry(path)]))
        entries = next(filter(None, (candidates(path, pattern) for pattern in _PATTERNS)), [])
        return CheckpointLibrary(str(path.absolute()), _kept(entries))
    folder = found(target, runs)
    policy = _policy_of(folder)
    return CheckpointLibrary(policy["path"], _kept(candidates(policy["path"], policy.get("pattern", PATTERN))), folder)


def _policy_of(folder: RunFolder) -> dict[str, Any]:
    """Return what the plan says of checkpoints, also that of an earlier Cordée, which says less of other things.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        policy: dict[str, Any] = read_json(folder.plan, folder.root)["steps"][0]["checkpoint"]
        if not isinstance(policy["path"], str):
            raise ValueError("it names no folder of checkpoints")
    except (OSError, ValueError, LookupError, TypeError) as error:
        text = f"the plan of this run cannot be read: {error}"
        raise CheckpointError(text, given=str(folder.plan), next="give the folder of its checkpoints") from error
    return policy


def on_nodes(library: CheckpointLibrary) -> list[KeptCheckpoint]:
    """Return what lies whole on the nodes of a run and not on shared storage, the newest last; nodes that do not answer have none."""
    if library.run is None:
        return []
    there = {one.step for one in library.checkpoints if one.complete and one.run == library.run.id}
    return [
        KeptCheckpoint(
            name=save.completion.name,
            path=", ".join(sorted({node for _, nodes in save.parts.values() for node in nodes})),
            step=save.completion.step,
            run=library.run.id,
            bytes=sum(part.bytes for part, _ in save.parts.values()),
            tier="nodes",
        )
        for save in reversed(NodeSaves(str(library.run.control), comes_back_s=0.0).found())
        if save.completion.step not in there
    ]


def in_store(library: CheckpointLibrary) -> list[KeptCheckpoint]:
    """Return what lies in the object store of a run, the newest last.

    Raises:
        DataError: the store refuses, or did not answer in time.
    """
    tiers = tuple(_policy_of(library.run).get("tiers") or ()) if library.run else ()
    address = address_of(tiers, library.run.id) if library.run and tiers else ""
    found = ObjectSaves(address).listed() if address else {}
    return [
        KeptCheckpoint(
            name=save.partition(".")[0],
            path=f"{address}/{save}",
            step=step_of(save),
            run=library.run.id if library.run else None,
            bytes=sum(files.values()),
            tier="store",
            complete=MANIFEST in files,
            reason="" if MANIFEST in files else f"{MANIFEST}, which is written last, is missing",
        )
        for save, files in sorted(found.items(), key=lambda one: step_of(one[0]))
    ]


def newest_on(library: CheckpointLibrary) -> KeptCheckpoint:
    """Return the newest whole checkpoint.

    Raises:
        CheckpointError: there is none.
    """
    whole = [one for one in library.checkpoints if one.complete]
    if not whole:
        raise CheckpointError(
            "there is no complete checkpoint", given=library.path, next="`cordee checkpoint list` says why"
        )
    return whole[-1]


def verified(one: KeptCheckpoint) -> tuple[str, bool]:
    """Return what is wrong with a checkpoint, empty when nothing is, and whether there were check sums to compare with."""
    if not one.complete:
        return one.reason, one.described
    if not one.described:
        return "", False
    try:
        verify(one.path, 0, 1)
    except (OSError, ValueError) as error:
        return str(error), True
    return "", True


def prunable(library: CheckpointLibrary, keep: int, milestones: int) -> tuple[list[KeptCheckpoint], list[str]]:
    """Return the checkpoints that may go, and the runs whose stay because they train here."""
    training = {trainer.run for trainer in trainers(library.path) if trainer.training}
    old: list[KeptCheckpoint] = []
    whole = [one for one in library.checkpoints if one.described and one.complete]
    for run in {one.run for one in whole} - training:
        mine = sorted((one for one in whole if one.run == run), key=lambda one: one.time or 0.0)
        stay = staying([Checkpoint(one.path, one.name, one.step, 0) for one in mine], keep, milestones)
        old += [one for one in mine if one.path not in stay]
    return sorted(old, key=lambda one: one.time or 0.0), sorted(training & {one.run for one in whole if one.run})


def remove(old: Iterable[KeptCheckpoint]) -> None:
    """Remove checkpoints, each hidden first, so that none is ever half there.

    Raises:
        CheckpointError: one cannot be removed.
    """
    for one in old:
        folder, name = os.path.split(one.path)
        hidden = os.path.join(folder, f".{name}.tmp-pruned.{os.getpid()}.0")
        try:
            os.rename(one.path, hidden)
        except OSError as error:
            raise CheckpointError(f"{one.name} cannot be removed: {error.strerror}", given=one.path) from error
        discard(hidden)


def _entry(path: Path) -> Checkpoint:
    (only,) = candidates(path.absolute().parent, path.name) or [Checkpoint(str(path.absolute()), path.name, None, 0)]
    return only


def _kept(entries: list[Checkpoint]) -> list[KeptCheckpoint]:
    among = trainers(os.path.dirname(entries[0].path)) if entries else []
    kept = []
    for entry in entries:
        problems: list[str] = []
        whole = checkpoint_at(entry.path, problems) is not None
        reason = problems[0].partition(" is not used: ")[2] or problems[0] if problems else ""
        known = (entry.name, entry.path, entry.step, owner_of(entry, among), _bytes_of(entry.path), "shared")
        described = os.path.isfile(os.path.join(entry.path, MANIFEST))
        kept.append(KeptCheckpoint(*known, whole, reason, entry.mtime_ns / 1e9, described))
    return kept


def _bytes_of(path: str) -> int:
    if os.path.isfile(path):
        return os.stat(path).st_size
    return sum(os.lstat(os.path.join(below, name)).st_size for below, _, names in os.walk(path) for name in names)
