"""Tasks that run on when a supervisor dies: what pools say to the next one, and what that makes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cordee.control.launch import RankCommand
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.watchers import WatchedRun
from cordee.core.clock import monotonic
from cordee.job.submit.prepare import create_run, prepare
from cordee.machine.slots import Given, SlotRequest
from cordee.machine.tasks.task import Task, TaskExit
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.lane import Lane
from cordee.runs.plan import read_plan
from cordee.systems.trials.node.dispatcher import FarmDispatcher
from cordee.systems.trials.node.pool import PoolOrder, TaskPool
from cordee.systems.trials.node.task_list import FarmTask
from cordee.systems.trials.node.trial_world import TrialPlaces
from cordee.wire.messages import PoolNews, PoolTasks

ROOM = [2, 0, 1000]


def farm_of(folder: Path, count: int) -> RunFolder:
    job = folder / "job"
    job.mkdir()
    (job / "cordee.toml").write_text('name = "farm"\nrun = ["sh", "-c", "{line}"]\n[farm]\nfile = "tasks.txt"\n')
    (job / "tasks.txt").write_text("true\n" * count)
    return create_run(prepare(str(job), "local", {}, folder / "runs"))


class Dispatched:
    """The dispatcher of one supervisor of a farm, and what nodes were ordered: the ids of tasks, or what else was said."""

    def __init__(self, folder: RunFolder, epoch: int, nodes: list[str], attempt: int) -> None:
        self.nodes = {name: Node(name) for name in ("a", "b")}
        self.ordered: list[tuple[str, Any]] = []
        there = SimpleNamespace(number=attempt, nodes=[self.nodes[name] for name in nodes])
        journal = JournalWriter(folder.journal, f"supervisor-{epoch}", epoch)
        about = (read_plan(folder), folder, self.nodes, journal, self._order, lambda: there)
        self.attempt = attempt
        self.it = FarmDispatcher(WatchedRun(*about, print, print, Lane))  # type: ignore[arg-type]

    def _order(self, to: Node, message: Any, body: bytes = b"") -> bool:
        documents = json.loads(body) if body else "last"
        said = [task["id"] for task in documents] if isinstance(documents, list) else documents
        self.ordered.append((to.name, said))
        return True

    def news(self, node: str, **news: Any) -> None:
        self.it.pool_news(self.nodes[node], PoolNews(self.attempt), json.dumps(news).encode())

    async def until(self, condition: Callable[[], Any]) -> None:
        while not condition():
            self.it.second(monotonic())
            await asyncio.sleep(0.02)


def row(task: int, number: int = 1) -> list[Any]:
    return [task, number, 0, None, "exited", 0.1, 0, 0.0, "", None]


def run(live: Any) -> None:
    asyncio.run(asyncio.wait_for(live, 30))


def given(folder: RunFolder) -> list[list[int]]:
    events = read_journal(folder.root / "tasks/journal")
    return [pair for event in events if event["event"] == "tasks_given" for pair in event["tasks"]]


def test_the_next_supervisor_gives_out_nothing_before_each_node_has_said_what_runs_on_there(tmp_path: Path) -> None:
    folder = farm_of(tmp_path, 5)

    async def live() -> None:
        first = Dispatched(folder, 1, ["a", "b"], 1)
        first.news("a", room=ROOM)
        first.news("b", room=ROOM)
        await first.until(lambda: len(first.ordered) == 2)
        assert sorted(first.ordered) == [("a", [0, 1]), ("b", [2, 3])]
        await first.it._journal.durable()

        second = Dispatched(folder, 2, ["a", "b"], 2)
        second.news("a", room=ROOM, held=[[0, 1]], ended=[row(1)])
        for _ in range(5):
            second.it.second(monotonic())
            await asyncio.sleep(0.02)
        assert [one for one in second.ordered if isinstance(one[1], list)] == []
        second.news("b", room=ROOM, held=[[3, 1]])
        await second.until(lambda: len([one for one in second.ordered if isinstance(one[1], list)]) == 2)
        again = {task for _, tasks in second.ordered if isinstance(tasks, list) for task in tasks}
        assert again == {2, 4}
        second.news("a", ended=[row(0)])
        second.news("b", ended=[row(3)])
        places = {task: node for node, tasks in second.ordered if isinstance(tasks, list) for task in tasks}
        for task, number in ((2, 2), (4, 1)):
            second.news(places[task], ended=[row(task, number)])
        await second.until(lambda: ("a", "last") in second.ordered)

    run(live())
    assert sorted(given(folder)) == [[0, 1], [1, 1], [2, 1], [2, 2], [3, 1], [4, 1]]


def test_what_a_node_had_that_the_next_attempt_does_not_have_runs_again(tmp_path: Path) -> None:
    folder = farm_of(tmp_path, 2)

    async def live() -> None:
        first = Dispatched(folder, 1, ["b"], 1)
        first.news("b", room=ROOM)
        await first.until(lambda: first.ordered == [("b", [0, 1])])
        await first.it._journal.durable()
        second = Dispatched(folder, 2, ["a"], 2)
        second.news("a", room=ROOM)
        await second.until(lambda: second.ordered == [("a", [0, 1])])

    run(live())
    assert sorted(given(folder)) == [[0, 1], [0, 2], [1, 1], [1, 2]]


def test_a_try_that_the_journal_lost_with_its_machine_is_broken_off_and_its_number_is_not_used_again(
    tmp_path: Path,
) -> None:
    folder = farm_of(tmp_path, 1)

    async def live() -> None:
        told = Dispatched(folder, 2, ["a"], 2)
        told.news("a", room=ROOM, held=[[0, 1]])
        await told.until(lambda: ("a", [0]) in told.ordered)
        assert [said["broken"] for _, said in told.ordered if isinstance(said, dict) and said.get("broken")] == [
            [[0, 1]]
        ]

    run(live())
    assert given(folder) == [[0, 2]]


def test_nodes_are_told_which_ends_are_on_the_disk_for_good(tmp_path: Path) -> None:
    folder = farm_of(tmp_path, 8)

    async def live() -> None:
        told = Dispatched(folder, 1, ["a"], 1)
        told.news("a", room=ROOM)
        await told.until(lambda: len(told.ordered) == 1)
        told.news("a", ended=[row(0)])
        told.news("a", ended=[row(1)])
        await told.until(lambda: ("a", {"known": 2}) in told.ordered)

    run(live())


class Host:
    """An agent whose tasks never end by themselves; `news` is what a pool of it has said."""

    def __init__(self) -> None:
        self.news: list[dict[str, Any]] = []
        self.ends: dict[str, Callable[[TaskExit], None]] = {}
        self.tasks = SimpleNamespace(hang_up=self._hang_up, stop=lambda group, grace_s: None)
        self.watched = SimpleNamespace(tasks=self.tasks, run_task=self._run)
        self.slots = SimpleNamespace(
            look_again=lambda: None,
            has=SimpleNamespace(cores=(), gpus=(), memory_bytes=0),
            lend=lambda name, asks: Given(),
            take_back=lambda name: None,
        )
        self.hung: list[str] = []

    def _run(self, task: Task, ended: Callable[[TaskExit], None], output: object = None) -> None:
        self.ends[task.id] = ended

    def _hang_up(self, task: str) -> None:
        self.hung.append(task)

    def end(self, task: str) -> None:
        self.ends.pop(task)(TaskExit(task, 0, None, "exited", 0.1))

    def rank_started(self, *about: object) -> None:
        pass

    def pool_news(self, world: object, body: bytes) -> None:
        self.news.append(json.loads(body))

    def told(self) -> list[list[int]]:
        return [one[:2] for news in self.news for one in news.get("ended", ())]


def order(task: int, **more: Any) -> bytes:
    one = FarmTask(task, {"line": "true"}, SlotRequest(1, 0, 0), None, **more)
    places = TrialPlaces(("a", "b"), (1, 2)) if more else None
    return json.dumps([PoolOrder(one, 1, None, places).document()]).encode()


def world_of(attempt: int) -> Any:
    return SimpleNamespace(attempt=attempt, node="a", node_rank=0, addresses=("127.0.0.1",))


def test_a_pool_goes_on_under_the_next_supervisor_and_says_again_what_that_may_not_know(tmp_path: Path) -> None:
    folder = farm_of(tmp_path, 1)

    async def live() -> None:
        before, after = Host(), Host()
        pool = TaskPool(before, read_plan(folder), world_of(1))  # type: ignore[arg-type]
        pool._environments = lambda order: [{}]  # type: ignore[method-assign]
        rank = RankCommand(0, ("true",), {}, "/")
        pool.start([rank])
        for task in range(5):
            pool.take_tasks(PoolTasks(1), order(task))
        pool.take_tasks(PoolTasks(1), order(5, nodes=2, ranks=1))
        for task in range(3):
            before.end(f"task-{task}-1")
            await asyncio.sleep(0.05)
        assert before.told() == [[0, 1], [1, 1], [2, 1]]
        pool.take_tasks(PoolTasks(1), b'{"known": 1}')

        assert pool.keep()
        assert sorted(pool.kept) == ["task-3-1", "task-4-1"]
        assert before.hung == ["task-5-1"]
        before.end("task-3-1")
        await asyncio.sleep(0.05)
        assert len(before.told()) == 3
        pool.go_on(after, world_of(2))  # type: ignore[arg-type]
        pool.start([rank])
        assert after.news[0]["held"] == [[4, 1], [5, 1]]
        assert after.told() == [[1, 1], [2, 1], [3, 1]]
        pool.take_tasks(PoolTasks(2), b'{"known": 3}')
        before.end("task-4-1")
        await asyncio.sleep(0.05)
        assert after.told()[3:] == [[4, 1]]
        assert len(before.told()) == 3

    run(live())


def test_a_pool_that_is_being_ended_keeps_nothing(tmp_path: Path) -> None:
    folder = farm_of(tmp_path, 1)

    async def live() -> None:
        pool = TaskPool(Host(), read_plan(folder), world_of(1))  # type: ignore[arg-type]
        pool.stop(0.0)
        assert not pool.keep()

    run(live())
