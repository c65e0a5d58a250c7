"""The agent's side of sampling GPUs: whether there is something to sample, and the child that does it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable, Mapping, Sequence

from cordee.machine.gpus.model import Gpu, gpu_of
from cordee.machine.gpus.presence import gpu_device_file, gpu_variables
from cordee.machine.processes.module_command import module_argv
from cordee.machine.slots import SlotAllocator
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.runs.plan import RunSampling, RunStep
from cordee.telemetry.node.blocklog import FACTS, HEALTH, decode_json, encode_facts, encode_record, iter_records
from cordee.telemetry.node.recording_child import Kind, RecordingChild

_AUTO, _OFF = "auto", "none"
# A driver without persistence mode may take so long for the first call.
_FIRST_S = 90.0
_SILENT_S = 15.0


class GpuSampling:
    """Runs `cordee.telemetry.node.gpu_sampler` where there are GPUs and passes its records on.

    Args:
        watched: starts the child.
        node: the node's name.
        sampling, step: of plan.json: `interval_s` between samples; `gpus`: `auto` (only where the node shows GPUs), `none`,
            or a source by name; what the job's variables say of GPUs holds for the child too.
        node_zip: where the child finds this package.
        ranks: the file in which the agent says which ranks run.
        slots: learns what the driver tells of GPUs.
        add: takes whole records.
        health: told what the driver says of each GPU, which ranks are on it, and XIDs.
    """

    def __init__(
        self,
        watched: WatchedTasks,
        node: str,
        sampling: RunSampling,
        step: RunStep,
        node_zip: Path,
        ranks: Path,
        slots: SlotAllocator,
        add: Callable[[bytes], None],
        health: Callable[[Sequence[Gpu], Mapping[str, Sequence[int]], Sequence[tuple[str, int]]], None],
    ) -> None:
        self._node, self._slots, self._add, self._health = node, slots, add, health
        interval_s: float = sampling.interval_s
        self._env = {**os.environ, **gpu_variables(step.tasks.env)}
        self._source: str = sampling.gpus
        command = module_argv("cordee.telemetry.node.gpu_sampler", "--node", node)
        command += ["--interval", f"{interval_s:g}", "--ranks", str(ranks), "--source", self._source]
        command += ["--whole-node"] if step.request.scheduler.exclusive else []
        command += ["--health"] if sampling.hardware else []
        self._env.update(PYTHONPATH=str(node_zip), CORDEE_NODE=node)
        kind = Kind(
            name="gpu-sampler",
            again="the sampler of GPUs was started again",
            given_up="GPUs are not sampled any more: the sampler",
            hangs="a call into the driver hangs",
            silent_s=max(_SILENT_S, 5 * interval_s),
            first_s=_FIRST_S,
        )
        self._child = RecordingChild(watched, kind, command, self._env, self._pass_on, self._remark)

    def start(self) -> None:
        """Start the child, if the node shows GPUs or a source is asked for."""
        if self._source == _OFF:
            self._remark("GPUs were not sampled: the job says so ([sampling] gpus)")
        elif self._source != _AUTO or gpu_device_file("/", self._env):
            self._child.start()

    def _pass_on(self, records: bytes) -> None:
        kept = []
        for kind, body in iter_records(records):
            news = decode_json(body) if kind in (FACTS, HEALTH) else {}
            if kind == HEALTH:
                self._health([gpu_of(one) for one in news["gpus"]], news["ranks"], news["xids"])
                continue
            if news.get("group") == "gpu":
                self._slots.learn(news["devices"])
            kept.append(encode_record(kind, bytes(body)))
        self._add(b"".join(kept))

    def _remark(self, text: str) -> None:
        self._add(encode_facts(self._node, "gpu", time.time(), {}, {}, [text]))
