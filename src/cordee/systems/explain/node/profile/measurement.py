"""The process that has ranks of a node profiled: `python -m`, its order on standard input, files on standard output.

Beside the files it tells how far each rank is, as JSON by the name `state-RANK`, whenever that changes.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, BinaryIO, Iterator, Sequence

from cordee.systems.explain.node.parts import write_end, write_file, write_parts
from cordee.systems.explain.node.profile.rank_profile import READY, RankProfile
from cordee.systems.explain.node.profile.tools import ToolProfile
from cordee.systems.explain.node.profile.torch_trace import TorchTrace

_RESERVE_S = 2.0
_POLL_S = 0.1
_NODE_BYTES = 512 << 20


class NodeProfile:
    """All wanted ranks of a node, at the same time, until the time is up; each is told as soon as it is there.

    Args:
        order: what the agent asks for.
        out: where files are written.
    """

    def __init__(self, order: dict[str, Any], out: BinaryIO) -> None:
        self._out, self._node, self._left = out, order["node"], _NODE_BYTES
        self._until = order["asked_at"] + max(1.0, order["deadline_s"] - _RESERVE_S)
        made = TorchTrace if order["tool"] == "torch" else ToolProfile
        self._ranks = [made(about, order) for about in order["ranks"] if about["rank"] in order["wanted"]]
        self._told: dict[int, Any] = {}

    def run(self) -> None:
        """Do it."""
        going: Sequence[RankProfile] = self._ranks
        while going:
            for one in going:
                one.look()
                if not one.over and time.monotonic() > self._until:
                    one.fail("it took longer than was given: give more with --wait")
                self._tell(one)
            going = [one for one in going if not one.over]
            time.sleep(_POLL_S)
        write_end(self._out, "")

    def _tell(self, one: RankProfile) -> None:
        if one.state == READY:
            try:
                write_parts(self._out, one.name, self._bounded(one.content()))
            except OSError as error:
                one.fail(f"what was recorded cannot be read: {error.strerror or error}")
        if one.over:
            one.close()
        told = {"rank": one.rank, "node": self._node, "state": one.state, "text": one.text, **one.known}
        if self._told.get(one.rank) != told:
            self._told[one.rank] = told
            write_file(self._out, f"state-{one.rank}", json.dumps(told).encode())

    def _bounded(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            self._left -= len(part)
            if self._left < 0:
                raise OSError(f"ranks of this node have recorded more than {_NODE_BYTES >> 20} MiB")
            yield part


if __name__ == "__main__":
    NodeProfile(json.load(sys.stdin), sys.stdout.buffer).run()
