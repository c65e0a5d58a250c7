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
from typing import Any, Callable

from cordee.errors import CordeeError
from cordee.node.rank_facts import read_ranks
from cordee.node.samplers._base import Sampler
from cordee.node.samplers.told import ToldFacts
from cordee.runs.blocklog import encode_grid, encode_schema

NOTHING_TO_SAMPLE = 3


class GpuSampler:
    """Takes samples of a source's GPUs and writes them with their schemas and facts.

    Args:
        node: the node's name.
        interval_s: seconds between samples.
        source: a probed source.
        refused: why the sources before it were not taken.
        write: takes records.
    """

    def __init__(
        self, node: str, interval_s: float, source: Any, refused: dict[str, str], write: Callable[[bytes], None]
    ) -> None:
        self._node, self._interval_s, self._source, self._write = node, interval_s, source, write
        self._remarks = [f"{name} was not used: {reason}" for name, reason in refused.items()]
        self._told = ToldFacts(node, "gpu")
        self._schema = (0, b"")

    def sample(self) -> None:
        """Take one sample and write it."""
        source: Sampler = self._source
        moment = time.time()
        values = source.sample()
        records = []
        schema = encode_schema(self._node, "gpu", self._interval_s, source.devices(), source.metrics(), None)
        if schema != self._schema:
            self._schema = schema
            records.append(schema[1])
        records.append(encode_grid(schema[0], moment, values))
        more = {str(device): {"source": self._source.name} for device in source.devices()}
        remarks = [*self._remarks, *self._source.remarks]
        records.append(self._told.news(source, moment, more, remarks))
        self._write(b"".join(records))


def main() -> int:
    """Run it: `python -s -m cordee.node.gpu_sampler --node NAME --interval S --ranks FILE [--source NAME]`."""
    parser = argparse.ArgumentParser(prog="cordee.node.gpu_sampler")
    parser.add_argument("--node", required=True)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--source", default="auto")
    parser.add_argument("--ranks", type=Path, required=True, help="the file in which the agent says which ranks run")
    options = parser.parse_args()
    from cordee.node.samplers.gpu import open_gpus

    def pids() -> list[int]:
        return [about["pid"] for about in read_ranks(options.ranks).values()]

    try:
        source, refused = open_gpus(options.node, None, options.source, options.interval, pids)
    except CordeeError as error:
        source, refused = None, {options.source: str(error)}
    if source is None:
        why = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        _write(ToldFacts(options.node, "gpu").changed({}, {}, time.time(), [f"GPUs were not sampled: {why}"]))
        return NOTHING_TO_SAMPLE
    sampler = GpuSampler(options.node, options.interval, source, refused, _write)
    while True:
        sampler.sample()
        time.sleep(options.interval - time.time() % options.interval)


def _write(records: bytes) -> None:
    view = memoryview(records)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    sys.exit(main())
