"""New agents in an allocation: how few sruns bring them."""

from __future__ import annotations

import json

import pytest

from cordee.backends.slurm.node.starters import Starters
from cordee.control.identity import agent_file
from cordee.runs.folder import RunFolder, write_atomically


class Step:
    """An srun: `code` is None while it runs."""

    def __init__(self, argv: list[str]) -> None:
        self.nodes = next(word for word in argv if word.startswith("--nodelist=")).partition("=")[2].split(",")
        self.replaces = int(argv[-1])
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


@pytest.fixture
def slurm(tmp_path):
    """Starters, the sruns that they start, and a clock."""

    class Slurm:
        now = 100.0
        folder = RunFolder.create(tmp_path, "t-20261121T000000Z-aaaa")
        steps: list[Step] = []

        def start(self, argv: list[str]) -> Step:
            self.steps.append(Step(argv))
            return self.steps[-1]

        def arrive(self, node: str, incarnation: int) -> None:
            write_atomically(agent_file(self.folder, node), json.dumps({"incarnation": incarnation}))

        def wait(self, seconds: int) -> None:
            for _ in range(seconds):
                self.now += 1.0
                self.starters.look()

    made = Slurm()
    made.steps = []
    made.starters = Starters(made.folder, ["srun"], None, made.start, lambda: made.now)
    return made


def test_one_srun_starts_the_agents_of_all_nodes_that_were_lost_together(slurm):
    for index in range(100):
        slurm.starters.replace(f"n{index}", 1)
        slurm.starters.replace(f"n{index}", 1)
    slurm.wait(1)
    for index in range(100):
        slurm.arrive(f"n{index}", 2)
    slurm.wait(300)
    (step,) = slurm.steps
    assert step.nodes == [f"n{index}" for index in range(100)]
    assert step.replaces == 1


def test_a_node_that_slurm_refuses_does_not_keep_the_others_away_for_good(slurm):
    names = [f"n{index}" for index in range(16)]
    for name in names:
        slurm.starters.replace(name, 1)
    there: set[str] = set()
    for _ in range(600):
        slurm.wait(1)
        for step in slurm.steps:
            if step.code is None and "n5" in step.nodes:
                step.code = 1
            elif step.code is None:
                there.update(step.nodes)
                for name in step.nodes:
                    slurm.arrive(name, 2)
    assert there == set(names) - {"n5"}
    assert len(slurm.steps) <= 20  # in ten minutes: two a minute


def test_an_agent_that_does_not_come_while_its_srun_runs_is_started_again(slurm):
    slurm.starters.replace("n1", 1)
    slurm.starters.replace("n2", 1)
    slurm.wait(1)
    slurm.arrive("n1", 2)
    slurm.wait(120)
    assert [step.nodes for step in slurm.steps][:2] == [["n1", "n2"], ["n2"]]


def test_an_agent_that_is_lost_again_is_started_again(slurm):
    slurm.starters.replace("n1", 1)
    slurm.wait(1)
    slurm.arrive("n1", 2)
    slurm.starters.replace("n1", 2)
    slurm.wait(1)
    assert [step.replaces for step in slurm.steps] == [1, 2]
