"""Staging led from the supervisor: who is asked what, and what becomes of a node that is lost or cannot."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from cordee.control.supervisor.preparer import PreparedAllocation
from cordee.systems.data.node.stage.run_stager import SPARE_BYTES_PER_S, RunStager
from cordee.wire.messages import Staging

SET = {"name": "corpus", "place": "/store/corpus", "to": "node", "stage": {"tiers": []}}


class SimulatedNodes:
    """Nodes whose staging processes answer at once; `answers` changes what a node says to an order."""

    def __init__(self, names: str) -> None:
        self.nodes = {
            name: SimpleNamespace(
                name=name, address=f"10.0.0.{place}", incarnation=1, session=object(), ready=True, verdict="healthy"
            )
            for place, name in enumerate(names.split(), 1)
        }
        self.orders: list[tuple[str, dict]] = []
        self.events: list[tuple[str, dict]] = []
        self.answers: dict[tuple[str, str], dict | None] = {}
        self.begun: dict[str, str] = {}
        plan = SimpleNamespace(step=SimpleNamespace(data=(SET,)))
        journal = SimpleNamespace(append=lambda event, durable=True, **about: self.events.append((event, about)))
        allocation = PreparedAllocation(plan, "/run", self.nodes, journal, None, self.order, print, print)
        self.stager = RunStager(allocation)

    def order(self, node, message) -> bool:
        asked = message.request
        self.orders.append((node.name, asked))
        asyncio.get_running_loop().call_soon(self._answer, node, asked)
        return True

    def _answer(self, node, asked) -> None:
        do = asked["do"]
        if do == "begin":
            self.begun[node.name] = asked["begun"]
        usual = {
            "begin": [{"port": 20001}],
            "list": [{"listed": "corpus", "key": "k", "bytes": 5, "files": 1, "manifest": asked.get("out")}],
            "stage": [
                {"staged": "corpus", "tier": "node", "path": "/disk/corpus", "bytes": 5, "source_bytes": 5},
                {"done": True},
            ],
        }.get(do, [])
        changed = self.answers.get((node.name, do), {})
        if changed is None:
            return
        for said in usual:
            if "done" not in said and changed:
                said = {**said, **changed}
            self.stager.message(node, Staging("data", {**said, "begun": self.begun[node.name]}))

    def asked(self, do: str) -> list[tuple[str, dict]]:
        return [(name, asked) for name, asked in self.orders if asked["do"] == do]


def staged(nodes: SimulatedNodes, *chosen: str):
    async def stage():
        found = await asyncio.wait_for(nodes.stager.stage(list(chosen)), 5)
        await asyncio.sleep(0.05)
        return found

    return asyncio.run(stage())


def test_one_node_lists_and_all_stage_with_the_same_peers():
    nodes = SimulatedNodes("a b c")
    found = staged(nodes, "a", "b", "c")
    assert (found.refusal, found.lost) == (None, None)
    assert [name for name, _ in nodes.asked("list")] == ["a"]
    peers = [["a", "10.0.0.1", 20001], ["b", "10.0.0.2", 20001], ["c", "10.0.0.3", 20001]]
    assert [asked["peers"] for _, asked in nodes.asked("stage")] == [peers] * 3
    assert [event for event, _ in nodes.events] == [
        "staging_started",
        "data_listed",
        *["node_staged"] * 3,
        "staging_ended",
    ]
    assert [name for name, _ in nodes.asked("end")] == ["a", "b", "c"]


def test_of_a_set_in_parts_each_node_is_asked_for_its_own_and_spares_for_none():
    nodes = SimulatedNodes("a b spare")
    nodes.stager._sets = [{**SET, "stage": {"tiers": [], "part": True}}]
    staged(nodes, "b", "a")
    asked = [(name, [one["part"] for one in said["sets"]]) for name, said in nodes.asked("stage")]
    assert asked[:2] == [("b", [(0, 2)]), ("a", [(1, 2)])]
    assert ("spare", []) in asked[2:]


def test_spares_stage_afterwards_slowly_and_from_those_that_have_it():
    nodes = SimulatedNodes("a b spare")
    staged(nodes, "a", "b")
    (asked,) = [asked for name, asked in nodes.asked("stage") if name == "spare"]
    assert asked["rate"] == SPARE_BYTES_PER_S
    assert [peer[0] for peer in asked["peers"]] == ["a", "b"]
    assert nodes.events[-1][1]["node"] == "spare"
    assert {name for name, _ in nodes.asked("end")} == {"a", "b", "spare"}


def test_a_node_that_is_lost_is_told_and_the_next_choice_has_it_from_the_others():
    nodes = SimulatedNodes("a b c")
    nodes.nodes["c"].ready = False
    nodes.answers["b", "stage"] = None  # it never answers

    async def both():
        staging = asyncio.ensure_future(nodes.stager.stage(["a", "b"]))
        while not nodes.asked("stage"):
            await asyncio.sleep(0.01)
        nodes.nodes["b"].session = None
        nodes.stager.lost(nodes.nodes["b"], "its agent is gone")
        first = await asyncio.wait_for(staging, 5)
        nodes.nodes["c"].ready = True
        return first, await asyncio.wait_for(nodes.stager.stage(["a", "c"]), 5)

    first, second = asyncio.run(both())
    assert (first.refusal, first.lost) == (None, "b")
    assert (second.refusal, second.lost) == (None, None)
    assert [name for name, _ in nodes.asked("list")] == ["a"]  # it is known already
    assert nodes.asked("stage")[-1][0] == "c"
    assert nodes.asked("stage")[-1][1]["peers"] == [["a", "10.0.0.1", 20001]]


def test_what_a_node_cannot_stage_ends_the_run_with_its_name():
    nodes = SimulatedNodes("a b")
    nodes.answers["b", "stage"] = {"fault": "/disk is full", "given": "/store/corpus", "next": "make room there"}
    found = staged(nodes, "a", "b")
    assert found.refusal == "b cannot stage the data set corpus: /disk is full: /store/corpus; make room there"


def test_a_source_that_changes_is_listed_anew_and_refused_at_last():
    nodes = SimulatedNodes("a")
    nodes.answers["a", "stage"] = {"fault": "it changed", "changed": True, "given": "", "next": ""}
    found = staged(nodes, "a")
    assert found.refusal == "it changed: /store/corpus"
    assert len(nodes.asked("list")) == 3


def test_a_process_that_ends_early_is_told():
    nodes = SimulatedNodes("a")
    nodes.answers["a", "begin"] = None

    async def stage():
        staging = asyncio.ensure_future(nodes.stager.stage(["a"]))
        await asyncio.sleep(0.05)
        said = {"ended": "exited, code 1, signal None", "begun": nodes.begun["a"]}
        nodes.stager.message(nodes.nodes["a"], Staging("data", said))
        return await asyncio.wait_for(staging, 5)

    assert "a did not begin to stage: its process ended: exited, code 1" in asyncio.run(stage()).refusal
