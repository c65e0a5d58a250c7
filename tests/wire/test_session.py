"""Messages that outlive their connection, without a connection."""

from __future__ import annotations

import random
from collections import deque

import pytest

from cordee.core.errors import WireError
from cordee.wire.session import Inbox, Outbox, Session


def kept(outbox):
    return [message["number"] for message, _ in outbox]


def test_a_message_is_kept_until_it_is_acknowledged():
    outbox = Outbox()
    for number in range(1, 6):
        assert outbox.add({"number": number}) == {"number": number, "n": number}
    outbox.acknowledge(3)
    outbox.acknowledge(2)
    assert kept(outbox) == [4, 5]
    outbox.acknowledge(5)
    assert (kept(outbox), outbox.bytes, outbox.last, outbox.acknowledged) == ([], 0, 5, 5)


def test_what_was_never_sent_cannot_be_acknowledged():
    outbox = Outbox()
    outbox.add({"number": 1})
    with pytest.raises(WireError, match="never sent"):
        outbox.acknowledge(2)
    assert kept(outbox) == [1]


@pytest.mark.parametrize(
    ("most", "most_bytes", "body"), [(3, 1 << 20, b""), (100, 1000, b"x" * 200), (100, 600, b"x" * 50)]
)
def test_a_full_outbox_refuses_and_changes_nothing(most, most_bytes, body):
    outbox = Outbox(most, most_bytes)
    for number in range(3):
        outbox.add({"number": number}, body)
    with pytest.raises(WireError, match="waiting to be acknowledged"):
        outbox.add({"number": 3}, body)
    assert kept(outbox) == [0, 1, 2]
    outbox.acknowledge(1)
    assert outbox.add({"number": 3}, body)["n"] == 4


def test_long_lists_in_a_header_count_as_bytes():
    outbox = Outbox(100, 10_000)
    with pytest.raises(WireError, match="waiting"):
        outbox.add({"nodes": ["n"] * 1000})


def test_each_number_is_taken_once_and_in_order():
    inbox = Inbox()
    assert [inbox.take(number) for number in (1, 2, 2, 1, 3)] == [True, True, False, False, True]
    with pytest.raises(WireError, match="missing"):
        inbox.take(5)
    assert inbox.last == 3


@pytest.mark.parametrize("message", [{"n": "1"}, {"n": -1}, {"n": 1.5}, {"seen": None}, {"seen": [1]}])
def test_numbers_that_are_none_are_refused(message):
    with pytest.raises(WireError, match="is not a number"):
        Session("1.1").take(message)


def test_a_session_owes_an_acknowledgement_after_much_has_come():
    session = Session("1.1")
    session.take({"n": 1}, 10)
    assert not session.owes
    session.take({"n": 2}, 1 << 20)
    assert session.owes
    assert session.stamped({"t": "x"}) == {"t": "x", "seen": 2}
    assert not session.owes


@pytest.mark.parametrize("seed", range(200))
def test_whatever_is_lost_both_ends_take_everything_once_and_in_order(seed):
    """Two ends over connections that break at any message, with all that is under way lost."""
    draw = random.Random(seed)
    ends = Session("1.1"), Session("1.1")
    said: tuple[list[int], list[int]] = ([], [])
    taken: tuple[list[int], list[int]] = ([], [])
    ways: tuple[deque, deque] = (deque(), deque())

    def resume():
        for way in ways:
            way.clear()
        for sender in (0, 1):
            ends[sender].take({"seen": ends[1 - sender].inbox.last})
            ways[sender].extend(ends[sender].stamped(message) for message, _ in ends[sender].outbox)

    for _ in range(300):
        act, side = draw.random(), draw.randrange(2)
        if act < 0.4:
            said[side].append(len(said[side]))
            ways[side].append(ends[side].stamped(ends[side].outbox.add({"value": said[side][-1]})))
        elif act < 0.5:
            ways[side].append(ends[side].stamped({"t": "lease"}))
        elif act < 0.95:
            if ways[side]:
                message = ways[side].popleft()
                if ends[1 - side].take(message) and "value" in message:
                    taken[1 - side].append(message["value"])
        else:
            resume()
    resume()
    for side in (0, 1):
        for message in ways[side]:
            if ends[1 - side].take(message):
                taken[1 - side].append(message["value"])
    assert taken == (said[1], said[0])
