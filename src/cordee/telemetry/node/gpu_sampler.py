"""Samples a node's GPUs for its agent, in a process of its own: a call into a driver that hangs holds up nothing else.

It writes records of the block log to standard output until it is killed. Exit code 3: there is nothing to sample, and a
remark has said why.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

from cordee.core.errors import CordeeError
from cordee.machine.gpus.model import GpusUnreadable
from cordee.machine.gpus.presence import gpu_variables
from cordee.telemetry.node.blocklog import encode_grid, encode_schema
from cordee.telemetry.node.gpu_health import GpuHealth
from cordee.telemetry.node.ranks_file import read_ranks
from cordee.telemetry.node.samplers.device_facts import DeviceFacts
from cordee.telemetry.node.samplers.gpu import AUTO, REPLAY, GpuMetricSource, open_gpus
from cordee.telemetry.node.samplers.gpu.attribution import GpuView, look, of_job, of_rank

NOTHING_TO_SAMPLE = 3
_FACTS_EVERY_S = 10.0


class GpuSampler:
    """Takes samples of a source's GPUs and writes them with their schemas, their facts, and whose they are.

    Args:
        node: the node's name.
        interval_s: seconds between samples.
        source: a probed source.
        view: what this process may open; None: only the source knows its GPUs.
        ranks: returns pid and variables of each rank that runs.
        remarks: sentences that belong to the samples.
        write: takes records.

    Attributes:
        ranks_on: which ranks are on each GPU, by UUID, as far as it is known.
    """

    def __init__(
        self,
        node: str,
        interval_s: float,
        source: GpuMetricSource,
        view: Optional[GpuView],
        ranks: Callable[[], Mapping[int, Mapping[str, Any]]],
        remarks: Sequence[str],
        write: Callable[[bytes], None],
    ) -> None:
        self._node, self._interval_s, self._source, self._view = node, interval_s, source, view
        self._ranks, self._remarks, self._write = ranks, list(remarks), write
        self._told = {group: DeviceFacts(node, group) for group in ("gpu", "rank")}
        self._schema = (0, b"")
        self._facts_due = 0.0
        self._last_ranks: Mapping[int, Mapping[str, Any]] = {}
        self.ranks_on: dict[str, list[int]] = {}

    def sample(self) -> None:
        """Take one sample and write it."""
        moment = time.time()
        values = self._source.sample()
        records = []
        schema = encode_schema(
            self._node, "gpu", self._interval_s, self._source.devices(), self._source.metrics(), None
        )
        ranks = self._ranks()
        due = schema != self._schema or ranks != self._last_ranks or time.monotonic() >= self._facts_due
        if schema != self._schema:
            self._schema = schema
            records.append(schema[1])
        records.append(encode_grid(schema[0], moment, values))
        gpus: dict[str, dict[str, Any]] = {}
        if due:
            self._last_ranks, self._facts_due = ranks, time.monotonic() + _FACTS_EVERY_S
            gpus = {device: {**about, "source": self._source.name} for device, about in self._source.facts().items()}
            records.append(self._told["rank"].changed(self._attribute(gpus), {}, moment))
            self.ranks_on = {device: about["ranks"] for device, about in gpus.items() if about.get("ranks")}
        remarks = [*self._remarks, *self._source.remarks]
        records.append(self._told["gpu"].changed(gpus, self._source.missing, moment, remarks))
        self._write(b"".join(records))

    def _attribute(self, gpus: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return facts of the ranks; into those of the GPUs goes whose they are.

        What a rank's variables and the control group tell comes first, then which processes hold a GPU's memory.
        """
        told: dict[str, dict[str, Any]] = {}
        for rank, about in self._last_ranks.items():
            devices, how = None, "nothing tells"
            if self._view is not None:
                devices, how = of_rank(about["env"], self._view, len(self._last_ranks), about["pid"])
            if devices is None:
                holds = [device for device, known in gpus.items() if rank in known.get("ranks", ())]
                devices, how = (holds, "it holds their memory") if holds else (None, how)
            else:
                for device in devices:
                    if device in gpus:
                        gpus[device]["ranks"] = sorted({*gpus[device].get("ranks", ()), rank})
            told[str(rank)] = {"gpus": devices, "gpus_known_by": how}
        return told


def main() -> int:
    """Run it: `python -s -m cordee.telemetry.node.gpu_sampler --node NAME --interval S --ranks FILE [--source NAME] [--whole-node] [--health]`."""
    parser = argparse.ArgumentParser(prog="cordee.telemetry.node.gpu_sampler")
    parser.add_argument("--node", required=True)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--source", default=AUTO)
    parser.add_argument("--ranks", type=Path, required=True, help="the file in which the agent says which ranks run")
    parser.add_argument("--whole-node", action="store_true", help="all GPUs of the node are the job's")
    parser.add_argument("--health", action="store_true", help="tell the agent what the driver says of faults")
    options = parser.parse_args()
    # What a driver's library prints must not come between the records.
    records = os.dup(1)
    os.dup2(2, 1)

    def write(data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(records, rest) :]

    def ranks() -> dict[int, dict[str, Any]]:
        return read_ranks(options.ranks)

    def pids() -> dict[int, int]:
        return {rank: about["pid"] for rank, about in ranks().items()}

    view, wanted, why = _wanted(options.source, options.whole_node)
    source, refused = None, {options.source: why}
    if not why:
        try:
            source, refused = open_gpus(options.node, wanted, options.source, options.interval, pids)
        except CordeeError as error:
            refused = {options.source: str(error)}
    if source is None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        write(DeviceFacts(options.node, "gpu").changed({}, {}, time.time(), [f"GPUs were not sampled: {reasons}"]))
        return NOTHING_TO_SAMPLE
    remarks = [f"{name} was not used: {reason}" for name, reason in refused.items()]
    remarks += view.remarks if view is not None else ()
    sampler = GpuSampler(options.node, options.interval, source, view, ranks, remarks, write)
    health = _health(wanted, options.interval) if options.health and not options.source.startswith(REPLAY) else None
    while True:
        sampler.sample()
        if health is not None:
            write(health.record(sampler.ranks_on))
        time.sleep(options.interval - time.time() % options.interval)


def _health(wanted: Optional[list[str]], interval_s: float) -> Optional[GpuHealth]:
    try:
        return GpuHealth(wanted, interval_s)
    except GpusUnreadable:  # of no library that tells faults: samples go on
        return None


def _wanted(source: str, whole_node: bool) -> tuple[Optional[GpuView], Optional[list[str]], str]:
    """Return what this process may open, the UUIDs of the job's GPUs (None: all that the source shows), or why not."""
    if source.startswith(REPLAY):
        return None, None, ""
    view, _ = look()
    if view is None:
        return None, None, ""  # no NVML: what other sources show is what this process may open
    devices, reason = of_job([gpu_variables(os.environ)], view)
    if devices is None and not whole_node:
        text = f"it is not known which GPUs are this job's: {reason}"
        return view, None, f"{text}; gpus_per_node, whole nodes, or UUIDs in CUDA_VISIBLE_DEVICES of [env] would tell"
    return view, devices, ""


if __name__ == "__main__":
    sys.exit(main())
