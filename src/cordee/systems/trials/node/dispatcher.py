"""Beside the lead of a farm's run: gives tasks to the pools of its nodes, and keeps the journal of the tasks.

A try of a task is in the journal before its node hears of it, and how it ended is there before it counts: whoever comes next knows
what was under way. What a node had when its attempt ended is run again by the next attempt, which begins once nothing of the one
before it runs any more: that is the run's own fence, of leases and epochs.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Iterable, Mapping, Optional

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.outcomes import AttemptOutcome
from cordee.control.supervisor.decisions.restart import Failure
from cordee.control.supervisor.decisions.vocabulary import AskToStop, HangFound, TimeIsNear
from cordee.control.supervisor.watchers import RunWatcher, WatchedRun
from cordee.core.clock import monotonic, unix_s
from cordee.core.findings import Finding
from cordee.runs.folder import say
from cordee.runs.journal import JournalWriter, read_journal
from cordee.systems.trials.node.pool import PoolOrder
from cordee.systems.trials.node.queue import NodeRoom, TaskQueue
from cordee.systems.trials.node.task_list import FIRST, FOLDER, JOURNAL, FarmTask, read_tasks
from cordee.systems.trials.node.task_states import AGAIN, DONE, ENDED, FAILED, GIVEN, LOST, TaskEnd, TaskStates, replay
from cordee.wire.messages import PoolNews, PoolTasks

REQUEST = "tasks"
# Orders of so many tasks at most are one message.
_MOST_TOGETHER = 1000
_SETTLE_S = 0.2


class FarmDispatcher(RunWatcher):
    """See RunWatcher."""

    def __init__(self, run: WatchedRun) -> None:
        super().__init__(run)
        part: Mapping[str, Any] = run.plan.step.systems["trials"]
        self._retries, self._stop_after = int(part["retries"]), part.get("stop_after")
        self._root = run.folder.root
        self._journal = JournalWriter(
            self._root / FOLDER / JOURNAL,
            f"supervisor-{run.journal.epoch}",
            run.journal.epoch,
            lane=run.lane("cordee-tasks"),
        )
        self._states: TaskStates = replay(read_journal(self._root / FOLDER / JOURNAL))
        self._tasks = {task.id: task for task in read_tasks(self._root, [FIRST, *self._states.files])}
        self._queue = TaskQueue(part.get("order") == "longest")
        self._queue.add(task for task in self._tasks.values() if self._states.of(task.id).state not in (DONE, FAILED))
        self._metric: Optional[str] = part.get("metric")
        self._attempt = 0
        self._over = self._late = False
        self._unsent: list[tuple[int, str, list[FarmTask]]] = []
        self._told = (-1, -1)

    # What happens

    def pool_news(self, node: Node, message: PoolNews, body: bytes) -> None:
        attempt = self.run.attempt()
        if attempt is None or message.attempt != attempt.number:
            return
        if message.attempt != self._attempt:
            self._new_attempt(message.attempt)
        news = json.loads(body)
        if "room" in news:
            self._queue.node(node.name, NodeRoom(*news["room"]))
        self._take_ends(node.name, news.get("ended", ()))
        self._go_on()

    def requested(self, request: dict[str, Any]) -> None:
        if request.get("request") == REQUEST:
            self._look_for_more()
            self._go_on()

    def second(self, now: float) -> None:
        done = (self._states.done, self._states.failed)
        if done != self._told:
            self._told = done
            self.run.journal.append(
                "tasks_progress", durable=False, tasks=len(self._tasks), done=done[0], failed=done[1]
            )
        if self._journal.last_error is not None:
            self._journal.flush()
        self._go_on()

    def close(self) -> None:
        self._over = True
        self._journal.flush()

    async def finish(self) -> None:
        await self._journal.durable()

    def _new_attempt(self, number: int) -> None:
        """Nothing of the attempt before runs any more: what it had waits again."""
        self._attempt = number
        lost = self._queue.forget_nodes()
        for task in lost:
            self._states.of(task.id).runs = False
        self._queue.add(sorted(lost, key=lambda task: task.id), first=True)
        self._unsent.clear()
        self._over = self._late = False

    def _take_ends(self, node: str, rows: Iterable[list[Any]]) -> None:
        """Take how tasks have ended: into the journal, and what is to be run again into the queue."""
        ends, again = [], []
        for task_id, number, code, signal, reason, seconds, peak, cpu_s, text, value in rows:
            task = self._queue.ended(node, task_id, seconds)
            if task is None:
                continue
            state = self._states.of(task_id)
            if self._metric is not None and code == 0 and reason == "exited" and value is None:
                code, text = None, f"it logged no finite {self._metric}"
            outcome = LOST if reason == "stopped" else DONE if code == 0 and reason == "exited" else FAILED
            if outcome == FAILED and reason != "not_started" and state.failures < self._retries:
                outcome = AGAIN
            end = TaskEnd(task_id, number, outcome, code, signal, reason, seconds, peak, cpu_s, text, value, node)
            if self._states.ends(end):
                ends.append(end.row())
                if outcome in (AGAIN, LOST):
                    again.append(task)
        if ends:
            self._journal.append(ENDED, node=node, ended=ends)
        self._queue.add(again, first=True)

    def _look_for_more(self) -> None:
        """Take what somebody has added, or wants to be run again, since this supervisor began."""
        events = [event for event in read_journal(self._root / FOLDER / JOURNAL) if event["writer"] == "client"]
        known = {task.id for task in self._tasks.values()}
        for event in events:
            if event["event"] == "tasks_added" and event["file"] not in self._states.files:
                self._states.take(event)
                added = [task for task in read_tasks(self._root, [event["file"]]) if task.id not in known]
                self._tasks.update({task.id: task for task in added})
                self._queue.add(added)
            elif event["event"] == "tasks_retried" and event["epoch"] >= self._journal.epoch:
                self._queue.add(self._tasks[task] for task in self._states.retry(event["tasks"]))

    # What is done

    def _go_on(self) -> None:
        """Give nodes what they have room for; end the run where nothing is left."""
        attempt = self.run.attempt()
        if self._over or not self._attempt or attempt is None or attempt.number != self._attempt:
            return
        left_s = self.run.left_s()
        if self._stop_after is None or self._states.failed < self._stop_after:
            if len(self._queue.nodes) == len(attempt.nodes):
                self._refuse(self._queue.fits_nowhere())
            for node, tasks in self._queue.give(left_s).items():
                for first in range(0, len(tasks), _MOST_TOGETHER):
                    self._give(node, tasks[first : first + _MOST_TOGETHER])
            if not self._queue.out and self._queue.too_late(left_s) and not self._late:
                self._late = True
                text = (
                    f"of the tasks that are left, {len(self._queue)}, none could end in the time that the job has left"
                )
                self.run.happened(TimeIsNear(monotonic(), text))
        elif not self._queue.out:
            self._end()
        if not len(self._queue) and not self._queue.out:
            self._end()

    def _refuse(self, tasks: list[FarmTask]) -> None:
        """Tasks that ask for more than any node has have failed."""
        ends = []
        for task in tasks:
            state = self._states.of(task.id)
            self._states.given(task.id, state.given + 1)
            text = "it asks for more than any node has"
            end = TaskEnd(task.id, state.given, FAILED, None, None, "not_started", 0.0, 0, 0.0, text)
            if self._states.ends(end):
                ends.append(end.row())
        if ends:
            self._journal.append(GIVEN, durable=False, node="", tasks=[[row[0], row[1]] for row in ends])
            self._journal.append(ENDED, node="", ended=ends)

    def _give(self, node: str, tasks: list[FarmTask]) -> None:
        """Write which tries begin; the order goes out once that is in the file."""
        numbers = []
        for task in tasks:
            state = self._states.of(task.id)
            self._states.given(task.id, state.given + 1, node)
            numbers.append([task.id, state.given])
        self._journal.append(GIVEN, durable=False, node=node, attempt=self._attempt, tasks=numbers)
        self._unsent.append((self._journal.sequence, node, tasks))
        self._when_written(self._send)

    def _when_written(self, then: Any) -> None:
        loop = asyncio.get_running_loop()
        done = self._journal.lane.submit(lambda: None)
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(then))

    def _send(self) -> None:
        """Send the orders whose tries are in the journal."""
        written = self._journal.written_until
        while self._unsent and self._unsent[0][0] <= written:
            _, node, tasks = self._unsent.pop(0)
            left_s = self.run.left_s()
            end_at = None if left_s is None else unix_s() + left_s
            orders = [PoolOrder(task, self._states.of(task.id).given, end_at).document() for task in tasks]
            self._order(node, PoolTasks(self._attempt), json.dumps(orders, separators=(",", ":")).encode())

    def _order(self, node: str, message: PoolTasks, body: bytes = b"") -> None:
        if not self.run.order(self.run.nodes[node], message, body):
            say(f"cordee supervisor: {node} has gone, with the tasks that it was to have")

    def _end(self) -> None:
        """All has ended: the pools end, and with them the run, once that is on the disk for good."""
        self._over = True
        self._ending = asyncio.ensure_future(self._end_for_good(self._attempt))

    async def _end_for_good(self, number: int) -> None:
        await self._journal.durable()
        if number != self._attempt or len(self._queue.nodes) == 0:
            return
        failed, count = self._states.failed, len(self._tasks)
        if not failed:
            for node in self._queue.nodes:
                self._order(node, PoolTasks(self._attempt, last=True))
            return
        what = "tasks" if self._metric is None else "trials"
        text = f"{failed} of {count} {what} failed"
        if len(self._queue):
            text += f"; {len(self._queue)} were not started, as [farm] stop_after = {self._stop_after} says"
        then = f"`cordee farm show {self.run.folder.id} --failed` lists them, `cordee farm retry` runs them again"
        self.run.journal.append("finding", finding=Finding(text, "error", "farm-failed", next=then).document())
        outcome = AttemptOutcome("failed", Failure("farm", reason="end", message=text), text)
        self.run.happened(HangFound(number, AskToStop(monotonic(), outcome, 0.0, "")))
