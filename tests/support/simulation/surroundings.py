"""What a simulated run does, and what the parts of a simulated world use of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cordee.runs.folder import RunFolder
from support.simulation.disk import SimulatedDisk
from support.simulation.loop import VirtualClocks, VirtualLoop, VirtualProcess
from support.simulation.network import VirtualNetwork
from support.simulation.training import SimulatedTraining


@dataclass(frozen=True)
class RunScript:
    """What a run is and does; times in virtual seconds.

    Attributes:
        nodes, spares, per_node: its world.
        steps, step_s, every: of the training, and after how many steps rank 0 saves.
        setup_s: of the set-up lines, 0: there are none.
        checks_s, start_s: of the checks, and of a rank before its first step.
        notice_s: how soon ranks fail that have lost another one.
        stopping: whether ranks call `cordee.stopping`.
        disk_s: the most that a piece of work on the run folder's disk takes.
        event_bytes: about how large what a rank logs in a step is.
    """

    nodes: int = 2
    spares: int = 1
    per_node: int = 1
    steps: int = 20
    step_s: float = 0.5
    every: int = 5
    setup_s: float = 2.0
    checks_s: float = 0.3
    start_s: float = 0.5
    notice_s: float = 0.01
    stopping: bool = True
    disk_s: float = 0.002
    event_bytes: int = 8


class WorldPort(Protocol):
    """What machines, ranks and rules use of the world that they stand in; see `support.simulation.world.SimulatedWorld`."""

    script: RunScript
    loop: VirtualLoop
    clocks: VirtualClocks
    network: VirtualNetwork
    disk: SimulatedDisk
    folder: RunFolder
    training: SimulatedTraining
    channels: dict[str, Any]
    trace: list[tuple[float, str]]
    blind: bool
    led: Any

    @property
    def alone(self) -> bool: ...

    def note(self, text: str) -> None: ...

    def memory(self, host: Any) -> Path: ...

    def signal(self, host: Any, process: VirtualProcess, number: int) -> None: ...

    def sweep(self, host: Any) -> None: ...

    def child_started(self, child: Any) -> None: ...

    def child_ended(self, child: Any, code: int | None, number: int | None) -> None: ...
