"""Pair tests of real children on loopback, over a network whose nodes can be slow, cut off, frozen or gone."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cordee.systems.vetting.node.checks import Result
from cordee.systems.vetting.node.judge import pairing
from cordee.systems.vetting.node.judge.conduct import Conductor
from cordee.systems.vetting.node.judge.node_link import Question, VettedNode
from cordee.systems.vetting.node.judge.pairing import run_pairs
from cordee.systems.vetting.node.judge.pairs import PairOutcome, PairPolicy, PairTest
from cordee.systems.vetting.node.judge.verdict import decide
from cordee.systems.vetting.protocol.document import load_protocol
from cordee.wire.messages import Checks, ChecksDone, ChecksOutput, Clock, FreePorts, Port, Time
from cordee.wire.ports import pick_port
from support.hosts.fabric import SimulatedFabric

HOST = "127.0.0.1"
HEALTHY_BYTES_PER_S = 1e6
# Rates are set by relays, far apart, so low that nobody is short of cores for them, and measured for so long that a moment
# without a core does not count: a busy machine changes no outcome.
SETTINGS = {
    "name": "pairs", "required": True, "backend": "tcp", "seconds": 1.2, "payload_bytes": 65536,
    "ratio": 0.5,
}  # fmt: skip


class Network:
    """Nodes of this machine, each answering by real children; connections between them go through relays.

    Args:
        count: how many, named n0, n1, ...
        slow: by node, the share of the healthy rate.
        links: by pair, the same between them.
        cut_off: nodes that refuse connections and whose own are refused.
        gone: nodes that take no message any more.
        frozen: nodes that take messages and answer none.
    """

    def __init__(
        self,
        count: int,
        *,
        slow: dict[str, float] | None = None,
        links: dict[frozenset[str], float] | None = None,
        cut_off: tuple[str, ...] = (),
        gone: tuple[str, ...] = (),
        frozen: tuple[str, ...] = (),
    ) -> None:
        self._slow, self._links = slow or {}, links or {}
        self._cut_off, self._gone, self._frozen = set(cut_off), set(gone), set(frozen)
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked: list[dict[str, Any]] = []
        self.members = {f"n{index}": self._member(f"n{index}") for index in range(count)}

    async def run(self, **more: Any) -> PairOutcome:
        """Run a pair test over all of them."""
        settings = {**SETTINGS, **more.pop("settings", {})}
        arguments = {"switches": {}, "baseline": None, "deadline_s": 240.0, "seed": "seed", **more}
        outcome = await run_pairs(self.members, settings, **arguments)
        for task in self._tasks:
            task.cancel()
        return outcome

    def _member(self, name: str) -> VettedNode:
        def send(question: Question) -> bool:
            if name in self._gone:
                return False
            if name not in self._frozen:
                self._spawn(self._answer(member, question))
            return True

        member = VettedNode(name, send, HOST)
        return member

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, member: VettedNode, question: Question) -> None:
        if isinstance(question, Port):
            member.message(FreePorts(question.id, (pick_port(HOST),), ""), b"")
            return
        if isinstance(question, Clock):
            member.message(Time(question.id, time.time()), b"")
            return
        # As agents do: its deadline counts from now, not from when its process has started.
        request = {**question.request, "asked_at": time.monotonic()}
        self.asked.append({"node": member.name, **request})
        parameters = request["checks"][0]["parameters"]
        if parameters["role"] == "connect":
            parameters["port"] = await self._way(member.name, parameters["peer"], parameters["port"])
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cordee.systems.vetting.node.checks",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await child.communicate(json.dumps(request).encode())
        member.message(ChecksOutput(question.id), output)
        member.message(ChecksDone(question.id, child.returncode, None, "exited", ""), b"")

    async def _way(self, a: str, b: str, port: int) -> int:
        """Return the port of a relay to `port` that is as fast as the way between the two nodes."""
        if {a, b} & self._cut_off:
            return pick_port(HOST)
        share = min(self._slow.get(a, 1.0), self._slow.get(b, 1.0)) * self._links.get(frozenset((a, b)), 1.0)
        return await relay(port, HEALTHY_BYTES_PER_S * share, self._spawn)


async def relay(port: int, bytes_per_s: float, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> int:
    """Pass connections on to a port at a limited rate in each direction; return where the relay listens."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(HOST, port)
        except OSError:
            writer.close()
            return
        spawn(pump(reader, back))
        spawn(pump(there, writer))

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began, passed = time.monotonic(), 0
        try:
            while data := await reader.read(8192):
                writer.write(data)
                await writer.drain()
                passed += len(data)
                await asyncio.sleep(passed / bytes_per_s - (time.monotonic() - began))
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(accept, HOST, pick_port(HOST), limit=8192)
    return int(server.sockets[0].getsockname()[1])


def run(network: Network, **more: Any) -> PairOutcome:
    return asyncio.run(network.run(**more))


def off(outcome: PairOutcome) -> dict[str, str]:
    return {node: result["status"] for node, result in outcome.results.items() if result["status"] != "pass"}


@pytest.fixture(autouse=True)
def _children_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if entry))


@pytest.fixture(autouse=True)
def _all_nodes_share_the_cores_of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_ROUND_SLACK_S", 40.0)
    monkeypatch.setattr(pairing, "PairPolicy", functools.partial(PairPolicy, flapping_ratio=0.02))


def test_two_healthy_nodes_pass_and_the_results_bear_the_protocols_name() -> None:
    outcome = run(Network(2))
    assert off(outcome) == {}, outcome.results
    assert [result["name"] for result in outcome.results.values()] == ["pairs", "pairs"]
    assert [pair["round"] for pair in outcome.pairs] == [1, 2]


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_the_slow_node_is_named() -> None:
    outcome = run(Network(4, slow={"n2": 0.1}))
    # On a busy machine a link between two others may be slow too.
    assert [node for node, word in off(outcome).items() if word == "fail"] == ["n2"]
    document = decide({}, {node: [] for node in outcome.results}, outcome)
    assert (document["verdict"], document["exclude"]) == ("exclude", ["n2"])


@pytest.mark.usefixtures("real")
def test_a_slow_link_is_named_and_its_nodes_stay() -> None:
    a, b = asyncio.run(_first_pair())
    outcome = run(Network(4, links={frozenset((a, b)): 0.1}))
    assert [sorted(fault["nodes"]) for fault in outcome.links] == [sorted((a, b))]
    assert (off(outcome)[a], off(outcome)[b]) == ("warn", "warn"), outcome.results
    assert "fail" not in off(outcome).values(), outcome.results


async def _first_pair() -> tuple[str, str]:
    from cordee.systems.vetting.node.judge.pairs import PairTest

    return PairTest([f"n{index}" for index in range(4)], "seed").next_round()[0]


@pytest.mark.usefixtures("real")
def test_a_node_that_is_cut_off_is_named_and_its_partners_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_ROUND_SLACK_S", 10.0)
    outcome = run(Network(4, cut_off=("n1",)), settings={"retests": 0})
    assert off(outcome) == {"n1": "fail"}
    assert "n1 exchanged no data with any of" in outcome.results["n1"]["evidence"]
    assert "refused" in outcome.results["n1"]["evidence"]


@pytest.mark.usefixtures("real")
def test_a_node_whose_agent_is_gone_is_silent_and_its_partners_are_met_again() -> None:
    outcome = run(Network(4, gone=("n3",)))
    assert off(outcome) == {"n3": "unknown"}, outcome.results
    assert outcome.results["n3"]["cause"] == "silent"


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_a_frozen_node_is_silent() -> None:
    outcome = run(Network(4, frozen=("n3",)))
    assert off(outcome) == {"n3": "unknown"}, outcome.results
    assert outcome.results["n3"]["cause"] == "silent"


@pytest.mark.parametrize("answer", ["none", "too late to begin"])
def test_a_node_that_is_busy_in_one_round_is_met_again(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_ROUND_SLACK_S", 0.3)
    outcome = asyncio.run(_meet_busy(["n2"], answer))
    assert off(outcome) == {}, outcome.results
    assert [pair["nodes"] for pair in outcome.pairs if pair["bytes_per_s"] is None] == [outcome.pairs[0]["nodes"]]


async def _meet_busy(busy: list[str], answer: str) -> PairOutcome:
    """Have four nodes say that they measured each other; those that are busy do not in their first meeting."""
    members: dict[str, VettedNode] = {}

    def node(name: str) -> VettedNode:
        def send(question: Question) -> bool:
            if not isinstance(question, Checks):
                port = isinstance(question, Port)
                told = FreePorts(question.id, (1,), "") if port else Time(question.id, time.time())
                asyncio.get_running_loop().call_soon(members[name].message, told, b"")
                return True
            result = Result("pair.bandwidth", "pass", value=1e9, facts={"peer": "another"})
            if name in busy:
                busy.remove(name)
                if answer == "none":
                    return True
                result = Result("pair.bandwidth", "unknown", evidence="no time was left", cause="timeout")
            result.name = "pair.bandwidth"
            output = json.dumps(result.document()).encode() + b"\n"
            members[name].message(ChecksOutput(question.id), output)
            members[name].message(ChecksDone(question.id, 0, None, "exited", ""), b"")
            return True

        return VettedNode(name, send, HOST)

    members.update({f"n{index}": node(f"n{index}") for index in range(4)})
    return await run_pairs(members, {**SETTINGS, "seconds": 0.1}, {}, None, 60.0, seed="seed")


def test_without_time_for_a_round_nothing_is_asked_and_all_are_unknown() -> None:
    nodes = Network(2)
    outcome = run(nodes, deadline_s=1.0)
    assert nodes.asked == []
    assert off(outcome) == {"n0": "unknown", "n1": "unknown"}
    assert decide({}, {"n0": [], "n1": []}, outcome)["verdict"] == "abort"


def test_where_torch_is_missing_everywhere_nobody_is_blamed(tmp_path: Any) -> None:
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    outcome = run(Network(2), settings={"backend": "torch"}, env=env)
    assert off(outcome) == {"n0": "unknown", "n1": "unknown"}
    assert "torch cannot be imported" in outcome.results["n0"]["evidence"]
    document = decide({}, {"n0": [], "n1": []}, outcome)
    assert (document["verdict"], document["exclude"]) == ("abort", [])


def test_each_meeting_has_its_own_token_and_the_request_is_passed_on() -> None:
    nodes = Network(2)
    run(nodes, workdir="/tmp")
    tokens = {asked["checks"][0]["parameters"]["token"] for asked in nodes.asked}
    assert len(tokens) == 2
    assert {asked["workdir"] for asked in nodes.asked} == {"/tmp"}


@pytest.mark.parametrize(("load", "outcome"), [("pass", ("exclude", ["n3"])), ("unknown", ("continue", []))])
def test_a_slow_node_is_left_out_of_an_allocation_unless_its_host_is_busy(load, outcome, monkeypatch, tmp_path) -> None:
    async def simulated(members: Any, *_: Any, busy: Any, **more: Any) -> PairOutcome:
        return SimulatedFabric(slow={"n3": 0.7}, noise=0, dip_ratio=0).run(PairTest(members, "seed", busy=busy))

    monkeypatch.setattr(pairing, "run_pairs", simulated)
    path = tmp_path / "protocol.yaml"
    path.write_text(
        "name: p\nevals:\n- {name: load, type: host.load, required: false}\n- {name: pairs, type: pair.bandwidth}\n"
    )
    conductor = Conductor(load_protocol(path).resolved(), {})
    names = ("n0", "n1", "n2", "n3")
    reports = {
        node: [
            {
                **Result("host.load", load if node == "n3" else "pass", value=3.0, cause="busy").document(),
                "required": False,
            }
        ]
        for node in names
    }
    members = {node: VettedNode(node, lambda message: True, HOST) for node in names}
    document = asyncio.run(conductor.conclude(members, reports))
    assert (document["verdict"], document["exclude"]) == outcome


class MeetingGpus:
    """A node whose GPU exchanges data at a rate that is given."""

    address = HOST

    def __init__(self, name: str, model: str | None) -> None:
        self.name, self.model = name, model

    async def free_port(self) -> int:
        return 1

    async def check(self, entries: list[dict[str, Any]], *args: Any, **request: Any) -> list[dict[str, Any]]:
        facts = {"peer": entries[0]["parameters"]["peer"], **({"model": self.model} if self.model else {})}
        return [{"status": "pass", "value": 4e10, "evidence": "", "cause": None, "facts": facts}]


@pytest.mark.parametrize("model", ["NVIDIA H100 80GB HBM3", None])
def test_what_was_measured_between_gpus_says_between_which(model):
    members: Any = {name: MeetingGpus(name, model) for name in ("n1", "n2")}
    outcome = asyncio.run(run_pairs(members, {"seconds": 0.1}, {}, None, 30.0))
    assert {name: result["facts"].get("model") for name, result in outcome.results.items()} == dict.fromkeys(
        members, model
    )
