"""A sweep beside its dispatcher: which trials are chosen next, which end early, who else is told of them."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from cordee.control.supervisor.line_child import LineChild
from cordee.core.clock import monotonic
from cordee.machine.slots import SlotRequest
from cordee.systems.trials.node.queue import TaskQueue
from cordee.systems.trials.node.rungs import Halving, Rungs
from cordee.systems.trials.node.task_list import FarmTask, task_of
from cordee.systems.trials.node.task_states import DONE, ENDED, FAILED, HALVED, MADE, REACHED, TaskStates

SAMPLER = "cordee.systems.trials.sampler"
TRACKER = "cordee.systems.trials.tracker"
_FINISH_S = 5.0


class TrialStudy:
    """The study of one sweep.

    Args:
        run: the run's id.
        part: of the plan.
        states, tasks: what is known of its trials.
        made: told of trials that were chosen.
        remark: takes a sentence about the children.
        env: of the job's commands.
    """

    def __init__(
        self,
        run: str,
        part: Mapping[str, Any],
        states: TaskStates,
        tasks: Mapping[int, FarmTask],
        made: Callable[[list[FarmTask]], None],
        remark: Callable[[str], None],
        env: Mapping[str, str],
    ) -> None:
        self._env, self._run = env, run
        self._part, self._states, self._tasks, self._made, self._remark = part, states, tasks, made, remark
        self._elsewhere = TaskStates()
        self._others: dict[int, FarmTask] = {}
        goals: Sequence[Sequence[str]] = part["goals"]
        self._goals, self._sampling = goals, part.get("sampling")
        rungs = part.get("halving")
        self._rungs = Rungs(*rungs) if rungs else None
        self._halving = Halving(self._rungs, goals[0][0] == "max") if self._rungs is not None else None
        self.behind([[task, rung, value] for task, rows in states.reached.items() for rung, value in rows])
        self._best: Optional[tuple[float, int]] = None
        for task in tasks:
            self._look_whether_best(self._trial(task))
        self._asked: set[int] = set()
        # Trials that were dealt out over jobs: this one numbers its own so that no other has the same number.
        first, stride = (self._sampling or {}).get("deal", (0, 1))
        self._stride = int(stride)
        self._next = max(tasks, default=first - stride) + self._stride
        self._sampler = self._new_sampler() if self._sampling else None
        self._again: set[int] = set()
        tracker = (TRACKER, self._all, self._tracked, self._of("tracker"), env)
        self._tracker = LineChild(*tracker) if part.get("track") else None

    def _new_sampler(self) -> LineChild:
        return LineChild(SAMPLER, self._all_and_again, self._answered, self._of("sampler"), self._env)

    def _of(self, what: str) -> Callable[[str], None]:
        return lambda text: self._remark(f"the {what} of the sweep: {text}")

    @property
    def without_value(self) -> str:
        """What is said of a trial that ended well and has no value."""
        names = ", ".join(metric for _, metric in self._goals)
        return f"its result file has no finite {names}" if self._part.get("result") else f"it logged no finite {names}"

    @property
    def left(self) -> int:
        """How many trials are yet to be chosen."""
        if self._sampling is None:
            return 0
        return max(0, int(self._sampling["trials"]) + self._states.wanted - len(self._tasks))

    @property
    def broken(self) -> str:
        """Why no more trials are chosen although more are wanted; empty: they are."""
        if self._sampler is None or not self._sampler.given_up or not self.left:
            return ""
        return f"{self.left} trials were not chosen, as the sampler did not stay: {self._sampler.given_up}"

    def ask(self, queue: TaskQueue) -> bool:
        """Have as many trials chosen as there is room for; returns False where no more are to come."""
        if self._tracker is not None:
            self._tracker.start()
        if self._sampler is None or self._sampling is None or self.broken or not self.left:
            return False
        self._sampler.start()
        asks = self._asks()
        free = max(1, queue.room_for(asks, self._sampling.get("nodes", 1))) - len(queue) - queue.out - len(self._asked)
        for _ in range(min(free, self.left - len(self._asked))):
            self._asked.add(self._next)
            self._sampler.say({"ask": self._next}, owed=1)
            self._next += self._stride
        return True

    def _asks(self) -> SlotRequest:
        assert self._sampling is not None
        return SlotRequest(self._sampling["cores"], self._sampling["gpus"], self._sampling["memory_bytes"] or 0)

    def _look_whether_best(self, trial: Mapping[str, Any]) -> None:
        if trial["state"] == DONE and trial["values"]:
            cost = (-1.0 if self._goals[0][0] == "max" else 1.0) * trial["values"][0]
            self._best = min(self._best or (math.inf, 0), (cost, trial["id"]))

    def ended(self, task: int) -> None:
        """A trial has ended for good."""
        told = self._trial(task)
        self._look_whether_best(told)
        if self._sampler is not None:
            self._sampler.say({"tell": told})
        if self._tracker is not None:
            self._tracker.say({"tell": told}, owed=1)

    @property
    def best(self) -> Optional[dict[str, Any]]:
        """The trial with the best value for the first goal so far, as it is told; None: none has a value."""
        if self._best is None:
            return None
        trial = self._trial(self._best[1])
        values = " ".join(f"{name}={value}" for name, value in trial["parameters"].items())
        text = f"{self._goals[0][1]} = {trial['values'][0]:.6g}, trial {trial['id']}: {values}"
        return {"id": trial["id"], "parameters": trial["parameters"], "values": trial["values"], "text": text}

    @property
    def dealt(self) -> bool:
        """Whether other jobs have trials of the same sweep, which this one learns from."""
        return self._stride > 1

    def heard(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take what became of trials of other jobs, as their journals say."""
        for event in events:
            self._elsewhere.take(event)
            numbers: list[int] = []
            if event["event"] == MADE:
                made = [task_of(document) for document in event["tasks"]]
                self._others.update({task.id: task for task in made})
                numbers = [task.id for task in made]
            elif event["event"] == ENDED:
                numbers = [row[0] for row in event["ended"] if row[2] in (DONE, FAILED)]
            elif event["event"] == REACHED:
                self.behind(event["rungs"])
            for number in numbers:
                if self._sampler is not None and number in self._others:
                    self._sampler.say({"tell": self._trial(number)})

    def behind(self, rows: Iterable[list[Any]]) -> list[int]:
        """Return which of the trials that have come to a rung (trial, rung, value) are to end."""
        if self._halving is None:
            return []
        return [task for task, rung, value in rows if not self._halving.goes_on(task, rung, value)]

    def changed(self) -> None:
        """More trials are wanted, or others: a sampler that knows another space begins anew, with all that there is."""
        if self._sampler is not None and (self._states.table is not None or self._sampler.given_up):
            self._sampler.close()
            self._asked.clear()
            self._sampler = self._new_sampler()

    def second(self, now: float) -> None:
        """A second is over."""
        for child in (self._sampler, self._tracker):
            if child is not None:
                child.second(now)

    def close(self) -> None:
        """The run, or its segment, is over."""
        if self._sampler is not None:
            self._sampler.close()

    async def finish(self) -> None:
        """Wait until all trials are written elsewhere, too, and not for long."""
        if self._sampler is not None:
            await self._sampler.gone()
        if self._tracker is None:
            return
        deadline = monotonic() + _FINISH_S
        while self._tracker.owes and not self._tracker.given_up and monotonic() < deadline:
            await asyncio.sleep(0.05)
        if self._tracker.owes:
            self._remark("the last trials were not tracked in time")
        self._tracker.close()
        await self._tracker.gone()

    def _all_and_again(self) -> dict[str, Any]:
        """Return what a sampler is to know, and remember what the one before it had not answered."""
        self._again = set(self._asked)
        return self._all()

    def _all(self) -> dict[str, Any]:
        """Return what a child is to know at its start."""
        table = self._states.table or {}
        sampling = {**(self._sampling or {}), **table}
        trials = [self._trial(task) for task in sorted([*self._tasks, *self._others])]
        known = {name: sampling.get(name) for name in ("sampler", "seed", "space")}
        more = {"track": self._part.get("track"), "run": self._run}
        return {**known, **more, "goals": list(self._goals), "trials": trials}

    def _trial(self, task: int) -> dict[str, Any]:
        states, tasks = (self._elsewhere, self._others) if task in self._others else (self._states, self._tasks)
        state = states.of(task)
        end, values = state.end, []
        if end is not None and end.value is not None:
            values = end.value if isinstance(end.value, list) else [end.value]
        name = state.state if state.state in (DONE, FAILED) else "running"
        if name == DONE and end is not None and end.reason == HALVED:
            name = HALVED
        step = self._rungs.step_of if self._rungs is not None else int
        reached = [[step(rung), value] for rung, value in states.reached.get(task, ())]
        about = {"id": task, "parameters": dict(tasks[task].values), "state": name, "values": values}
        return {**about, "reached": reached, "seconds": end.seconds if end is not None else None}

    def _answered(self, answer: Mapping[str, Any]) -> None:
        if "parameters" in answer:
            number = int(answer["id"])
            if number in self._asked:
                self._asked.discard(number)
                values = {str(name): str(value) for name, value in answer["parameters"].items()}
                assert self._sampling is not None
                world = {name: self._sampling.get(name, 1) for name in ("nodes", "ranks")}
                self._made([FarmTask(number, values, self._asks(), self._sampling["time_s"], **world)])
        elif self._sampler is not None:
            # It knows nothing of what the one before it was asked for.
            for number in sorted(self._again & self._asked):
                self._sampler.say({"ask": number}, owed=1)

    def _tracked(self, answer: Mapping[str, Any]) -> None:
        if answer.get("problem"):
            self._remark(f"a trial was not tracked: {answer['problem']}")
