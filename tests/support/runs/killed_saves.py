"""Saves of a training of two ranks, with kills at any call to the file system: the real code, one action after the other.

The nodes, their ranks' writers, shared storage and the object store are folders; what goes from node to node is a call. A seed
draws how the actions of saves that overlap follow each other, and what is killed when: the process that does an action is forked
and ends before its so many-th call, as by SIGKILL. Then the next attempt begins, and must find what was promised, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import shutil
import signal
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from cordee.core.errors import CordeeError, WireError
from cordee.runs.plan import Checkpoints
from cordee.systems.checkpoints.node import writer
from cordee.systems.checkpoints.node.folder import MANIFEST, find_checkpoints
from cordee.systems.checkpoints.node.manifest import Completion
from cordee.systems.checkpoints.node.owner import RunCheckpoints
from cordee.systems.checkpoints.node.snapshot import HEADER_BYTES
from cordee.systems.checkpoints.node.sums import verify
from cordee.systems.checkpoints.node.tiers import object_saves
from cordee.systems.checkpoints.node.tiers.answers import KeptAnswers
from cordee.systems.checkpoints.node.tiers.catch_up import StoreCatchUp
from cordee.systems.checkpoints.node.tiers.first_tier import FirstTier
from cordee.systems.checkpoints.node.tiers.kept import KeptPart, KeptSaves
from cordee.systems.checkpoints.node.tiers.object_saves import ObjectSaves
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace

RUN, WORLD, KEEP, LAST = "r-1", 2, 2, 8
KINDS = ("writer", "rank", "node", "gather", "shared")
_CALLS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "os.truncate"}
_ENDED, _KILLED = 0, 9
_MOST_CALLS = 60
_KILLS = 3


def killed_at(call: int, work: Callable[[], Any]) -> bool:
    """Do `work` in a process that ends without a word before its so many-th call; return whether it came so far."""
    pid = os.fork()
    if not pid:
        left = [call]

        def count(event: str, _arguments: Any) -> None:
            if event in _CALLS:
                left[0] -= 1
                if left[0] < 0:
                    os._exit(_KILLED)

        sys.addaudithook(count)
        with contextlib.suppress(BaseException):
            work()
        os._exit(_ENDED)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _KILLED


def content(step: int, rank: int) -> dict[str, bytes]:
    """Return what a rank saves of a step, by file."""
    files = {f"__{rank}_0.distcp": f"{step} {rank} ".encode() * 400, f"rank-{rank}.pt": bytes([step, rank])}
    return {**files, ".metadata": bytes([step])} if rank == 0 else files


class _Stream:
    """A node that answers."""

    def __init__(self, answers: KeptAnswers) -> None:
        self._answers = answers
        self._said: tuple[dict[str, Any], bytes] = ({}, b"")

    def wait(self, seconds: float | None = None) -> None:
        pass

    close = wait

    def send(self, request: dict[str, Any]) -> None:
        if request["do"] == "settle":
            self._said = ({"writing": 0}, b"")
            return
        try:
            header, body = self._answers.answer(request)
            self._said = (json.loads(json.dumps(header)), body)
        except (OSError, CordeeError, LookupError, ValueError, TypeError) as error:
            self._said = ({"failed": str(error)}, b"")

    def receive(self) -> tuple[dict[str, Any], bytes]:
        return self._said


class _Links:
    """The nodes that are there, as one of them knows them."""

    def __init__(self, nodes: dict[str, KeptAnswers], node: str) -> None:
        self._nodes, self._node = nodes, node

    def all(self) -> dict[str, tuple[str, int]]:
        return dict.fromkeys(self._nodes, ("", 1))

    def others(self) -> list[str]:
        return sorted((name for name in self._nodes if name != self._node), key=lambda name: (name < self._node, name))

    def connect(self, node: str) -> _Stream:
        if node not in self._nodes:
            raise WireError("this node is gone", given=node)
        return _Stream(self._nodes[node])


class _Save(NamedTuple):
    step: int
    partial: str
    drains: bool
    stores: bool


class KilledTraining:
    """One case.

    Args:
        base: an empty folder, in memory at best.
        seed: of all that is drawn.

    Attributes:
        killed: what was killed, in order; `wrong`: what is not as it was promised.
    """

    def __init__(self, base: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._base, self._shared, self._store = base, base / "shared", str(base / "store")
        self._nodes: dict[str, KeptAnswers] = {}
        self._acknowledged: dict[int, dict[int, set[str]]] = {}
        self._completed: set[int] = set()
        self._stored: set[int] = set()
        self._attempt = self._made = 0
        self._left = self._rng.randint(1, _KILLS)
        self.killed: list[str] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        """Train to the end."""
        policy = Checkpoints(
            str(self._shared),
            pattern="step-*",
            own_folder=True,
            asynchronous=True,
            tiers=("node", "shared", "s3://b/p"),
        )
        while True:
            while len(self._nodes) < WORLD:
                self._add_node()
            finder = RunCheckpoints(policy, RUN, self._base, 0.0, 0.0)
            finder._on_nodes._links = _Links(self._nodes, "supervisor")  # type: ignore[union-attr,assignment]
            promised, asked = self._promised(), self._left and self.killed and self._rng.random() < 0.2
            if asked:
                self._kill("gather", partial(finder.newest, []))
            problems: list[str] = []
            found = finder.newest(problems)
            step = found.step if found is not None and found.step is not None else -1
            if step < promised:
                self.wrong.append(
                    f"step {promised} was promised, and attempt {self._attempt} began from {step}: {problems}"
                )
            self._look()
            self._acknowledged.clear()
            self._completed.add(step)
            if step == LAST:
                break
            self._attempt += 1
            if _Attempt(self, step + 1).train():
                self._look(last=True)
                break

    def _add_node(self) -> None:
        name = f"n{self._made}"
        self._made += 1
        saves, room = KeptSaves(self._base / name), SimpleNamespace(lacks=lambda size: "")
        links: Any = _Links(self._nodes, name)
        self._nodes[name] = KeptAnswers(saves, room, links, ObjectSaves(self._store))  # type: ignore[arg-type]

    def _promised(self) -> int:
        """Return the newest step that the training was told of as saved, and that no loss has taken."""
        whole = [
            step
            for step, parts in self._acknowledged.items()
            if len(parts) == WORLD and all(nodes & set(self._nodes) for nodes in parts.values())
        ]
        return max([-1, *whole, *self._completed, *self._stored])

    def _kill(self, kind: str, work: Callable[[], Any]) -> None:
        self._left -= 1
        self.killed.append(kind)
        killed_at(self._rng.randrange(_MOST_CALLS), work)

    def _look(self, last: bool = False) -> None:
        """Look whether all that counts as complete is what was saved."""
        there = find_checkpoints(self._shared)
        for found in there:
            assert found.step is not None
            try:
                verify(found.path, 0, 1)
            except (OSError, ValueError) as error:
                self.wrong.append(f"{found.name}: {error}")
            for rank in range(WORLD):
                for name, data in content(found.step, rank).items():
                    if Path(found.path, name).read_bytes() != data:
                        self.wrong.append(f"{found.name}: {name} is not what was saved")
        stored = ObjectSaves(self._store).listed()
        for save, files in stored.items():
            if MANIFEST in files:
                sums = json.loads(Path(self._store, save, MANIFEST).read_bytes())["crc32"]
                if any(zlib.crc32(Path(self._store, save, name).read_bytes()) != one for name, one in sums.items()):
                    self.wrong.append(f"{save} in the store is not what was saved")
        if last:
            newest = max((found.step or 0 for found in there), default=-1)
            whole = [object_saves.step_of(save) for save, files in stored.items() if MANIFEST in files]
            if (newest, max(whole, default=-1)) != (LAST, LAST) or len(there) > KEEP or len(whole) > KEEP:
                self.wrong.append(f"in the end {[one.name for one in there]} were there, and {whole} in the store")

    def lose(self, kind: str, node: str) -> None:
        """Take what goes with what was killed."""
        if kind == "node":
            del self._nodes[node]
            shutil.rmtree(self._base / node, ignore_errors=True)
        elif kind == "shared":
            shutil.rmtree(self._shared, ignore_errors=True)
            self._completed.clear()


class _Attempt:
    """The ranks of one attempt and their writers."""

    def __init__(self, case: KilledTraining, begin: int) -> None:
        self._case, self._rng = case, case._rng
        self._places = list(case._nodes)[:WORLD]
        self._tiers, self._writers = [], []
        for node in self._places:
            tier = FirstTier({"tier": ["node", str(case._base / node), ()], "control": str(case._base), "node": node})
            tier._tier = SimpleNamespace(lacks=lambda size: "")  # type: ignore[assignment]
            tier._neighbour._links = _Links(case._nodes, node)  # type: ignore[assignment]
            self._tiers.append(tier)
            self._writers.append(writer.Writer(-1))
            self._writers[-1]._map = mmap.mmap(-1, HEADER_BYTES)
        told = {"run": RUN, "attempt": str(case._attempt), "epoch": case._attempt, "folder": str(case._shared)}
        self._place = CheckpointPlace.taken_over({**told, "token": f"t{case._attempt}", "saved": [], "goes_on": True})
        self._steps = list(range(begin, LAST + 1))
        self._keep: list[tuple[int, Callable[[], Any]]] = []
        self._drain: list[tuple[int, Callable[[], Any]]] = []
        self._store: list[tuple[int, Callable[[], Any]]] = []
        self._at: _Save | None = None
        self._draining: _Save | None = None
        self._drained: _Save | None = None
        self._parts: dict[tuple[int, int], KeptPart] = {}
        self._stored: _Save | None = None

    def train(self) -> bool:
        """Do one action after the other; return whether the training came to its end."""
        until = self._rng.randrange(60)
        while True:
            if not self._keep and self._steps:
                self._begin(self._steps.pop(0))
            if not self._keep and not self._steps:
                self._settle()
            chains = [chain for chain in (self._keep, self._drain, self._store) if chain]
            if not chains:
                return True
            chain = self._rng.choice(chains)
            rank, action = chain[0]
            if self._case._left and not until:
                self._killed(chain, rank, action)
                return False
            until = max(0, until - 1)
            action()
            chain.pop(0)

    def _killed(self, chain: list[Any], rank: int, action: Callable[[], Any]) -> None:
        kind = self._rng.choice([one for one in KINDS if one != "gather"])
        self._case._kill(kind, action)
        for other in (self._drain, self._store):  # writers outlive ranks, and other nodes
            while kind in ("writer", "rank") and other is not chain and other and self._rng.random() < 0.5:
                other.pop(0)[1]()
        self._case.lose(kind, self._places[rank])

    def _begin(self, step: int) -> None:
        drains = not self._drain
        self._at = save = _Save(step, self._place.fresh(f"step-{step:09d}"), drains, drains and not self._store)
        if drains:
            self._place.begin(save.partial)
        ranks = self._rng.sample(range(WORLD), WORLD)
        self._keep += [(rank, partial(self._kept, save, rank)) for rank in ranks]

    def _kept(self, save: _Save, rank: int) -> None:
        """What `Writer._kept_on_node` does."""
        files = {name: memoryview(data) for name, data in content(save.step, rank).items()}
        needed = [os.path.basename(one.partial).lstrip(".") for one in (self._draining,) if one is not None]
        what, place = (self._what(save), self._place.handed_over()) if rank == 0 else (None, None)
        name = os.path.basename(save.partial).lstrip(".")
        part, alone = self._tiers[rank].keep(name, rank, files, (list(what) if what else None, place), needed)
        nodes = {self._places[rank], *([] if alone else self._tiers[rank]._neighbour._links.others()[:1])}
        self._case._acknowledged.setdefault(save.step, {})[rank] = nodes
        self._parts[save.step, rank] = part
        if len(self._case._acknowledged[save.step]) == WORLD and save.drains:
            self._begin_drain(save)

    def _what(self, save: _Save) -> Completion:
        return Completion(f"step-{save.step:09d}", save.step, WORLD, "2", KEEP)

    def _begin_drain(self, save: _Save) -> None:
        self._draining = save
        files = [self._tiers[rank].mapped(self._parts[save.step, rank]) for rank in range(WORLD)]
        requests = [
            writer.WriteRequest(
                rank,
                save.partial,
                HEADER_BYTES,
                {},
                [],
                None,
                "off",
                list(self._what(save)) if rank == 0 else None,
                self._place.handed_over() if rank == 0 else None,
            )
            for rank in range(WORLD)
        ]
        ranks = self._rng.sample(range(WORLD), WORLD)
        self._drain += [(rank, partial(self._writers[rank]._written, requests[rank], files[rank])) for rank in ranks]
        self._drain.append((0, partial(self._complete, save, requests[0], files)))

    def _complete(self, save: _Save, request: writer.WriteRequest, files: list[dict[str, memoryview]]) -> None:
        path = self._writers[0]._completed(request)
        self._case._completed.add(save.step)
        self._drained, self._draining = save, None
        self._files, self._manifest = files, Path(path, MANIFEST).read_bytes()
        if save.stores:
            self._send(save)

    def _send(self, save: _Save) -> None:
        self._stored = save
        name, saves = ObjectSaves.name_of(save.partial), ObjectSaves(self._case._store)
        ranks = self._rng.sample(range(WORLD), WORLD)
        for rank in ranks:
            self._store.append((rank, partial(saves.put, name, self._files[rank], lambda data: [data])))
        self._store.append((0, partial(self._complete_there, saves, name, save, self._manifest)))

    def _complete_there(self, saves: ObjectSaves, name: str, save: _Save, manifest: bytes) -> None:
        saves.complete(name, manifest, self._what(save), lambda: False)
        self._case._stored.add(save.step)

    def _settle(self) -> None:
        """Have the newest save on shared storage, then in the store."""
        newest = self._at
        if newest is None or self._drain or self._store:
            return
        if self._drained is None or self._drained.step != newest.step:
            if not os.path.isdir(newest.partial):
                os.makedirs(newest.partial)
            self._begin_drain(newest)
        elif self._stored is None or self._stored.step != newest.step:
            self._send(newest)


def _simulate(base: Path, seed: int) -> KilledTraining:
    """Run one case in a new folder below `base`, which goes where nothing is wrong."""
    place = base / str(seed)
    place.mkdir(parents=True)
    case = KilledTraining(place, seed)
    try:
        case.run()
    except Exception as error:  # what ends it is wrong
        case.wrong.append(f"{type(error).__name__}: {error}")
    if not case.wrong:
        shutil.rmtree(place)
    return case


def campaign(base: Path, kills: int, seed: int, most_s: float) -> tuple[Counter[str], dict[int, list[str]], int]:
    """Run cases until so many kills or seconds have passed; return how many of each kind, what is wrong by seed, and cases."""
    kinds: Counter[str] = Counter()
    wrong: dict[int, list[str]] = {}
    began, cases = time.monotonic(), 0
    # Writers take no signals, and tell nobody. What nodes send on beside the next attempt has threads of its own, which no case could replay.
    with (
        mock.patch.object(signal, "signal"),
        mock.patch.object(writer, "_answer"),
        mock.patch.object(StoreCatchUp, "begin"),
    ):
        while sum(kinds.values()) < kills and time.monotonic() - began < most_s:
            case = _simulate(base, seed + cases)
            kinds.update(case.killed)
            cases += 1
            if case.wrong:
                wrong[seed + cases - 1] = case.wrong
    return kinds, wrong, cases
