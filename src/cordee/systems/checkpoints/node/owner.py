"""Which run made a checkpoint: its manifest names the run; where a script saves by itself, the time tells who trained then.

Each run that saves outside its own folder has one small file beside the checkpoint folder, `.<name>.cordee/<run>.json`:
when its ranks ran, on the clock of that file system. It lies beside and not inside, because scripts list that folder and
some refuse one that is not empty. What was written while one run trained is that run's; while two did, nobody's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from cordee.core.errors import RunFolderError
from cordee.machine.foreign_files import regular
from cordee.runs.checkpoint import BEAT_S, Checkpoint, CheckpointFinder
from cordee.runs.folder import write_atomically
from cordee.runs.plan import Checkpoints
from cordee.systems.checkpoints.node.folder import (
    KnownCheckpoints,
    Path,
    candidates,
    checkpoint_at,
    find_checkpoints,
    newest_complete,
    read_manifest,
    run_of,
)
from cordee.systems.checkpoints.node.tiers.node_saves import NodeSaves
from cordee.systems.checkpoints.node.tiers.object_saves import address_of

SCHEMA = "cordee.checkpoint-owner/1"
_LARGEST_FILE_BYTES = 4 << 20
# What ranks wrote last may be seen, by another clock, a little after they have ended.
_AFTER_END_NS = 2 * 10**9
_MARGIN_S = 30.0
_MOST_BEFORE = 16


@dataclass(frozen=True)
class Trainer:
    """A run that saves, or saved, into a checkpoint folder.

    Attributes:
        run: its id.
        stretches: when its ranks ran, in ns of the file system's clock; the last may end in the future.
        training: whether its ranks run now, as far as its file says.
    """

    run: str
    stretches: tuple[tuple[int, int], ...]
    training: bool

    def trained_at(self, moment_ns: int) -> bool:
        """Return whether its ranks ran at a moment."""
        return any(begin < moment_ns <= end for begin, end in self.stretches)


def owners_folder(path: Path) -> str:
    """Return the folder of the owner files of a checkpoint folder."""
    parent, name = os.path.split(os.path.abspath(path))
    return os.path.join(parent, f".{name}.cordee")


def trainers(path: Path) -> list[Trainer]:
    """Return the runs that have an owner file for a checkpoint folder; one that cannot be read is left out."""
    folder = owners_folder(path)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
    except OSError:
        return []
    return [trainer for trainer in (_read(os.path.join(folder, name)) for name in names) if trainer is not None]


def owner_of(found: Checkpoint, among: list[Trainer]) -> Optional[str]:
    """Return the run that made a checkpoint, None where that is not known."""
    _, run = run_of(found.path)
    if run is not None:
        return run
    makers = [trainer.run for trainer in among if trainer.trained_at(found.mtime_ns)]
    return makers[0] if len(makers) == 1 else None


def _maker(path: str) -> Optional[tuple[int, int]]:
    """Return the supervisor's epoch and the attempt that saved a checkpoint, None where its manifest does not say them."""
    try:
        manifest = read_manifest(path)
        return int(manifest["epoch"]), int(manifest["attempt"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


class RunCheckpoints(CheckpointFinder):
    """The checkpoints of one run, among those of others; its supervisor alone writes its owner file.

    Args:
        policy: `checkpoint` of the plan's step.
        run: the run's id.
        control: the run's own folder for such files, where the owner file goes when it cannot lie beside the checkpoints.
        orphan_s, kill_s: for how long ranks may outlive their supervisor.
    """

    def __init__(self, policy: Checkpoints, run: str, control: Path, orphan_s: float, kill_s: float) -> None:
        self._path, self._pattern, self._ignore = policy.path, policy.pattern, policy.ignore
        self._on_nodes = NodeSaves(str(control)) if policy.asynchronous else None
        self._stored = self._on_nodes is not None and bool(address_of(policy.tiers, run))
        self._own_folder = policy.own_folder
        self._begin = policy.begin.checkpoints if policy.begin is not None else {}
        self.must_begin = policy.begin is not None
        self.finds_its_own = policy.resume == "self"
        self._run = run
        self._silent_s = BEAT_S + orphan_s + kill_s + _MARGIN_S
        self._file = os.path.join(owners_folder(self._path), f"{run}.json")
        self._spare = os.path.join(control, "checkpoint-owner.json")
        self._known = KnownCheckpoints()
        self._asked = 0
        self._owners: dict[str, tuple[int, Optional[str]]] = {}
        self._passed: Sequence[Checkpoint] = ()
        self._training = False
        before = [] if self._own_folder else [_read(self._file), _read(self._spare)]
        self._stretches = [list(stretch) for mine in before if mine is not None for stretch in mine.stretches]

    def newest(self, problems: Optional[list[str]] = None) -> Optional[Checkpoint]:
        """Return this run's newest complete checkpoint, None when there is none; all its files are looked at, once.

        No rank of the run trains meanwhile: their writers are waited for, and what lies on nodes and is newer is brought to
        shared storage; before an attempt also what lies in the object store, and what that lacks goes on its way.
        """
        there = self._on_nodes.settled() if self._on_nodes is not None else []
        newest = self._newest(problems, thorough=True)
        if self._on_nodes is None:
            return newest
        step = newest.step if newest is not None and newest.step is not None else -1
        came, failures = self._on_nodes.bring(there, step)
        if problems is not None and self._stored and not came:  # nodes are there
            # What is passed over lies in the store, too, and would come back from there as if it were new.
            beyond = max([step, *(one.step or 0 for one in self._passed)])
            came, more = self._on_nodes.fetch(self._path, self._run, beyond)
            failures += more
        if problems is not None:
            problems.extend(failures)
        newest = self._newest(problems, thorough=True) if came else newest
        if problems is not None and self._stored and newest is not None:
            self._on_nodes.catch_up(newest.path)
        return newest

    def glance(self) -> Optional[Checkpoint]:
        """Return this run's newest checkpoint whose files are all there: for looks that are repeated."""
        return self._newest(None, thorough=False)

    def _newest(self, problems: Optional[list[str]], *, thorough: bool) -> Optional[Checkpoint]:
        ignore = None if self._own_folder else self._ignore
        self._asked = 0

        def may_be_it(found: Checkpoint) -> bool:
            fits = found not in self._passed and self._is_mine(found)
            return fits and not (thorough and self._is_fenced(found, problems))

        return newest_complete(self._path, self._pattern, ignore, problems, may_be_it, self._known, thorough=thorough)

    def _is_fenced(self, found: Checkpoint, problems: Optional[list[str]]) -> bool:
        """Return whether an attempt saved it after a later one had saved: its nodes were counted as lost, and came back."""
        maker = _maker(found.path)
        if maker is None:
            return False
        self._asked += 1
        before = [one for one in candidates(self._path, self._pattern) if one.mtime_ns < found.mtime_ns]
        for other in sorted(before, key=lambda one: -one.mtime_ns)[:_MOST_BEFORE]:
            self._asked += 1
            theirs = _maker(other.path)
            if theirs is not None and theirs > maker:
                if problems is not None:
                    late, newer = f"attempt {maker[1]}, which had been given up", f"attempt {theirs[1]}"
                    problems.append(f"{found.name} is not used: {late}, saved it after {newer} had saved {other.name}")
                return True
        return False

    @property
    def operations(self) -> int:
        """Metadata operations of the last look."""
        return self._known.operations + self._asked

    def pass_over(self, doubted: Sequence[Checkpoint]) -> None:
        self._passed = () if self.finds_its_own else tuple(doubted)

    def forget(self) -> None:
        """Look anew at what was seen before."""
        self._known.forget()
        self._owners.clear()

    def beginning(self, problems: list[str]) -> Optional[tuple[Checkpoint, Optional[str]]]:
        """Return the newest usable one of the checkpoints that the run was told to begin from, and the run that made it."""
        for path, mtime_ns in reversed(list(self._begin.items())):
            found = checkpoint_at(path, problems)
            if found is not None and found.mtime_ns == mtime_ns:
                return found, owner_of(found, trainers(os.path.dirname(path)))
            if found is not None:
                problems.append(f"{path} has changed since the run was submitted")
        return None

    def foreign(self) -> list[tuple[str, Optional[str]]]:
        """Return (path, run) of the complete checkpoints that are neither this run's nor what it was told to begin from."""
        if self._own_folder:
            return []
        others = [found for found in find_checkpoints(self._path, self._pattern) if not self._is_mine(found)]
        return [(found.path, self._owner(found)) for found in others if self._begin.get(found.path) != found.mtime_ns]

    def disputed(self) -> list[str]:
        """Return the names of the checkpoints that came while this run trained and another did, too."""
        if self._own_folder:
            return []
        there = candidates(self._path, self._pattern, self._ignore)
        return [one.name for one in there if self._owner(one) is None and self._trained_at(one.mtime_ns)]

    def begin_training(self) -> str:
        """Write that this run's ranks run from now on; returns what stood against it, empty when it is written."""
        if self._own_folder:
            return ""
        problem = self._write()
        now = self._now_ns()
        for stretch in self._stretches:  # that of a supervisor that was killed was guessed
            stretch[1] = min(stretch[1], now)
        self._stretches.append([now, now])
        self._training = True
        return self._write() or problem

    def end_training(self) -> None:
        """Write that none of this run's ranks runs any more."""
        if not self._training:
            return
        self.beat()
        self._training = False
        self._stretches[-1][1] = max(self._stretches[-1][0], self._now_ns())
        self._write()

    def beat(self) -> None:
        """Say that the ranks still run; to be called every BEAT_S seconds."""
        if not self._training:
            return
        try:
            os.utime(self._file)
        except OSError:
            return

    def _is_mine(self, found: Checkpoint) -> bool:
        return self._own_folder or self._owner(found) == self._run

    def _owner(self, found: Checkpoint) -> Optional[str]:
        """Return the run that made a checkpoint; who trained when it was written cannot change later, so it is kept."""
        known = self._owners.get(found.path)
        if known is None or known[0] != found.mtime_ns:
            known = self._owners[found.path] = (found.mtime_ns, self._find_owner(found))
        return known[1]

    def _find_owner(self, found: Checkpoint) -> Optional[str]:
        self._asked += 1
        _, run = run_of(found.path)
        if run is not None:
            return run
        self._asked += 1
        others = [trainer for trainer in trainers(self._path) if trainer.run != self._run]
        makers = [trainer.run for trainer in others if trainer.trained_at(found.mtime_ns)]
        if self._trained_at(found.mtime_ns):
            makers.append(self._run)
        return makers[0] if len(makers) == 1 else None

    def _trained_at(self, moment_ns: int) -> bool:
        if self._training and moment_ns > self._stretches[-1][0]:
            return True
        return any(begin < moment_ns <= end + _AFTER_END_NS for begin, end in self._stretches)

    def _now_ns(self) -> int:
        """Return when the owner file was touched, just now: the time by which this file system dates checkpoints, too."""
        try:
            return os.stat(self._file).st_mtime_ns
        except OSError:
            return time.time_ns()

    def _write(self) -> str:
        document = {
            "schema": SCHEMA,
            "run": self._run,
            "trained": [
                [begin, None if self._training and at == len(self._stretches) - 1 else end]
                for at, (begin, end) in enumerate(self._stretches)
            ],
            "silent_s": self._silent_s,
        }
        problem = ""
        for file in (self._file, self._spare):
            try:
                os.makedirs(os.path.dirname(file), exist_ok=True)
                write_atomically(file, json.dumps(document), 0o644)
            except (OSError, RunFolderError) as error:
                problem = problem or f"{file} cannot be written: {getattr(error, 'strerror', None) or error}"
                continue
            self._file = file
            break
        return problem


def _read(path: str) -> Optional[Trainer]:
    try:
        with open(path, "rb", opener=regular) as file:
            document = json.loads(file.read(_LARGEST_FILE_BYTES))
            seen_ns = os.fstat(file.fileno()).st_mtime_ns
        last_ns = seen_ns + int(float(document["silent_s"]) * 1e9)
        stretches = [(int(begin), last_ns if end is None else int(end)) for begin, end in document["trained"]]
        training = bool(document["trained"]) and document["trained"][-1][1] is None
        return Trainer(str(document["run"]), tuple(stretches), training and time.time_ns() <= last_ns)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
