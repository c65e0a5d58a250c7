"""A rank's end of the process that writes for it: a child of its own, or one that the node's keeper starts and that outlives the rank."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from typing import BinaryIO, Optional

from cordee.machine.processes.module_command import DEAF_AT_FIRST, module_argv

KEEPER = "CORDEE_CHECKPOINT_KEEPER"
TIERED = "CORDEE_CHECKPOINT_TIERS"
_WRITER = "cordee.systems.checkpoints.node.writer"
# What would make a writer take itself for the rank.
_OF_THE_RANK = ("CORDEE_CHANNEL", "CORDEE_ADAPTERS", "CORDEE_PULSE")
_KEEPER_S = 5.0
_AGAIN_S = 0.05


class WriterLink:
    """What is said to a writer, and what it says; one line each.

    Args:
        asks: what it hears.
        answers: what it says; ends when it does.
    """

    def __init__(self, asks: BinaryIO, answers: BinaryIO) -> None:
        self._asks, self.answers = asks, answers
        self.gone = False

    def ask(self, line: bytes) -> None:
        """Have it do something.

        Raises:
            OSError: it is gone.
        """
        self._asks.write(line)
        self._asks.flush()

    def ended(self) -> str:
        """Return how it has ended, once its answers have."""
        self.gone = True
        return "the process that writes it ended by itself"

    def close(self, wait_s: float) -> None:
        """Let it end."""
        self.gone = True
        with contextlib.suppress(OSError):
            self.ask(b"\n")  # processes forked from this one may hold the connection open
            self._asks.close()


class OwnWriter(WriterLink):
    """A child of this rank.

    Args:
        memory: descriptor of the memory to share with it.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, memory: int) -> None:
        root = os.path.abspath(__file__).rpartition(os.path.join(os.sep, "cordee", "systems", ""))[0]
        env = {name: value for name, value in os.environ.items() if name not in _OF_THE_RANK}
        env["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [env.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [*DEAF_AT_FIRST, *module_argv(_WRITER, str(memory))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(memory,),
            env=env,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        super().__init__(self.process.stdin, self.process.stdout)  # type: ignore[arg-type]

    def ended(self) -> str:
        return f"{super().ended()} (code {self.process.wait()})"

    def close(self, wait_s: float) -> None:
        super().close(wait_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(wait_s)


class KeptWriter(WriterLink):
    """One that the keeper of this node has started.

    Args:
        keeper: the socket that it listens at.
        memory: descriptor of the memory to share with it.

    Raises:
        OSError: there is no keeper.
    """

    def __init__(self, keeper: str, memory: int) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connection.connect(keeper)
            attempt = os.environ.get("CORDEE_ATTEMPT") or "0"
            socket.send_fds(self._connection, [attempt.encode()], [memory])
        except OSError:
            self._connection.close()
            raise
        super().__init__(self._connection.makefile("wb"), self._connection.makefile("rb"))

    def close(self, wait_s: float) -> None:
        super().close(wait_s)
        self._connection.close()


def keeper_for(folder: str) -> Optional[str]:
    """Return the socket of this node's keeper; None where it does not keep checkpoints of that folder.

    It sees the run's own folder of checkpoints where ranks do, also where these are in a container, and restarts look there alone.
    """
    own = os.environ.get("CORDEE_CHECKPOINT_DIR")
    return os.environ.get(KEEPER) if own and os.path.abspath(own) == folder else None


def started_writer(memory: int, keeper: Optional[str]) -> WriterLink:
    """Return a writer; without a keeper that answers it is a child of this rank.

    Raises:
        OSError: none can be started.
    """
    return kept_writer(memory, keeper, _KEEPER_S) or OwnWriter(memory)


def kept_writer(memory: int, keeper: Optional[str], wait_s: float) -> Optional[KeptWriter]:
    """Return a writer that the keeper has started, None without a keeper that answers in this time."""
    until = time.monotonic() + wait_s
    while keeper:
        try:
            return KeptWriter(keeper, memory)
        except OSError:
            if time.monotonic() > until:
                break
            time.sleep(_AGAIN_S)
    return None


def kept_on_nodes(keeper: Optional[str]) -> bool:
    """Return whether saves lie on nodes before they are on shared storage."""
    return keeper is not None and os.environ.get(TIERED, "shared") != "shared"


def goes_to_a_store() -> bool:
    """Return whether saves go on from shared storage to an object store."""
    return "://" in os.environ.get(TIERED, "")
