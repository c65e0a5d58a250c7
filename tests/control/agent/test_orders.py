"""What becomes of what the supervisor says: which order is taken, by whom, and what is told of one that cannot be done."""

from __future__ import annotations

import asyncio
from itertools import islice
from types import SimpleNamespace

import pytest

from cordee.control.agent.orders import OrderTaker
from cordee.control.agent.ranks.attempt import with_lease
from cordee.control.agent.ranks.attempts import Attempts
from cordee.control.agent.supervisor_search import pauses
from cordee.control.agent.telemetry.reporter import Reporting
from cordee.control.agent.troubles import NodeTroubles
from cordee.control.agent.uplink import Uplink
from cordee.control.lease import LEASE_OVER
from cordee.core.errors import WireError
from cordee.machine.tasks.task import TaskExit
from cordee.wire import messages
from cordee.wire.messages import FROM_SUPERVISOR
from support.simulation import Case, RunScript, simulate

# Taken by what runs beside ranks, which a simulation has none of.
OF_COMPANIONS = {messages.StageOrder, messages.Gather, messages.Observe, messages.ProfileRanks}
WELCOME = {"t": "welcome", "epoch": 1, "segment": 1, "session": "1.1", "of": 0.0, "seen": 0}


class Wire:
    """Stands where a connection would."""

    def send(self, message, body=b""):
        return True


class Party:
    """Orders with an uplink, and what was done of them."""

    def __init__(self):
        self.done, self.troubles = [], NodeTroubles("n1")
        self.uplink = Uplink(8.0, 1.0, self.done.append)
        note = {cls: lambda order, body: self.done.append(order) for cls in FROM_SUPERVISOR.classes.values()}
        self.orders = OrderTaker(
            self.uplink, self.troubles, self.uplink.welcome, {**note, messages.Clock: lambda order, body: 1 / 0}
        )
        self.connect()

    def connect(self):
        self.wire = Wire()
        self.uplink.connected(self.wire)

    def hear(self, kind, number=None, **fields):
        stamps = {"seen": 0} if number is None else {"seen": 0, "n": number}
        self.orders.receive(self.wire, {"t": kind, **fields, **stamps}, b"")


def with_party(test):
    async def body():
        test(Party())

    asyncio.run(body())


def test_an_order_is_done_once_and_only_after_the_welcome():
    def test(party):
        party.hear("stop_request", 1, attempt=1)
        assert party.done == []
        party.orders.receive(party.wire, WELCOME, b"")
        for number in (1, 1, 2):
            party.hear("stop_request", number, attempt=number)
        assert party.done == [messages.StopRequest(1), messages.StopRequest(2)]

    with_party(test)


def test_what_comes_over_an_earlier_connection_is_passed_over():
    def test(party):
        earlier = party.wire
        party.connect()
        party.orders.receive(earlier, WELCOME, b"")
        assert not party.uplink.welcomed

    with_party(test)


def test_goodbye_is_heard_from_a_supervisor_that_has_not_welcomed_the_agent():
    def test(party):
        party.hear("bye", another=True)
        assert party.done == [messages.Bye(another=True)]

    with_party(test)


def test_an_order_that_cannot_be_read_is_told_and_the_next_one_is_done():
    def test(party):
        party.orders.receive(party.wire, WELCOME, b"")
        party.hear("stop_at", 1, attempt=1, step="soon")
        party.hear("stop_att", 2)
        party.hear("stop_at", 3, attempt=1, step=5)
        assert party.done == [messages.StopAt(1, 5)]
        first, second = party.troubles.texts
        assert "'step' of the message 'stop_at'" in first
        assert "'soon'" in first
        assert "not known here: 'stop_att'" in second

    with_party(test)


def test_a_welcome_that_cannot_be_read_ends_the_connection():
    def test(party):
        with pytest.raises(WireError, match="'epoch'"):
            party.orders.receive(party.wire, {**WELCOME, "epoch": "1"}, b"")
        assert party.troubles.texts == []

    with_party(test)


def test_an_order_that_fails_is_told_with_its_name():
    def test(party):
        party.orders.receive(party.wire, WELCOME, b"")
        party.hear("clock", 1, id="1")
        assert party.troubles.texts == [
            "'clock', which the supervisor asked for, failed: ZeroDivisionError: division by zero"
        ]

    with_party(test)


def test_a_gap_in_the_numbers_ends_the_connection():
    def test(party):
        party.orders.receive(party.wire, WELCOME, b"")
        with pytest.raises(WireError, match="missing"):
            party.hear("clear", 2)

    with_party(test)


def test_an_agent_has_somebody_for_every_order(monkeypatch):
    tables, make = [], OrderTaker.__init__

    def kept(orders, *parts):
        make(orders, *parts)
        tables.append({*orders.handlers, messages.Welcome})

    monkeypatch.setattr(OrderTaker, "__init__", kept)
    assert simulate(Case(1, RunScript(), ())).violations == []
    assert tables
    assert all(table | OF_COMPANIONS == set(FROM_SUPERVISOR.classes.values()) for table in tables)


@pytest.mark.parametrize(("of_s", "over"), [(0.0, False), (-9.0, True), (None, True)])
def test_an_acknowledgement_renews_the_lease_of_what_it_answers(of_s, over):
    async def body():
        party, now = Party(), asyncio.get_running_loop().time()
        stored = []
        reporting = SimpleNamespace(_uplink=party.uplink, _telemetry=SimpleNamespace(acknowledge=stored.append))
        assert party.uplink.lease_is_over()
        Reporting.stored(reporting, messages.Ack(3, None if of_s is None else now + of_s), b"")
        assert party.uplink.lease_is_over() is over
        assert stored == [3]

    asyncio.run(body())


class Frozen:
    """Ranks of a node, and whether they stand still."""

    def __init__(self):
        self.ended, self.still, self.tasks = [], False, SimpleNamespace(owner="run/n1")
        self.attempt = SimpleNamespace(end_without_lease=self.ended.append, pids=lambda: {0: 1})

    def freeze(self, owner, mains):
        assert mains == {1}
        self.still = True
        return [1, 2]

    def thaw(self, frozen):
        assert frozen == [1, 2]
        self.still = False


def with_ranks(monkeypatch, test):
    async def body():
        clock, ranks = SimpleNamespace(now=0.0), Frozen()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock.now)
        uplink = Uplink(8.0, 1.0, lambda message: None)
        present = SimpleNamespace(attempt=ranks.attempt, kept=None)
        attempts = Attempts(None, ranks, ranks, None, uplink, present, None, None)
        uplink.lease.renew(0.0)
        test(clock, ranks, uplink, attempts)

    asyncio.run(body())


def test_ranks_of_a_node_that_stood_still_stand_still_until_their_lease_is_renewed_or_would_be_over_again(monkeypatch):
    def renewed(clock, ranks, uplink, attempts):
        clock.now = 31.0
        attempts.look_at_lease(30.0)
        assert (ranks.still, ranks.ended) == (True, [])
        uplink.lease.renew(31.5)
        attempts.look_at_lease(0.0)
        assert (ranks.still, ranks.ended) == (False, [])

    def not_renewed(clock, ranks, uplink, attempts):
        clock.now = 31.0
        attempts.look_at_lease(30.0)
        clock.now = 38.9
        attempts.look_at_lease(0.0)
        assert (ranks.still, ranks.ended) == (True, [])
        clock.now = 39.0
        attempts.look_at_lease(0.0)
        assert len(ranks.ended) == 1

    def silent(clock, ranks, uplink, attempts):
        clock.now = 31.0
        attempts.look_at_lease(1.5)
        assert (ranks.still, len(ranks.ended)) == (False, 1)

    for test in (renewed, not_renewed, silent):
        with_ranks(monkeypatch, test)


def test_troubles_are_told_once_each_and_not_without_end():
    troubles = NodeTroubles("n1")
    for number in (*range(100), 0):
        troubles.tell(f"trouble {number}")
    assert troubles.texts == [f"trouble {number}" for number in range(20)]


@pytest.mark.parametrize(
    ("reason", "no_lease", "told"),
    [("stopped", "silence", LEASE_OVER), ("stopped", None, "stopped"), ("exited", "silence", "exited")],
)
def test_what_is_stopped_for_want_of_a_lease_says_so(reason, no_lease, told):
    ended = with_lease(TaskExit("rank-0", None, "SIGKILL", reason, 1.0), no_lease)
    assert (ended.reason, ended.text) == (told, "silence" if told == LEASE_OVER else "")


def test_few_agents_look_for_a_supervisor_every_second_and_thousands_seldom_and_at_different_times():
    few = list(islice(pauses("n1", 4), 30))
    assert few[0] < 0.05
    assert 0.5 < few[-1] < 1.5
    assert few == list(islice(pauses("n1", 4), 30))
    many = [list(islice(pauses(f"n{node}", 5000), 30)) for node in range(100)]
    assert len({each[0] for each in many}) > 50
    assert all(sum(each[:12]) > 5.0 and each[-1] > 5.0 for each in many)
