"""What carries decisions out: in their order, when they are due, and orders not before what they wait for is durable."""

from __future__ import annotations

import asyncio
import errno

from cordee.control.supervisor.agents import Agents
from cordee.control.supervisor.decisions.nodes import Nodes
from cordee.control.supervisor.decisions.vocabulary import AgentCame, Order, OrderEach, Passed, Write
from cordee.control.supervisor.machines import Machines
from cordee.core.clock import monotonic
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.runs.lane import Lane
from cordee.wire import messages
from support.disks import FaultyDisk


class Counting:
    """Answers each number with the numbers below it, and wants to be woken twice."""

    def __init__(self):
        self.due = None
        self.seen = []
        self.woken = []

    def decide(self, event):
        if isinstance(event, Passed):
            self.woken.append(event.now)
            self.due = event.now + 0.01 if len(self.woken) < 2 else None
            return []
        self.seen.append(event)
        return list(range(event))


def unexpected(machine, error):
    return False


def test_what_a_command_makes_happen_is_decided_on_after_all_commands_before_it():
    counting, machines, done = Counting(), Machines(unexpected), []

    def do(number):
        machines.happened(counting, number)
        done.append(number)

    machines.doings[int] = do
    machines.happened(counting, 3)
    assert counting.seen == [3, 0, 1, 2, 0, 0, 1, 0]
    assert done == [0, 1, 2, 0, 0, 1, 0]


def test_a_machine_is_told_that_time_has_passed_when_it_wants_to():
    counting, machines = Counting(), Machines(unexpected)

    async def lead():
        began = counting.due = monotonic()
        machines.happened(counting, 0)
        while len(counting.woken) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        return began

    began = asyncio.run(lead())
    first, second = counting.woken
    assert began <= first < second


def test_what_goes_wrong_in_one_decision_is_told_and_the_next_event_is_taken():
    counting, told = Counting(), []
    machines = Machines(lambda machine, error: told.append((machine, str(error))) is None)
    machines.happened(counting, 1)  # nothing carries a number out
    machines.happened(counting, 0)
    assert counting.seen == [1, 0]
    assert [machine for machine, _ in told] == [counting]


class Link:
    def __init__(self):
        self.sent = []

    def send(self, message, body=b""):
        self.sent.append(message["t"])


class Decided:
    due = None

    def decide(self, commands):
        return commands


def hold_an_order(tmp_path, meanwhile):
    """Return what an agent was sent when an order had to wait for the journal: at that moment, and at the end."""
    folder, disk = RunFolder.create(tmp_path, "led-20260101T000000Z-abcd"), FaultyDisk()
    journal = JournalWriter(folder.journal, "supervisor-1", 1, disk=disk, lane=Lane("writing"))
    nodes, machines, link, out = Nodes(["a"], 1, 1, 20.0), Machines(unexpected), Link(), []
    agents = Agents(machines, nodes, journal, None, lambda: None, lambda: None, out.append)
    hello = messages.Hello(1, 7, 1, "h", "3.9", messages.Slots(), epoch=1, attempt=0, living=())
    nodes.decide(AgentCame(0.0, "a", link, hello, "10.0.0.1"))

    async def lead():
        disk.fail("fsync", errno.EIO, times=-1)
        begun, start = Write("attempt_started", {}, mark="1"), Order("a", messages.Clear(), after="1")
        machines.happened(Decided(), [begun, start, Order("a", messages.Bye())])
        agents.tell(nodes.by_name["a"], messages.Lease(1.0))
        while journal.refused_since is None:
            await asyncio.sleep(0.01)
        before = list(link.sent)
        meanwhile(nodes, link, hello)
        disk.release()
        while not out:
            await asyncio.sleep(0.01)
        return before

    before = asyncio.run(lead())
    assert (out, journal.durable_until) == ([None], 1)
    return before, link.sent


def test_an_order_waits_until_what_it_names_is_durable_and_later_ones_wait_behind_it(tmp_path):
    assert hold_an_order(tmp_path, lambda *_: None) == (["lease"], ["lease", "clear", "bye"])


def test_an_order_that_waits_is_not_given_to_the_agent_that_follows_the_one_it_was_for(tmp_path):
    def replaced(nodes, link, hello):
        link.sent.clear()
        nodes.decide(AgentCame(1.0, "a", link, hello._replace(incarnation=2, pid=8), "10.0.0.1"))

    assert hold_an_order(tmp_path, replaced) == (["lease"], [])


def test_orders_for_hundreds_of_nodes_go_out_in_parts_between_which_others_have_their_turn(tmp_path):
    folder = RunFolder.create(tmp_path, "led-20260101T000000Z-abcd")
    journal = JournalWriter(folder.journal, "supervisor-1", 1, lane=Lane("writing"))
    names = [f"n{number}" for number in range(950)]
    nodes, machines, link, out = Nodes(names, 1, 1, 20.0), Machines(unexpected), Link(), []
    Agents(machines, nodes, journal, None, lambda: None, lambda: None, out.append)
    hello = messages.Hello(1, 7, 1, "h", "3.9", messages.Slots(), epoch=1, attempt=0, living=())
    for name in names:
        nodes.decide(AgentCame(0.0, name, link, hello, "10.0.0.1"))
    turns, made = [], []

    class Decided:
        due = None

        def decide(self, commands):
            return commands

    async def sent(count):
        while len(link.sent) < count:
            before = len(link.sent)
            await asyncio.sleep(0)
            turns.append(len(link.sent) - before)

    async def lead():
        machines.happened(Decided(), [OrderEach(names, lambda place: messages.Signal("ranks-1", "USR1"))])
        assert len(link.sent) <= 250
        machines.happened(Decided(), [OrderEach(names, lambda place: messages.Stop("ranks-1", 0.0))])
        await sent(1900)
        await asyncio.sleep(0.01)
        assert out == []  # none of them waited for the journal
        begun = Write("attempt_started", {}, mark="1")
        clear = OrderEach(names, lambda place: made.append(place) or messages.Clear(), after="1")
        machines.happened(Decided(), [begun, clear])
        assert made == []  # each is made in its turn
        await sent(2850)
        while not out:
            await asyncio.sleep(0.01)

    asyncio.run(lead())
    assert max(turns) <= 250
    assert link.sent == ["signal"] * 950 + ["stop"] * 950 + ["clear"] * 950
    assert out == [None]
