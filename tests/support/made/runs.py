"""Made runs: run folders as thousands of GPUs would leave them, written in seconds; for tests, demos and benchmarks.

Nothing in them was measured: the source of every metric is `synthetic`, and a remark among the facts says so.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.errors import UsageError
from cordee.machine.processes.module_command import module_argv
from cordee.runs.folder import RunFolder, new_run_id, write_atomically
from cordee.telemetry.node.blocklog import GRID, RECORD, BlockLogWriter, encode_events, encode_facts, encode_schema
from cordee.telemetry.node.catalogue import described
from support.made import signals
from support.made.journal import STEP_S, MadeJournal, loss, made_plan, step_at, write_output
from support.made.signals import MEMORY_BYTES, RankLayout, Story
from support.recordings.recording import H100, REMARK, SOURCE, gpu_uuid, made_rank

if TYPE_CHECKING:
    import numpy as np

_PIECE_S = 30
_SAVE_RANKS = 64
_LATEST_S = 1e6

Values = Callable[[Story, Sequence[str], int, int], "dict[str, np.ndarray]"]


def _default_metrics() -> dict[str, Sequence[str]]:
    return {"gpu": signals.GPU_METRICS, "node": signals.NODE_METRICS, "rank": signals.RANK_METRICS}


@dataclass(frozen=True)
class MadeRun:
    """A run that never ran.

    Attributes:
        gpus: how many, a multiple of `per_node`; one rank on each.
        seconds: how long its ranks ran, at one sample a second.
        metrics: by group (gpu, node, rank) those that are measured.
        started_at: when its ranks started, UTC epoch seconds; None: so that it ends now.
        node_name: a node's name, with `{}` for its number.
        placed: whether the ranks' coordinates are known.
    """

    gpus: int
    seconds: int
    per_node: int = 4
    name: str = "made"
    metrics: dict[str, Sequence[str]] = field(default_factory=_default_metrics)
    started_at: float | None = None
    node_name: str = "nid{:06d}"
    placed: bool = True

    def __post_init__(self) -> None:
        if self.gpus < self.per_node or self.gpus % self.per_node:
            raise UsageError(
                "a made run has whole nodes",
                given=f"{self.gpus} GPUs",
                allowed=f"a multiple of {self.per_node}, for instance 10752",
            )
        if self.seconds < 20:
            raise UsageError("a made run is too short", given=f"{self.seconds} s", allowed="20 s or more")

    @property
    def story(self) -> Story:
        """What happens in it."""
        return Story(RankLayout(self.gpus, self.per_node), self.seconds)

    @property
    def names(self) -> list[str]:
        """The nodes' names."""
        return [self.node_name.format(at) for at in range(self.gpus // self.per_node)]


def write_run(parent: str | os.PathLike[str], made: MadeRun, *, seal: bool = True) -> RunFolder:
    """Write a run that has ended below `parent` and return its folder.

    Args:
        seal: whether its telemetry is sealed; else it stays a block log.

    Raises:
        RunFolderError: the folder cannot be written.
    """
    writer = _Writer(parent, made)
    writer.begin()
    writer.write(0, made.seconds)
    writer.end(made.seconds)
    if seal:
        writer.seal()
    return writer.folder


def follow_run(parent: str | os.PathLike[str], made: MadeRun, for_s: float = float("inf")) -> Iterator[RunFolder]:
    """Write a run that began `made.seconds` ago and goes on in real time; yields its folder after every second written.

    Args:
        for_s: seconds to go on; then it ends well.

    Raises:
        RunFolderError: the folder cannot be written.
    """
    writer = _Writer(parent, made)
    writer.begin()
    second = made.seconds
    writer.write(0, second)
    yield writer.folder
    last = second + min(for_s, _LATEST_S)
    while second < last:
        due = writer.started_at + second
        time.sleep(max(0.0, due - time.time()))
        writer.write(second, second + 1)
        writer.seal_closed(second)
        second += 1
        yield writer.folder
    writer.end(second)
    writer.seal()
    yield writer.folder


class _Writer:
    """Writes one made run, some seconds of it at a time."""

    def __init__(self, parent: str | os.PathLike[str], made: MadeRun) -> None:
        self.made, self.story, self.names = made, made.story, made.names
        self.started_at = float(int(time.time())) - made.seconds if made.started_at is None else made.started_at
        self.folder = RunFolder.create(Path(parent), new_run_id(made.name))
        self._journal = MadeJournal(self.folder, self.story, self.started_at, self.names)
        self._log = BlockLogWriter(self.folder.telemetry, 1)
        self._groups: list[tuple[Values, Sequence[str], np.ndarray]] = []
        self._offset = 0
        self._sealer: subprocess.Popen[bytes] | None = None
        self._sealed_part = self._log.path

    def begin(self) -> None:
        """Write the plan, what happened before the ranks started, schemas and facts."""
        plan = made_plan(self.folder, self.made.name, self.story)
        write_atomically(self.folder.plan, plan.model_dump_json().replace('"schema_"', '"schema"'))
        self._journal.begin()
        for at, name in enumerate(self.names):
            for group, facts in self._facts(at, name).items():
                if group in self.made.metrics or group == "rank":  # ranks are told of, measured or not
                    self._log.append(encode_facts(name, group, self.started_at, facts, {}, [REMARK]))
        per_node = self.made.per_node
        uuids = [[gpu_uuid(node, at) for at in range(per_node)] for node in range(len(self.names))]
        ranks = [list(range(node * per_node, (node + 1) * per_node)) for node in range(len(self.names))]
        self._group("gpu", signals.gpu_values, uuids)
        self._group("node", signals.node_values, [[name] for name in self.names])
        self._group("rank", signals.rank_values, ranks)

    def write(self, first: int, stop: int) -> None:
        """Write the seconds [first, stop)."""
        for begin in range(first, stop, _PIECE_S):
            count = min(_PIECE_S, stop - begin)
            tables = [(values(self.story, names, begin, count), rows) for values, names, rows in self._groups]
            for at in range(count):
                for values_of, rows in tables:
                    self._log.append(self._records(values_of, rows, begin + at, at))
            self._log.flush()
            self._log_events(begin, begin + count)
            self._journal.until(begin, begin + count)
        self._log.flush()
        if first == 0:
            write_output(self.folder, self.story, self.names, self.started_at, stop)

    def end(self, seconds: int) -> None:
        """Close the log and say that the run ended."""
        self._log.close()
        self._journal.end(seconds)

    def seal(self) -> None:
        """Seal all of it and drop the block log, as a supervisor does at the end."""
        from cordee.telemetry.store.seal import drop_sealed_parts, seal

        if self._sealer is not None:
            self._sealer.wait()
        until = seal(self.folder.root, final=True)
        if until is not None:
            self._journal.sealed(until, until - self.started_at)
            drop_sealed_parts(self.folder.root)

    def seal_closed(self, second: int) -> None:
        """Have a child seal the parts that are closed, whenever another one was."""
        if self._sealer is not None and self._sealer.poll() is None:
            return
        if self._log.path != self._sealed_part:
            self._sealed_part = self._log.path
            argv = module_argv("cordee.telemetry.store.seal", str(self.folder.root), user_site=True)
            self._sealer = subprocess.Popen(argv, stdout=subprocess.DEVNULL)

    def _group(self, group: str, values: Values, devices: list[list[Any]]) -> None:
        """Write the schemas of a group and remember what its samples look like: one record for each node."""
        import numpy as np

        names = self.made.metrics.get(group, ())
        if not names:
            return
        metrics: list[dict[str, Any]] = [dict(described(name, SOURCE)) for name in names]
        shape = (len(devices[0]), len(names))
        kind = [("length", "<u4"), ("kind", "u1"), ("schema", "<u4"), ("time", "<f8"), ("values", "<f4", shape)]
        rows = np.zeros(len(devices), dtype=kind)
        rows["length"], rows["kind"] = rows.dtype.itemsize - RECORD.size, GRID
        for at, (node, of_node) in enumerate(zip(self.names, devices, strict=True)):
            rows["schema"][at], record = encode_schema(node, group, 1.0, of_node, metrics)
            self._log.append(record)
        self._groups.append((values, names, rows))

    def _records(self, values: dict[str, np.ndarray], rows: np.ndarray, second: int, at: int) -> bytes:
        import numpy as np

        for column, of_metric in enumerate(values.values()):
            rows["values"][:, :, column] = of_metric[at].reshape(len(rows), -1)
        rows["time"] = self.started_at + second
        if signals.silent(self.story, second):
            return np.delete(rows, self.story.silent_node).tobytes()
        return rows.tobytes()

    def _facts(self, at: int, name: str) -> dict[str, dict[str, dict[str, Any]]]:
        per_node, layout = self.made.per_node, self.story.layout
        gpus, ranks = {}, {}
        for local in range(per_node):
            rank, uuid = at * per_node + local, gpu_uuid(at, local)
            known = {"model": H100, "index": local, "parent": "", "share": 1.0, "memory_bytes": MEMORY_BYTES}
            gpus[uuid] = {**known, "ranks": [rank], "shared": "", "numa": local}
            about = {**made_rank(at, local, rank, [uuid], 72), "node": name}
            if self.made.placed:
                about.update(place=layout.place(rank), sizes=layout.sizes, place_attempt=1, place_source="call")
            ranks[str(rank)] = about
        return {"gpu": gpus, "node": {name: {"cpus": 288}}, "rank": ranks}

    def _log_events(self, first: int, stop: int) -> None:
        """Write what rank 0 logs at every step, and what the ranks that save say of each save."""
        story = self.story
        steps: list[tuple[int, float, int | None, dict[str, float]]] = []
        for second in range(first, stop):
            at = step_at(story, second)
            if second + 1 == story.back_at or step_at(story, second + 1) <= at:
                continue
            speed = 4_194_304 * self.made.gpus / 1024 / STEP_S
            logged = {"loss": loss(at), "tokens_per_s": speed}
            steps.append((self._offset + len(steps), self.started_at + second + 1, at, logged))
        attempt = 1 if first < story.back_at else 2
        self._offset += len(steps)
        for event in steps:
            attempt = 1 if event[1] - self.started_at < story.back_at else 2
            self._log.append(encode_events(self.names[0], 0, attempt, 0, [event]))
        for at in story.checkpoints(stop):
            if first <= at < stop:
                self._log_save(at)

    def _log_save(self, second: int) -> None:
        for rank in range(0, min(self.made.gpus, _SAVE_RANKS)):
            took = 5.0 + (rank * 7919 % 97) / 97
            said = {"cordee/checkpoint_seconds": took, "cordee/checkpoint_bytes": 3.2e9}
            event = (1_000_000 + second, self.started_at + second - 6 + took, step_at(self.story, second), said)
            attempt = 1 if second < self.story.back_at else 2
            self._log.append(encode_events(self.names[rank // self.made.per_node], rank, attempt, 0, [event]))
