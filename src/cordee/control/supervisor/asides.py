"""What a run has done that takes a while: begun when it is decided, and answered by an event once it is done."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Callable, Coroutine, Union

from cordee.control.supervisor.allocation import Allocation
from cordee.control.supervisor.decisions.early_end import UNDECIDED
from cordee.control.supervisor.decisions.outcomes import Ended
from cordee.control.supervisor.decisions.vocabulary import (
    BeginningFound,
    Conclude,
    Concluded,
    EndTraining,
    FateKnown,
    FindBeginning,
    FoundGone,
    LearnFate,
    RunEvent,
    SayTraining,
    StageData,
    TrainingEnded,
    TrainingSaid,
)
from cordee.control.supervisor.preparer import NodePreparer
from cordee.control.supervisor.stager import DataStager
from cordee.control.supervisor.start_checkpoint import Beginning, Beginnings
from cordee.control.supervisor.telemetry.sink import TelemetrySink
from cordee.control.supervisor.troubles import SupervisorTroubles
from cordee.core.clock import monotonic
from cordee.runs.checkpoint import CheckpointFinder, Doubt
from cordee.runs.lane import Inline, RepeatedLook

_FATE_S = 20.0
_FATE_POLL_S, _PATIENT_S, _SELDOM_S = 0.3, 1.0, 60.0


class Asides:
    """Tasks beside the decisions.

    Args:
        vetting: judges nodes.
        stager: gives them what ranks need.
        beginnings, checkpoints: of the run.
        lane: where its checkpoints are looked for.
        sink: knows the steps that ranks tell.
        place: knows what the scheduler has in mind.
        happened: told of each answer.
        failed: called with the error of a task that could not be done.

    Attributes:
        doings: what begins each of them, by the type of the command.
    """

    def __init__(
        self,
        vetting: NodePreparer,
        stager: DataStager,
        beginnings: Beginnings,
        checkpoints: CheckpointFinder,
        lane: Inline,
        sink: TelemetrySink,
        place: Allocation,
        happened: Callable[[RunEvent], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._vetting, self._stager, self._beginnings = vetting, stager, beginnings
        self._checkpoints, self._lane, self._sink = checkpoints, lane, sink
        self._place, self._happened, self._failed = place, happened, failed
        self._tasks: set[asyncio.Task[None]] = set()
        works: dict[type, Callable[[], Coroutine[Any, Any, RunEvent]]] = {
            Conclude: self._conclude,
            SayTraining: self._say_training,
            EndTraining: self._end_training,
        }
        self.doings: dict[type, Callable[[Any], object]] = {
            command: partial(self._begin, work) for command, work in works.items()
        }
        self.doings[FindBeginning] = lambda command: self._begin(partial(self._find_beginning, command.doubts), command)
        self.doings[LearnFate] = lambda command: self._begin(partial(self._learn_fate, command.patiently), command)
        self.doings[StageData] = lambda command: self._begin(partial(self._stager.stage, command.nodes), command)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, RunEvent]], command: object) -> None:
        task = asyncio.ensure_future(self._do(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, work: Callable[[], Coroutine[Any, Any, RunEvent]]) -> None:
        try:
            event = await work()
        except Exception as error:
            self._failed(error)
        else:
            self._happened(event)

    async def _conclude(self) -> RunEvent:
        return Concluded(await self._vetting.conclude())

    async def _find_beginning(self, doubts: tuple[Doubt, ...]) -> RunEvent:
        found: Union[Beginning, Ended]
        try:
            found = await self._lane.run(partial(self._beginnings.next, doubts))
        except Ended as ended:
            found = ended
        return BeginningFound(found)

    async def _say_training(self) -> RunEvent:
        await self._lane.run(self._beginnings.trains)
        return TrainingSaid()

    async def _end_training(self) -> RunEvent:
        await self._lane.run(self._checkpoints.end_training)
        newest = await self._lane.run(self._checkpoints.newest)
        return TrainingEnded(newest, self._sink.step is not None)

    async def _learn_fate(self, patiently: bool) -> RunEvent:
        loop, began = asyncio.get_running_loop(), monotonic()
        pause_s = _PATIENT_S if patiently else _FATE_POLL_S
        while True:
            fate = await loop.run_in_executor(None, self._place.fate)
            if fate not in UNDECIDED or (monotonic() - began > _FATE_S and not patiently):
                return FateKnown(monotonic(), fate)
            await asyncio.sleep(pause_s)
            pause_s = min(2.0 * pause_s, _SELDOM_S) if patiently else pause_s


class GoneAgents:
    """Looks, one look at a time, which agents have ended.

    Args:
        place: knows.
        lane: where it is looked.
        told: called with those that have.
        troubles: says what fails.
    """

    def __init__(
        self, place: Allocation, lane: Inline, told: Callable[[FoundGone], None], troubles: SupervisorTroubles
    ) -> None:
        self._place, self._told = place, told
        self._wanted: list[tuple[str, int]] = []
        failed = "looking for ended agents failed"
        self._look = RepeatedLook(lane, self._find, self._tell, lambda error: troubles.say(failed, error))

    def look(self, agents: list[tuple[str, int]]) -> None:
        """Look for these, by node and incarnation."""
        self._wanted = agents
        self._look.begin()

    def _find(self) -> list[tuple[str, int]]:
        return [one for one in self._wanted if self._place.agent_gone(*one)]

    def _tell(self, gone: list[tuple[str, int]]) -> None:
        if gone:
            self._told(FoundGone(gone))
