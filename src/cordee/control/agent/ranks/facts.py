"""What the agent knows of its ranks beside their samples: told in telemetry, and to the processes that measure beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

from cordee.machine.gpus.presence import gpu_variables
from cordee.telemetry.node.ranks_file import write_ranks

if TYPE_CHECKING:
    from cordee.control.launch import RankCommand
    from cordee.control.world import AttemptWorld


class RankFacts:
    """The ranks of the attempt on this node.

    Args:
        path: of the file that the processes which measure beside the agent read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._facts: dict[str, dict[str, Any]] = {}
        self._attempt = 0
        self._env: dict[int, dict[str, str]] = {}
        self._written: Optional[dict[str, Any]] = None

    def begin(self, world: AttemptWorld, commands: Sequence[RankCommand]) -> None:
        """Forget the ranks of the attempt before: these are about to start."""
        self._facts = {
            str(command.rank): {
                "node": world.node,
                "local_rank": command.rank - world.local_ranks.start,
                "bound": command.given.words,
            }
            for command in commands
        }
        self._attempt = world.attempt
        self._env = {command.rank: gpu_variables({**(command.outside or {}), **command.env}) for command in commands}

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return facts of the ranks, by their global number as text."""
        return self._facts

    def write(self, pids: Mapping[int, int]) -> None:
        """Tell the processes that measure beside the agent which ranks run."""
        document = {str(rank): self._about(rank, pid) for rank, pid in pids.items()}
        if document == self._written:
            return
        if write_ranks(self.path, document):
            self._written = document

    def _about(self, rank: int, pid: int) -> dict[str, Any]:
        local_rank = self._facts.get(str(rank), {}).get("local_rank", 0)
        return {"pid": pid, "env": self._env.get(rank, {}), "attempt": self._attempt, "local_rank": local_rank}
