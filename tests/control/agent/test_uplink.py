"""The agent's end of a session and the lease of its ranks, without a network."""

from __future__ import annotations

import asyncio

import pytest

from cordee.control.agent.uplink import Uplink, begins_anew
from cordee.control.lease import NodeLease
from cordee.core.errors import WireError
from cordee.wire import messages
from cordee.wire.session import Outbox


class Wire:
    """Stands where a connection would: keeps what is sent."""

    def __init__(self):
        self.sent, self.aborted = [], None

    def send(self, message, body=b""):
        self.sent.append((message, body))

    def abort(self, reason):
        self.aborted = reason


def welcome(session="1.1", epoch=1, seen=0, of=0.0):
    return messages.Welcome(epoch, 1, session, of), {"seen": seen}


def met(uplink, answer):
    wire = Wire()
    uplink.connected(wire)
    uplink.greet(messages.Hello(1, 2, 3, "host", "3.11", messages.Slots(), uplink.epoch, 0, ()))
    return wire, uplink.welcome(*answer)


def rank_in(message):
    """Return the rank that news is about, None for another message."""
    return message["started"][0][0] if "started" in message else None


def started(rank):
    return messages.RanksStarted(1, (messages.StartedRank(rank, 100 + rank),))


def numbered(number):
    return {"t": "clear", "n": number, "seen": 0}


def run(test):
    async def body():
        full = []
        test(Uplink(8.0, 1.0, full.append))
        assert full == []

    asyncio.run(body())


def test_a_lease_counts_from_what_the_agent_said_and_not_from_when_the_answer_came():
    lease = NodeLease(8.0)
    assert lease.over(0.0)
    lease.renew(10.0)
    lease.renew(3.0)  # an answer that was held up
    assert not lease.over(18.0)
    assert lease.over(18.1)
    assert [lease.in_doubt(moment) for moment in (15.0, 15.5)] == [False, True]


def test_news_waits_for_the_welcome_and_is_sent_again_until_it_is_acknowledged():
    def test(uplink):
        uplink.news(started(7))  # nobody has asked for anything yet
        first, fresh = met(uplink, welcome())
        assert fresh
        for rank in range(3):
            uplink.news(started(rank))
        uplink.closed()
        uplink.news(started(3))
        second, fresh = met(uplink, welcome(seen=2))
        assert not fresh
        assert [rank_in(message) for message, _ in first.sent] == [None, 0, 1, 2]
        assert [(rank_in(message), message.get("n")) for message, _ in second.sent] == [(None, None), (2, 3), (3, 4)]
        assert second.sent[0][0]["session"] == "1.1"

    run(test)


def test_what_comes_twice_is_handled_once_and_acknowledged():
    def test(uplink):
        wire, _ = met(uplink, welcome())
        handled = [uplink.take(numbered(number), b"") for number in (1, 1, 2)]
        assert handled == [True, False, True]
        uplink.say(messages.Telemetry(None, ()))
        assert wire.sent[-1][0]["seen"] == 2

    run(test)


@pytest.mark.parametrize(("session", "epoch"), [("1.2", 1), ("2.1", 2)])
def test_another_session_begins_with_nothing_of_the_one_before(session, epoch):
    def test(uplink):
        met(uplink, welcome())
        tell = uplink.teller()
        uplink.news(started(0))
        uplink.take(numbered(1), b"")
        wire, fresh = met(uplink, welcome(session=session, epoch=epoch))
        tell(messages.SetupDone("1", "pass", "", 0.1))  # of what the earlier supervisor had asked for
        assert fresh
        assert len(wire.sent) == 1
        assert (uplink.seen, uplink.epoch) == (0, epoch)
        assert uplink.take(numbered(1), b"")

    run(test)


def test_a_lease_that_has_a_number_is_a_question_and_answered_at_once():
    def test(uplink):
        wire, _ = met(uplink, welcome())
        uplink.take({"t": "lease", "of": 1.0}, b"")
        assert wire.sent[1:] == []
        uplink.take({"t": "lease", "of": 1.0, "n": 1}, b"")
        assert [(message["t"], message["seen"]) for message, _ in wire.sent[1:]] == [("alive", 1)]

    run(test)


def test_a_lower_epoch_is_never_obeyed():
    def test(uplink):
        met(uplink, welcome(session="2.1", epoch=2))
        uplink.connected(Wire())
        with pytest.raises(WireError, match="an older supervisor"):
            uplink.welcome(*welcome(session="1.1", epoch=1))
        assert not uplink.take(numbered(1), b"")

    run(test)


def test_a_connection_over_which_nothing_is_heard_is_given_up_before_the_lease_is_over():
    def test(uplink):
        now = asyncio.get_running_loop().time()
        wire, _ = met(uplink, welcome(of=now - 5.0))
        uplink.beat()
        assert (wire.aborted, uplink.lease_is_over()) == (None, False)
        uplink.closed()
        wire, _ = met(uplink, welcome(of=now - 5.0))
        uplink.lease = NodeLease(6.0)
        uplink.lease.renew(now - 5.0)
        uplink.beat()
        assert "not heard" in wire.aborted
        assert not uplink.lease_is_over()

    run(test)


def test_a_supervisor_that_never_answers_is_given_up():
    def test(uplink):
        wire = Wire()
        uplink.lease = NodeLease(60.0)
        uplink.connected(wire)
        uplink.beat()
        assert wire.aborted is None
        uplink.lease = NodeLease(-1.0)
        uplink.beat()
        assert "did not answer" in wire.aborted

    run(test)


@pytest.mark.parametrize(
    ("epoch", "session", "anew"), [(1, "1.1", False), (1, "1.2", True), (2, "2.1", True), (2, "1.1", False)]
)
def test_a_welcome_begins_another_session_unless_it_names_the_one_that_there_is(epoch, session, anew):
    assert begins_anew(messages.Welcome(epoch, 1, session, 0.0), 1, "1.1") is anew


def test_an_older_supervisors_welcome_is_refused_whatever_it_names():
    for session in ("2.1", "1.1", ""):
        with pytest.raises(WireError, match="an older supervisor"):
            begins_anew(messages.Welcome(1, 1, session, 0.0), 2, "2.1")


def test_where_too_much_news_waits_it_is_said_and_nothing_is_raised_at_whoever_tells():
    async def body():
        full = []
        uplink = Uplink(8.0, 1.0, full.append)
        met(uplink, welcome())
        uplink.session.outbox = Outbox(most=2)
        for rank in range(3):
            uplink.teller()(started(rank))
        (error,) = full
        assert "waiting to be acknowledged" in error.text

    asyncio.run(body())
