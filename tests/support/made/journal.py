"""The journal, the plan and the output of a made run: what a supervisor and its agents would have written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from cordee.core.backends import HERE
from cordee.core.findings import Finding
from cordee.core.registry import System, built_in, node_parts
from cordee.core.units import utc_text
from cordee.job.plan.model import (
    CheckpointPolicy,
    Plan,
    Request,
    RestartPolicy,
    Sampling,
    Scheduler,
    SegmentPolicy,
    Step,
    Tasks,
    Timeouts,
    VetPolicy,
)
from cordee.runs.folder import RunFolder
from cordee.runs.journal import SCHEMA
from cordee.runs.logframes import ERR, OUT, encode_frame
from support.made.signals import Story

STEP_S = 2.0
TOTAL_STEPS = 100_000
_BEFORE_S = 40.0

Happening = tuple[float, str, dict[str, Any]]


class MadeJournal:
    """Appends the events of a made run, each at the time at which it is said to have happened.

    Args:
        folder: the run's folder.
        started_at: when the ranks started, UTC epoch seconds.
        names: of the nodes.
    """

    def __init__(self, folder: RunFolder, story: Story, started_at: float, names: Sequence[str]) -> None:
        self._folder, self._story, self._started_at, self._names = folder, story, started_at, names
        self._sequence = 0

    def begin(self) -> None:
        """Write what happened before the ranks started."""
        submitted = {"backend": HERE, "nodes": len(self._names), "ranks": self._story.layout.gpus}
        self._write("client", 0, [(-2 * _BEFORE_S, "submitted", submitted)])
        self._sequence = 0
        self.add(list(self._before()))

    def until(self, first: int, stop: int) -> None:
        """Write what happened in the seconds [first, stop) after the ranks started."""
        story, last = self._story, max(stop - 1, 0)
        happened: list[Happening] = []
        if first <= story.failed_at < stop:
            happened += self._failure()
        if first <= story.back_at < stop:
            happened += self._attempt(2, story.back_at)
        for at in story.checkpoints(stop):
            if first <= at < stop:
                happened.append((at, "checkpoint_seen", {"name": checkpoint(story, at), "step": step_at(story, at)}))
        happened.append((last, "progress", {"step": step_at(story, last), "total": TOTAL_STEPS}))
        self.add(happened)

    def end(self, seconds: int) -> None:
        """Write that the run ended well."""
        words = {"state": "finished", "exit_code": 0, "reason": "finished", "text": "all ranks exited with code 0"}
        done = {"attempt": 2, "outcome": "finished", "reason": "", "progress": True, "failure": None}
        reached = {"step": step_at(self._story, seconds), "total": step_at(self._story, seconds)}
        self.add([(seconds, "progress", reached), (seconds, "attempt_ended", done), (seconds, "ended", words)])

    def sealed(self, until: float, second: float) -> None:
        """Write until when the telemetry is sealed."""
        self.add([(second, "sealed", {"until": until})])

    def add(self, happened: Sequence[Happening]) -> None:
        """Write events (seconds after the ranks started, event, fields) of the supervisor, in their order."""
        self._write("supervisor-1", 1, sorted(happened, key=lambda event: event[0]))

    def _write(self, writer: str, epoch: int, happened: Sequence[Happening]) -> None:
        lines = []
        for after, event, fields in happened:
            at = self._started_at + after
            mono = round(1000 + 2 * _BEFORE_S + after, 4)
            place = {"schema": SCHEMA, "epoch": epoch, "seq": self._sequence, "writer": writer}
            lines.append(json.dumps({**place, "time": utc_text(at), "mono": mono, "event": event, **fields}) + "\n")
            self._sequence += 1
        with open(self._folder.journal / f"{writer}.jsonl", "a", encoding="utf-8") as file:
            file.writelines(lines)

    def _before(self) -> Iterator[Happening]:
        begin = {"pid": 4711, "start_ticks": 1, "host": self._names[0], "boot": "made", "segment": 1}
        yield -_BEFORE_S, "supervisor_started", {**begin, "checkpoint": None}
        for name in self._names:
            agent = {"node": name, "incarnation": 1, "host": name, "pid": 100, "start_ticks": 1}
            yield -_BEFORE_S + 4, "node_connected", {**agent, "cores": 72, "python": "3.11.7"}
        yield -_BEFORE_S + 5, "vetting_started", {"nodes": list(self._names)}
        for at, name in enumerate(self._names):
            yield -10, "node_verdict", {"node": name, "verdict": "healthy", "results": [_vetted(at)]}
        nodes = [{"node": name, "verdict": "healthy"} for name in self._names]
        words = {"verdict": "continue", "exclude": [], "reason": f"all {len(nodes)} nodes take part", "nodes": nodes}
        place = {"schema": "cordee.vetting/1", "protocol": "host", "digest": "", "run": self._folder.id, "job": None}
        document = {**place, "cluster": HERE, "user": "made", "at": utc_text(self._started_at - 10), "seconds": 20.0}
        nothing: dict[str, list[str]] = {"unavailable": [], "confused": [], "pairs": [], "links": []}
        yield -9, "vetting_verdict", {"document": {**document, **words, **nothing}}
        yield -8, "nodes_chosen", {"nodes": list(self._names), "spares": [], "excluded": []}
        yield from self._attempt(1, 0)

    def _attempt(self, number: int, second: int) -> Iterator[Happening]:
        per_node, before = self._story.layout.per_node, self._story.checkpoints(second)
        saved = before[-1] if before else None
        yield (
            second - 1,
            "attempt_started",
            {
                "attempt": number,
                "world_size": self._story.layout.gpus,
                "nodes": [
                    {"node": name, "ranks": list(range(at * per_node, (at + 1) * per_node))}
                    for at, name in enumerate(self._names)
                ],
                "master": {"address": "127.0.0.1", "port": 29500},
                "checkpoint": None if saved is None else checkpoint(self._story, saved),
                "resume_step": None if saved is None else step_at(self._story, saved),
            },
        )
        for rank in range(self._story.layout.gpus):
            place = {"attempt": number, "rank": rank, "node": self._names[rank // per_node], "pid": 40_000 + rank}
            yield second, "rank_started", place

    def _failure(self) -> list[Happening]:
        story, rank = self._story, self._story.dead_rank
        node = self._names[story.layout.node_of(rank)]
        exited = {"attempt": 1, "rank": rank, "node": node, "code": None, "signal": "SIGKILL", "reason": "killed"}
        text = f"rank {rank} on {node} was killed by SIGKILL"
        failure = {"rank": rank, "node": node, "code": None, "signal": "SIGKILL", "text": text}
        ended = {"attempt": 1, "outcome": "failed", "reason": text, "progress": True, "failure": failure}
        words = f"rank {rank} on {node} was killed by SIGKILL: the kernel's out-of-memory killer is the usual cause"
        finding = Finding(words, "warn", "rank-killed", given=node, next=f"look at the memory of {node}")
        return [
            (story.failed_at, "rank_exited", {**exited, "message": None, "seconds": float(story.failed_at)}),
            (story.failed_at + 1, "attempt_ended", ended),
            (story.failed_at + 1, "finding", {"finding": finding.document()}),
        ]


def step_at(story: Story, second: float) -> int:
    """Return the step of training at a second; after the restart it goes on from the newest checkpoint."""
    if second < story.back_at:
        return int(story.trained(min(second, story.failed_at)) / STEP_S)
    before = story.checkpoints(story.failed_at)
    kept = int(story.trained(before[-1]) / STEP_S) if before else 0
    return kept + int((story.trained(second) - story.trained(story.back_at)) / STEP_S)


def checkpoint(story: Story, second: int) -> str:
    """Return the name of the checkpoint saved at a second."""
    return f"step-{step_at(story, second):09d}"


def write_output(folder: RunFolder, story: Story, names: Sequence[str], started_at: float, seconds: int) -> None:
    """Write what some ranks printed: rank 0, and those of the nodes that have trouble."""
    layout = story.layout
    told = {0, story.dead_rank, story.stalled_rank, story.slow_node * layout.per_node}
    frames: dict[int, list[bytes]] = {}
    for rank in sorted(told):
        lines = frames.setdefault(layout.node_of(rank), [])
        for second in range(0, seconds, 2 if rank == 0 else 10):
            attempt = 1 if second < story.back_at else 2
            words = f"step {step_at(story, second)} loss {loss(step_at(story, second)):.4f} rank {rank}\n"
            lines.append(encode_frame(rank, OUT, attempt, words.encode(), started_at + second))
            if rank == story.stalled_rank and second == story.stall[0] // 10 * 10:
                slow = b"W NCCL: collective of process group tp has waited for 10 s\n"
                lines.append(encode_frame(rank, ERR, attempt, slow, started_at + second + 1))
    for node, lines in frames.items():
        (folder.logs / f"{names[node]}-1.log").write_bytes(b"".join(lines))


def loss(step: int) -> float:
    """Return a loss that falls with the steps."""
    return float(1.9 + 9.1 / (1 + step / 25) ** 0.6)


def made_plan(folder: RunFolder, name: str, story: Story) -> Plan:
    """Return a plan for one rank on each GPU."""
    layout = story.layout
    request = Request(
        nodes=layout.nodes, spare_nodes=0, min_nodes=layout.nodes, gpus_per_node=layout.per_node,
        ranks_per_node=layout.per_node, cpus_per_rank=72, memory_bytes=None, time_s=None, gpu=None, scheduler=Scheduler(),
    )  # fmt: skip
    argv: tuple[str, ...] = ("python", "train.py", "--tensor-model-parallel-size", str(layout.sizes["tp"]))
    argv += ("--pipeline-model-parallel-size", str(layout.sizes["pp"]), "--made-up")
    step = Step(
        name="main",
        request=request,
        tasks=Tasks(argv=argv, env={}, path_prepend=(), launch="fork", setup=()),
        vet=VetPolicy(
            commands=(), modules=(), min_memory_bytes=1 << 28, min_disk_bytes=1 << 28, max_load_ratio=None, deadline_s=30.0
        ),
        checkpoint=CheckpointPolicy(
            path=str(folder.root / "checkpoints"), pattern="step-*", resume=None, signal=None, every_s=None,
            grace_s=120.0, ignore={}, declared=False,
        ),
        restart=RestartPolicy(retries=3, backoff_s=1.0),
        segment=SegmentPolicy(limit_s=None, grace_s=120.0, max_segments=1),
    )  # fmt: skip
    return Plan(
        run=folder.id, name=name, backend=HERE, cluster=HERE, job_folder=str(folder.root), workdir=str(folder.root),
        folder=str(folder.root), code_digest="", steps=(step,), node_parts=node_parts(_of_ranks()), sampling=Sampling(interval_s=1.0),
        timeouts=Timeouts(connect_s=30.0, heartbeat_s=1.0, lost_s=20.0, orphan_s=60.0, kill_s=10.0, lease_s=8.0),
    )  # fmt: skip


def _vetted(node: int) -> dict[str, Any]:
    value = 730.0 + node % 17
    said = {"check": "gpu.gemm", "status": "pass", "value": value, "unit": "TFLOP/s", "threshold": 600.0}
    more = {"evidence": f"slowest of 4 GPUs: {value} TFLOP/s (made up)", "seconds": 6.0, "version": 1, "required": True}
    return {
        **said,
        **more,
        "name": "gpu.gemm",
        "cause": None,
        "reference": None,
        "facts": {},
        "compare": [],
        "rule": None,
    }


def _of_ranks() -> list[System]:
    """Return the systems that a job of ranks may be about: those that put something else into the place of ranks are not."""
    return [system for system in built_in() if not any(port.startswith("launch/") for port in system.node_parts)]
