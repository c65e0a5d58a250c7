"""Beside the lead of a farm's run: gives tasks to the pools of its nodes, and keeps the journal of the tasks.

A try of a task is in the journal before its node hears of it, and how it ended is there before it counts: whoever comes next knows
what was under way. What a node had when its attempt ended is run again by the next attempt, which begins once nothing of the one
before it runs any more: that is the run's own fence, of leases and epochs. What a node had when another supervisor followed runs on
there; each node says first what it still has, and only then are tasks given out.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Collection, Iterable, Iterator, Mapping, Optional

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.outcomes import AttemptOutcome
from cordee.control.supervisor.decisions.restart import Failure
from cordee.control.supervisor.decisions.vocabulary import AskToStop, HangFound, TimeIsNear
from cordee.control.supervisor.watchers import RunWatcher, WatchedRun
from cordee.core.clock import monotonic, unix_s
from cordee.core.findings import Finding
from cordee.machine.foreign_files import digest_regular
from cordee.runs.folder import say
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.state import replay as replay_run
from cordee.systems.trials.node.journal_tail import SiblingTails
from cordee.systems.trials.node.pool import PoolOrder
from cordee.systems.trials.node.queue import NodeRoom, TaskQueue
from cordee.systems.trials.node.study import TrialStudy
from cordee.systems.trials.node.task_list import FIRST, FOLDER, JOURNAL, FarmTask, read_tasks, task_of
from cordee.systems.trials.node.task_states import (
    AGAIN,
    DONE,
    ENDED,
    FAILED,
    GIVEN,
    HALVED,
    LOST,
    MADE,
    REACHED,
    WANTED,
    TaskEnd,
    TaskStates,
    replay,
)
from cordee.systems.trials.node.trial_world import EndedParts, TrialPlaces
from cordee.wire.messages import PoolNews, PoolTasks

REQUEST = "tasks"
# Orders of so many tasks at most are one message.
_MOST_TOGETHER = 1000


def _say_other_file(run: WatchedRun, epoch: int, path: Path, known: set[str]) -> None:
    """Where somebody resumes a farm, say that the file of its tasks is another now: those that it has are what counts."""
    with suppress(OSError):
        if digest_regular(path) in known:
            return
        if replay_run(read_journal(run.folder.journal)).resumed_epoch + 1 == epoch:
            text = f"{path.name} is another file than when this farm was made, which goes on with the lines that it had then"
            then = f"`cordee farm add {run.folder.id} {path} --new` adds the lines that are new"
            then = "make another farm of the lines that are new" if run.plan.parent else then
            finding = Finding(text, "warn", "farm-file", next=then)
            run.journal.append("finding", finding=finding.document())


class FarmDispatcher(RunWatcher):
    """See RunWatcher."""

    def __init__(self, run: WatchedRun) -> None:
        super().__init__(run)
        part: Mapping[str, Any] = run.plan.step.systems["trials"]
        self._retries, self._stop_after = part["retries"], part.get("stop_after")
        self._root = run.folder.root
        self._journal = JournalWriter(
            self._root / FOLDER / JOURNAL,
            f"supervisor-{run.journal.epoch}",
            run.journal.epoch,
            lane=run.lane("cordee-tasks"),
        )
        events = read_journal(self._root / FOLDER / JOURNAL)
        self._states: TaskStates = replay(events)
        self._wanted = {(event["epoch"], event["seq"]) for event in events if event["event"] == WANTED}
        made = [task_of(document) for document in self._states.made]
        self._tasks = {task.id: task for task in read_tasks(self._root, [FIRST, *self._states.files]) + made}
        self._queue = TaskQueue(part.get("order") == "longest", part.get("at_once"))
        # By node: tasks that were given to it, and of which it has yet to say whether they run on there.
        self._aside: dict[str, list[FarmTask]] = {}
        self._queue.add(task for task in self._tasks.values() if self._waits(task))
        self._study: Optional[TrialStudy] = None
        if "goals" in part:
            env, about = run.plan.step.tasks.env, (part, self._states, self._tasks)
            self._study = TrialStudy(run.folder.id, *about, self._made, self._remark, env)
        self._what = "tasks" if self._study is None else "trials"
        self._siblings = SiblingTails(self._root) if self._study is not None and self._study.dealt else None
        if events and "digest" in part:
            _say_other_file(run, self._journal.epoch, Path(part["file"]), {part["digest"], *self._states.digests})
        self._attempt, self._told = 0, (-1, -1)
        self._over = self._late = False
        self._unsent: list[tuple[int, str, list[FarmTask]]] = []
        # How many ends each node has told; from where in the journal on it need not keep them, as far as it was told.
        self._heard: dict[str, int] = {}
        self._to_confirm: list[tuple[int, str, int]] = []
        self._parts = EndedParts()

    def _waits(self, task: FarmTask) -> bool:
        """Return whether a task is to be given to a node, as far as the journal says; one that a node may have is put aside."""
        state = self._states.of(task.id)
        if state.state in (DONE, FAILED):
            return False
        if state.runs and state.node and not task.has_world:
            self._aside.setdefault(state.node, []).append(task)
            return False
        return True

    # What happens

    def pool_news(self, node: Node, message: PoolNews, body: bytes) -> None:
        attempt = self.run.attempt()
        if attempt is None or message.attempt != attempt.number:
            return
        if message.attempt != self._attempt:
            self._new_attempt(message.attempt, [one.name for one in attempt.nodes])
        news = json.loads(body)
        if "room" in news:
            self._queue.node(node.name, NodeRoom(*news["room"]))
            self._take_up(node.name, news)
        self._compare(node.name, news.get("reached", ()))
        for met in news.get("met", ()):
            self._met(node.name, *met)
        ended = news.get("ended", ())
        self._take_ends(node.name, self._whole(node.name, ended))
        self._heard[node.name] = self._heard.get(node.name, 0) + len(ended)
        if ended:
            self._to_confirm.append((self._journal.sequence, node.name, self._heard[node.name]))
        self._go_on()

    def _take_up(self, node: str, news: Mapping[str, Any]) -> None:
        """A node has said what it has of what was given to it: that goes on, the rest waits again."""
        has = {(row[0], row[1]) for row in (*news.get("held", ()), *news.get("ended", ()))}
        for task in reversed(self._aside.pop(node, ())):
            if (task.id, self._states.of(task.id).given) in has:
                self._queue.has(node, task)
            else:
                self._queue.add([task], first=True)
        for task_id, number in news.get("held", ()):
            # Its line was written and not on the disk for good when the supervisor's machine went down.
            if self._states.of(task_id).given < number:
                self._states.of(task_id).given = number
                self._tell_nodes([node], "broken", task_id, number)

    def _confirm(self) -> None:
        """Tell nodes which ends are on the disk for good."""
        until, known = self._journal.durable_until, dict[str, int]()
        while self._to_confirm and self._to_confirm[0][0] <= until:
            _, node, count = self._to_confirm.pop(0)
            known[node] = count
        for node, count in known.items():
            self._order(node, PoolTasks(self._attempt), json.dumps({"known": count}).encode())

    def _compare(self, node: str, rows: Iterable[list[Any]]) -> None:
        """Trials have come to steps at which they are compared: those that are behind end."""
        rows = [row for row in rows if self._states.of(row[0]).given == row[1]]
        if self._study is None or not rows:
            return
        rungs = [[task, rung, value] for task, _, rung, value in rows]
        self._journal.append(REACHED, durable=False, rungs=rungs)
        self._states.take({"event": REACHED, "rungs": rungs})
        behind = self._study.behind(rungs)
        for task in behind:
            self._tell_nodes(self._queue.places(task) or [node], "halved", task, self._states.of(task).given)

    def _made(self, tasks: list[FarmTask]) -> None:
        """The sampler has chosen trials."""
        self._journal.append(MADE, durable=False, tasks=[task.document() for task in tasks])
        self._states.made += [task.document() for task in tasks]
        self._tasks.update({task.id: task for task in tasks})
        self._queue.add(tasks)
        self._go_on()

    def _remark(self, text: str) -> None:
        finding = Finding(text, "warn", "sweep-child")
        self.run.journal.append("finding", finding=finding.document())

    def requested(self, request: dict[str, Any]) -> None:
        if request.get("request") == REQUEST:
            self._look_for_more()
            self._go_on()

    def second(self, now: float) -> None:
        self._say_progress()
        if self._journal.last_error is not None:
            self._journal.flush()
        self._send()  # what the disk had no room for at first
        self._confirm()
        if self._study is not None:
            self._study.second(now)
            if self._siblings is not None:
                self._siblings.second(now, self._journal.lane, self._study.heard)
        self._go_on()

    def _say_progress(self) -> None:
        done = (self._states.done, self._states.failed)
        if done != self._told:
            self._told = done
            about: dict[str, Any] = {"tasks": len(self._tasks), "done": done[0], "failed": done[1]}
            if self._study is not None:
                about["best"] = self._study.best
            self.run.journal.append("tasks_progress", durable=False, **about)

    def words(self) -> str:
        return self._with_best(f"{self._states.done} {self._what} done")

    def _with_best(self, text: str) -> str:
        best = self._study.best if self._study is not None else None
        return text if best is None else f"{text}; best: {best['text']}"

    def close(self) -> None:
        self._over = True
        self._say_progress()
        if self._study is not None:
            self._study.close()
        self._journal.flush()

    async def finish(self) -> None:
        await self._journal.durable()
        if self._study is not None:
            await self._study.finish()

    def _new_attempt(self, number: int, nodes: Collection[str]) -> None:
        """Nothing of this supervisor's attempt before runs any more: what it had waits again, and what other nodes than these had."""
        gone = [node for node in self._aside if self._attempt or node not in nodes]
        lost = self._queue.forget_nodes() + [task for node in gone for task in self._aside.pop(node)]
        self._attempt = number
        self._heard.clear()
        self._to_confirm.clear()
        for task in lost:
            self._states.of(task.id).runs = False
        self._queue.add(sorted(lost, key=lambda task: task.id), first=True)
        self._unsent.clear()
        self._parts.clear()
        self._over = self._late = False

    def _whole(self, node: str, rows: Iterable[list[Any]]) -> Iterator[list[Any]]:
        """Yield the ends of tasks that have ended on all their nodes; where they fail on one, they are broken off on the others."""
        for row in rows:
            whole, broken = self._parts.take(node, row, self._queue.places(row[0]))
            self._tell_nodes(broken, "broken", row[0], row[1])
            if whole is not None:
                yield whole

    def _tell_nodes(self, nodes: Iterable[str], what: str, task: int, number: int) -> None:
        for node in nodes:
            self._order(node, PoolTasks(self._attempt), json.dumps({what: [[task, number]]}).encode())

    def _met(self, node: str, task: int, number: int, ports: Optional[list[int]], problem: str) -> None:
        """A trial's first node has found where its ranks can meet, or has said why not."""
        nodes = self._queue.places(task)
        if not nodes or self._states.of(task).given != number:
            return
        if ports is None:
            self._take_ends(node, [[task, number, None, None, "not_started", 0.0, 0, 0.0, problem, None]])
            return
        self._send_orders(nodes, [self._tasks[task]], TrialPlaces(nodes, (ports[0], ports[1])))

    def _take_ends(self, node: str, rows: Iterable[list[Any]]) -> None:
        """Take how tasks have ended: into the journal, and what is to be run again into the queue."""
        ends, again = [], []
        for task_id, number, code, signal, reason, seconds, peak, cpu_s, text, value in rows:
            task = self._queue.ended(node, task_id, seconds)
            if task is None:
                continue
            state = self._states.of(task_id)
            if self._study is not None and code == 0 and reason == "exited" and value is None:
                code, text = None, self._study.without_value
            well = reason == HALVED or (code == 0 and reason == "exited")
            outcome = LOST if reason == "stopped" else DONE if well else FAILED
            end = TaskEnd(task_id, number, outcome, code, signal, reason, seconds, peak, cpu_s, text, value, node)
            if outcome == FAILED and reason != "not_started" and state.may_fail(end.kind, self._retries):
                end = end._replace(outcome=AGAIN)
            if self._states.ends(end):
                outcome = end.outcome
                ends.append(end.row())
                if self._study is not None and outcome in (DONE, FAILED):
                    self._study.ended(task_id)
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
            elif event["event"] == WANTED and (event["epoch"], event["seq"]) not in self._wanted:
                self._states.take(event)
                self._wanted.add((event["epoch"], event["seq"]))
                if self._study is not None:
                    self._study.changed()
            elif event["event"] == "tasks_retried" and event["epoch"] >= self._journal.epoch:
                self._queue.add(self._tasks[task] for task in self._states.retry(event["tasks"]))

    # What is done

    def _go_on(self) -> None:
        """Give nodes what they have room for; end the run where nothing is left."""
        attempt = self.run.attempt()
        if self._over or not self._attempt or attempt is None or attempt.number != self._attempt or self._aside:
            return
        left_s = self.run.left_s()
        more_come = self._study is not None and self._study.ask(self._queue)
        if self._stop_after is None or self._states.failed < self._stop_after:
            if len(self._queue.nodes) == len(attempt.nodes):
                self._refuse(self._queue.fits_nowhere())
            for node, tasks in self._queue.give(left_s).items():
                for first in range(0, len(tasks), _MOST_TOGETHER):
                    self._give(node, tasks[first : first + _MOST_TOGETHER])
            if not self._queue.out and self._queue.too_late(left_s) and not self._late:
                self._late = True
                none = "none could end in the time that the job has left"
                self.run.happened(TimeIsNear(monotonic(), f"of the tasks that are left, {len(self._queue)}, {none}"))
        elif not self._queue.out:
            self._end()
        if not len(self._queue) and not self._queue.out and not more_come:
            self._end()

    def _refuse(self, tasks: list[FarmTask]) -> None:
        """Tasks that ask for more than any node has have failed."""
        ends = []
        for task in tasks:
            state = self._states.of(task.id)
            self._states.given(task.id, state.given + 1)
            text = f"it asks for {task.nodes} nodes, and of {len(self._queue.nodes)} not so many have what it asks each for"
            text = text if task.nodes > 1 else "it asks for more than any node has"
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
        self._journal.lane.submit(lambda: None).add_done_callback(lambda _: loop.call_soon_threadsafe(then))

    def _send(self) -> None:
        """Send the orders whose tries are in the journal."""
        written = self._journal.written_until
        while self._unsent and self._unsent[0][0] <= written:
            _, node, tasks = self._unsent.pop(0)
            for task in tasks:
                if task.has_world:
                    self._tell_nodes([node], "meet", task.id, self._states.of(task.id).given)
            self._send_orders([node], [task for task in tasks if not task.has_world])

    def _send_orders(self, nodes: Iterable[str], tasks: list[FarmTask], places: Optional[TrialPlaces] = None) -> None:
        left_s = self.run.left_s()
        end_at = None if left_s is None else unix_s() + left_s
        orders = [PoolOrder(task, self._states.of(task.id).given, end_at, places).document() for task in tasks]
        for node in nodes if orders else ():
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
        broken = self._study.broken if self._study is not None else ""
        if not failed and not broken:
            for node in self._queue.nodes:
                self._order(node, PoolTasks(self._attempt, last=True))
            return
        text = f"{failed} of {count} {self._what} failed"
        if len(self._queue):
            text += f"; {len(self._queue)} were not started, as [farm] stop_after = {self._stop_after} says"
        show = f"`cordee farm show {self.run.folder.id} --failed` lists them"
        if self._study is not None:
            show = f"`cordee sweep show {self.run.folder.id}` lists them"
        whole = Path(self.run.plan.parent).name if self.run.plan.parent else self.run.folder.id
        then = f"{show}, `cordee farm retry {whole}` runs them again"
        if broken:
            text = f"{text}; {broken}" if failed else broken
            then = f"`cordee resume {self.run.folder.id}` starts the sampler again"
        text = self._with_best(text)
        self.run.journal.append("finding", finding=Finding(text, "error", "farm-failed", next=then).document())
        outcome = AttemptOutcome("failed", Failure("farm", reason="end", message=text), text)
        self.run.happened(HangFound(number, AskToStop(monotonic(), outcome, 0.0, "")))
