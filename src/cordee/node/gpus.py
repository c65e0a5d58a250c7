"""The agent's side of sampling GPUs: a child that is watched, started again when it dies, and given up in the end."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

from cordee.hardware.presence import gpu_device_file, gpu_variables
from cordee.node.launching import LaunchHost
from cordee.node.tasks import STDERR, Task, TaskExit
from cordee.runs.blocklog import encode_facts

_AUTO, _OFF = "auto", "none"
_NOTHING_TO_SAMPLE = 3  # see gpu_sampler
_GROUP = "gpu-sampler"
_PAUSES_S = (1.0, 5.0, 30.0, 60.0)
_LASTED_S = 600.0
# A driver without persistence mode may take so long for the first call.
_FIRST_S = 90.0
_SILENT_S = 15.0
_HEADER = struct.Struct("<IB")
_MOST_RECORD_BYTES = 16 << 20


class GpuSampling:
    """Runs `cordee.node.gpu_sampler` where there are GPUs and passes its records on.

    Args:
        host: the agent, whose Task the child is.
        node: the node's name.
        sampling, step: of plan.json: `interval_s` between samples; `gpus`: `auto` (only where the node shows GPUs), `none`,
            or a source by name; what the job's variables say of GPUs holds for the child too.
        node_zip: where the child finds this package.
        ranks: the file in which the agent says which ranks run.
        add: takes whole records.
    """

    def __init__(
        self,
        host: LaunchHost,
        node: str,
        sampling: Mapping[str, Any],
        step: Mapping[str, Any],
        node_zip: Path,
        ranks: Path,
        add: Callable[[bytes], None],
    ) -> None:
        self._host, self._node, self._add = host, node, add
        self._interval_s: float = sampling["interval_s"]
        self._env = {**os.environ, **gpu_variables(step["tasks"]["env"])}
        self._source: str = sampling["gpus"]
        self._command = [sys.executable, "-s", "-m", "cordee.node.gpu_sampler", "--node", node]
        self._command += ["--interval", f"{self._interval_s:g}", "--ranks", str(ranks), "--source", self._source]
        self._command += ["--whole-node"] if step["request"]["scheduler"]["exclusive"] else []
        self._env.update(PYTHONPATH=str(node_zip), CORDEE_NODE=node)
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._said = b""
        self._began = self._heard = 0.0
        self._starts = self._deaths = 0
        self._watch: Optional[asyncio.TimerHandle] = None
        self._over = ""

    def start(self) -> None:
        """Start the child, if the node shows GPUs or a source is asked for."""
        if self._source == _OFF:
            self._remark("GPUs were not sampled: the job says so ([sampling] gpus)")
        elif self._source != _AUTO or gpu_device_file("/", self._env):
            self._start()

    def _start(self) -> None:
        self._starts += 1
        self._buffer, self._said, self._over = b"", b"", ""
        self._began = time.monotonic()
        self._heard = 0.0
        task = Task(f"{_GROUP}-{self._starts}", tuple(self._command), self._env, "/", group=_GROUP)
        self._host.run_task(task, self._ended, output=self._output)
        self._watch = self._loop.call_later(_SILENT_S, self._look)

    def _look(self) -> None:
        """Kill a child that has been silent for too long: a call into the driver hangs."""
        if self._host.tasks.output_paused:
            self._heard = time.monotonic()
        silent_s = time.monotonic() - (self._heard or self._began)
        if silent_s > (max(_SILENT_S, 5 * self._interval_s) if self._heard else _FIRST_S):
            self._over = f"it was silent for {silent_s:.0f} s: a call into the driver hangs"
            self._host.tasks.stop(_GROUP, 0.0)
            return
        self._watch = self._loop.call_later(_SILENT_S, self._look)

    def _output(self, stream: int, data: bytes) -> None:
        if stream == STDERR:
            self._said = (self._said + data)[-2000:]
            return
        self._heard = time.monotonic()
        self._buffer += data
        whole = _whole(self._buffer)
        if whole < 0:
            self._over = "it wrote what is no record"
            self._buffer = b""
            self._host.tasks.stop(_GROUP, 0.0)
            return
        self._add(self._buffer[:whole])
        self._buffer = self._buffer[whole:]

    def _ended(self, ended: TaskExit) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if ended.code == _NOTHING_TO_SAMPLE:
            return
        words = self._said.decode(errors="replace").strip().splitlines()[-1:]
        why = self._over or " ".join([_how(ended), *words])
        if time.monotonic() - self._began > _LASTED_S:
            self._deaths = 0
        self._deaths += 1
        if self._deaths > len(_PAUSES_S) or ended.reason in ("stuck", "not_started"):
            self._remark(f"GPUs are not sampled any more: the sampler ended {self._deaths} times, the last time: {why}")
            return
        self._remark(f"the sampler of GPUs was started again: {why}")
        self._loop.call_later(_PAUSES_S[self._deaths - 1], self._start)

    def _remark(self, text: str) -> None:
        self._add(encode_facts(self._node, "gpu", time.time(), {}, {}, [text]))


def _whole(data: bytes) -> int:
    """Return how many bytes of the beginning are whole records; -1: this is no record."""
    at = 0
    while len(data) - at >= _HEADER.size:
        length, kind = _HEADER.unpack_from(data, at)
        if length > _MOST_RECORD_BYTES or not 1 <= kind <= 4:
            return -1
        if len(data) - at - _HEADER.size < length:
            break
        at += _HEADER.size + length
    return at


def _how(ended: TaskExit) -> str:
    how: Any = ended.signal or f"exit code {ended.code}"
    return f"{ended.text or how}"
