"""`python -m cordee.systems.checkpoints.node.tiers.keeper`: keeps the checkpoints of one node beside its ranks, and outlives them.

It starts the process that writes for a rank, so that a rank which is killed takes nothing along, serves what lies on this node
to other nodes, and writes it to shared storage where the supervisor asks for it. Its input is one line of JSON; `end` on another
says that the run needs it no more, and without that it ends where its agent does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, Optional

from cordee.core.errors import CordeeError
from cordee.machine.node_folder import NodeFolder, sweep_abandoned
from cordee.machine.node_tiers import tiers
from cordee.machine.processes.module_command import DEAF_AT_FIRST, module_argv
from cordee.systems.checkpoints.node.tiers.answers import KeptAnswers
from cordee.systems.checkpoints.node.tiers.kept import KeptSaves, NodeTier
from cordee.systems.checkpoints.node.tiers.links import KeeperLinks
from cordee.systems.checkpoints.node.tiers.object_saves import ObjectSaves
from cordee.wire.peers import PeerListener

_WRITER = "cordee.systems.checkpoints.node.writer"
_FOLDER = "checkpoints"
_LOOK_S = 0.05
_HELLO_S = 5.0
_LONGEST_HELLO = 32
# How long one answer to `settle` may take, and how long a writer without its rank: so much more for each byte of its memory.
_ANSWER_S = 20.0
_SETTLE_S, _LEAST_BYTES_PER_S = 90.0, 16e6


class _WriterOfRank(NamedTuple):
    process: subprocess.Popen[bytes]
    rank_end: socket.socket
    attempt: int
    most_s: float

    @property
    def orphaned(self) -> bool:
        """Whether the rank is gone and the writer still has something to do."""
        gone = select.poll()
        gone.register(self.rank_end, 0)
        return self.process.poll() is None and bool(gone.poll(0))

    def without_rank(self) -> None:
        """Have it take its rank for gone: what was asked until now it still reads, and more cannot come."""
        with contextlib.suppress(OSError):
            self.rank_end.shutdown(socket.SHUT_RDWR)


class CheckpointKeeper:
    """What a node keeps, and the processes that write for its ranks.

    Args:
        begin: `node`, `run`, `host`, `control`, `socket`, and `tier` with `declared`, where saves are kept on nodes first; `store`: the
            address of the run's saves in an object store, empty without one.
    """

    def __init__(self, begin: dict[str, Any]) -> None:
        self._links = KeeperLinks(Path(begin["control"]), begin["node"])
        self._begin = begin
        self._place: Optional[NodeFolder] = None
        self._tier = self._made_tier(begin["tier"], tuple(begin["declared"]))
        self._saves = KeptSaves(Path(self._tier.folder)) if self._tier is not None else None
        self._parts = KeptAnswers(self._saves, self._tier, self._links, ObjectSaves(begin["store"]))
        self._writers: list[_WriterOfRank] = []
        self._ended_attempt = -1
        self._lock = threading.Lock()
        self._listener = PeerListener(begin["host"], self._links.token(), begin["node"], self._answer)
        self._ranks = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(begin["socket"])
        self._ranks.bind(begin["socket"])
        self._ranks.listen(64)
        threading.Thread(target=self._take_ranks, daemon=True).start()
        self._links.tell(begin["host"], self._listener.port)

    def _made_tier(self, kind: str, declared: tuple[str, ...]) -> Optional[NodeTier]:
        place = next((one for one in tiers(declared) if one.kind == kind), None)
        if place is None:
            return None
        sweep_abandoned(places=[place.folder])
        self._place = NodeFolder(place.folder, self._begin["run"], self._begin["node"])
        return NodeTier(kind, str(self._place.path / _FOLDER), declared)

    def _take_ranks(self) -> None:
        while True:
            try:
                rank_end, _ = self._ranks.accept()
            except OSError:  # too many files are open
                time.sleep(_LOOK_S)
                continue
            try:
                rank_end.settimeout(_HELLO_S)
                said, (memory, *_), _, _ = socket.recv_fds(rank_end, _LONGEST_HELLO, 1)
                rank_end.settimeout(None)
                self._start_writer(rank_end, memory, int(said))
            except (OSError, ValueError):
                rank_end.close()

    def _start_writer(self, rank_end: socket.socket, memory: int, attempt: int) -> None:
        about = {
            "node": self._begin["node"],
            "control": self._begin["control"],
            "tier": self._tier,
            "store": self._begin["store"],
        }
        most_s = _SETTLE_S + os.fstat(memory).st_size / _LEAST_BYTES_PER_S
        try:
            if attempt <= self._ended_attempt:
                raise ValueError("this attempt is over")
            process = subprocess.Popen(
                [
                    *DEAF_AT_FIRST,
                    *module_argv(
                        _WRITER,
                        str(memory),
                        json.dumps({**about, "keeper": os.getpid()}),
                        user_site=bool(about["store"]),
                    ),
                ],
                stdin=rank_end.fileno(),
                stdout=rank_end.fileno(),
                pass_fds=(memory,),
            )
        finally:
            os.close(memory)
        with self._lock:
            self._writers = [one for one in self._writers if one.process.poll() is None]
            self._writers.append(_WriterOfRank(process, rank_end, attempt, most_s))
        threading.Thread(target=self._tell_end, args=(process, rank_end), daemon=True).start()

    @staticmethod
    def _tell_end(process: subprocess.Popen[bytes], rank_end: socket.socket) -> None:
        """Have a rank hear that its writer has ended: its answers would not end while the keeper has its end of them, too."""
        process.wait()
        with contextlib.suppress(OSError):
            rank_end.shutdown(socket.SHUT_RDWR)

    def _answer(self, peer: str, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        try:
            if request["do"] == "settle":
                return {"writing": self._settle(request["waited_s"])}, b""
            return self._parts.answer(request)
        except (OSError, CordeeError, LookupError, ValueError, TypeError) as error:
            return {"failed": f"{getattr(error, 'strerror', None) or error}"}, b""

    def _settle(self, waited_s: float) -> int:
        """Wait until nobody writes any more for the ranks that ran here; return how many still do.

        Whoever asks knows that all of these ranks have ended, which their connections need not show yet: a process that one
        has forked may hold one open. So they end here, and a rank that was taken for gone and is not gets no writer either.

        Args:
            waited_s: for how long it was asked before; a writer that takes too long is killed.
        """
        self._hear_all()
        with self._lock:
            writers = list(self._writers)
            self._ended_attempt = max([self._ended_attempt, *(one.attempt for one in writers)])
        for one in writers:
            one.without_rank()
        began = time.monotonic()
        while True:
            left = [one for one in writers if one.process.poll() is None]
            took_s = time.monotonic() - began
            for one in left:
                if waited_s + took_s > one.most_s:
                    one.process.kill()
            if not left or took_s > _ANSWER_S:
                return len(left)
            time.sleep(_LOOK_S)

    def _hear_all(self) -> None:
        """Have the ranks heard that called before now: they are taken in turn, and this is one more call."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as call:
            call.settimeout(_ANSWER_S)
            call.connect(self._begin["socket"])
            call.shutdown(socket.SHUT_WR)
            call.recv(1)

    def end(self, *, clean: bool) -> None:
        """Let writers end whose ranks are gone.

        Args:
            clean: the run needs nothing of this any more.
        """
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until and any(one.orphaned for one in self._writers):
            time.sleep(_LOOK_S)
        with contextlib.suppress(OSError):
            os.unlink(self._begin["socket"])
        if clean:
            self._links.untell()
            if self._saves is not None and not any(self._saves.parts()):
                shutil.rmtree(self._saves.folder, ignore_errors=True)
        self._listener.close()


def main() -> int:
    """Keep what ranks hand over until the input ends."""
    keeper = CheckpointKeeper(json.loads(sys.stdin.readline()))
    clean = False
    while not clean and (line := sys.stdin.readline()):
        clean = line.strip() == "end"
    keeper.end(clean=clean)
    return 0


if __name__ == "__main__":
    sys.exit(main())
