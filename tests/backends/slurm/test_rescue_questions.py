"""What all agents of a run together ask slurmctld, in virtual time: the numbers that operators are told."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest

from cordee.backends.slurm.node import rescue
from cordee.backends.slurm.node.job import JobStart
from cordee.backends.slurm.node.rescue import SlurmRescue
from cordee.runs.folder import RunFolder
from cordee.runs.plan import Checkpoints, RunPlan, RunSampling, RunSegment, RunStep, RunTasks, RunTimeouts
from support.simulation.loop import VirtualClocks, VirtualLoop

STEP = RunStep(RunTasks(("true",), {}), Checkpoints("/run/checkpoints"), segment=RunSegment("requeue"))
PLAN = RunPlan("r", "slurm", "/", "/", "/run", (STEP,), RunTimeouts(60.0, 1.0, 10.0, 60.0, 2.0, 6.0), RunSampling(1.0))


class Controller:
    """Answers all agents with the same word, and notes when and by whom it is asked."""

    def __init__(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
        self.loop, self.folder = VirtualLoop(), RunFolder.create(tmp_path, "t-20261121T000000Z-aaaa")
        self.word = "running"
        self.asked: list[tuple[float, str]] = []
        monkeypatch.setattr(rescue, "time", VirtualClocks(self.loop))
        monkeypatch.setattr(rescue, "expand_nodes", lru_cache(rescue.expand_nodes))
        monkeypatch.setenv("SLURM_JOB_NODELIST", f"n[0-{nodes - 1}]")

    def agent(self, index: int) -> SlurmRescue:
        return SlurmRescue(self.folder, PLAN, _Counted("7", 0, f"n{index}", controller=self))

    def lasts(self, seconds: float, *work: Coroutine[Any, Any, Any]) -> list[tuple[float, str]]:
        """Return what was asked in so many seconds, from the first."""

        async def wait() -> None:
            tasks = [asyncio.ensure_future(one) for one in work]
            await asyncio.wait(tasks, timeout=seconds)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        began = self.loop.time()
        self.loop.run_until_complete(wait())
        return [(moment - began, node) for moment, node in self.asked]


class _Counted(JobStart):
    def __init__(self, *words: Any, controller: Controller) -> None:
        super().__init__(*words)
        object.__setattr__(self, "controller", controller)

    def fate(self) -> str:
        self.controller.asked.append((self.controller.loop.time(), self.node))
        return self.controller.word

    def look(self, script_node: str = "") -> tuple[str, bool]:
        return self.fate(), False

    def go_on(self, folder: Any, how: str, fate: str = "unknown") -> dict[str, Any]:
        return {"how": how, "job": self.job}


@pytest.fixture
def controller(tmp_path, monkeypatch):
    return lambda nodes: Controller(tmp_path, monkeypatch, nodes)


def unled() -> bool:
    return False


@pytest.mark.parametrize(
    ("nodes", "lost", "first_s", "by"), [(2500, 1, 0, "n1"), (4, 1, 0, "n1"), (100, 2, 70, "n2"), (100, 3, 140, "n3")]
)
def test_agents_without_a_supervisor_look_once_a_minute_together(controller, nodes, lost, first_s, by):
    slurm = controller(nodes)
    asked = slurm.lasts(329.0, *(slurm.agent(index).orphaned() for index in range(lost, nodes)))
    assert first_s <= asked[0][0] <= first_s + 1
    assert {node for _, node in asked} == {by}
    # A look is two questions, and two a minute are allowed.
    assert all(later - earlier >= 60.0 for (earlier, _), (later, _) in pairwise(asked))


def test_agents_further_down_the_list_look_when_the_first_four_nodes_are_lost(controller):
    slurm = controller(100)
    asked = slurm.lasts(400.0, *(slurm.agent(index).orphaned() for index in range(4, 100)))
    assert [330.0 <= moment <= 335.0 for moment, _ in asked] == [True]


def test_agents_that_begin_and_find_no_supervisor_ask_six_times_in_half_a_minute(controller):
    slurm = controller(100)
    asked = slurm.lasts(30.0, *(slurm.agent(index).unheard(unled) for index in range(100)))
    assert len(asked) <= 6


@pytest.mark.parametrize("word", ["ended", "cancelled", "time_limit", "requeued"])
def test_the_end_of_a_job_is_asked_for_once_however_many_agents_are_told_to_end(controller, word):
    slurm = controller(100)
    slurm.word = word
    asked = slurm.lasts(60.0, *(slurm.agent(index).terminated(unled) for index in range(100)))
    assert len(asked) == 1


@pytest.mark.parametrize("word", ["running", "unknown"])
def test_until_slurm_knows_why_agents_are_told_to_end_they_ask_ten_times_in_half_a_minute(controller, word):
    slurm = controller(100)
    slurm.word = word
    asked = slurm.lasts(30.0, *(slurm.agent(index).terminated(unled) for index in range(100)))
    assert len(asked) <= 13
