"""What the supervisor decides about the ranks of an attempt: events in, commands out, and no waiting."""

from __future__ import annotations

import json

import pytest

from cordee.control.supervisor.decisions.attempt import Attempt
from cordee.control.supervisor.decisions.failure_evidence import FailureEvidence
from cordee.control.supervisor.decisions.nodes import Nodes
from cordee.control.supervisor.decisions.outcomes import AttemptOutcome
from cordee.control.supervisor.decisions.vocabulary import (
    AgentCame,
    AgentLost,
    AgentSaid,
    AskToStop,
    AttemptOver,
    AttemptStopped,
    BeginAttempt,
    Closed,
    ContainerGone,
    NodeSuspected,
    NoSuccessor,
    OrderEach,
    Ordered,
    Passed,
    RankNews,
    StartRanks,
    StopRanks,
    Write,
)
from cordee.control.supervisor.start_checkpoint import Beginning
from cordee.wire import messages

CANCELLED = AttemptOutcome("cancelled", reason="cancelled by you")
PEER = "NCCL: connection closed by remote peer"


def ended(attempt, rank, code=0, signal=None, reason="exited", message=None):
    return messages.RanksEnded(attempt, (messages.EndedRank(rank, code, signal, reason, 1.0, message),))


def first_rank(message):
    """Return the first rank that news is about."""
    return message[1][0][0]


def each(command):
    """Return the orders that a command is."""
    return [command.at(place) for place in range(len(command.nodes))] if isinstance(command, OrderEach) else []


class Led:
    """Attempt 3 with two ranks on each of the nodes a and b, whose agents are heard of at second 0."""

    def __init__(self):
        self.nodes = Nodes(["a", "b"], epoch=2, segment=1, lost_s=20.0)
        for name in ("a", "b"):
            hello = messages.Hello(1, 7, 1, "h", "3.9", messages.Slots(), epoch=2, attempt=0, living=())
            self.nodes.decide(AgentCame(0.0, name, name, hello, "10.0.0.1"))
        self.attempt = Attempt(3, list(self.nodes.by_name.values()), 2, "fork", epoch=2, silent_s=2.0)

    def does(self, event):
        """Return the commands; orders go to the nodes."""
        commands = self.attempt.decide(event)
        for command in commands:
            for order in each(command):
                self.nodes.decide(order)
        return commands

    def trains(self, ranks=range(4)):
        self.does(BeginAttempt((1, 2), Beginning()))
        self.does(StartRanks((1, 2), None))
        self.does(Ordered())
        for rank in ranks:
            self.news(messages.RanksStarted(3, (messages.StartedRank(rank, 100 + rank),)))

    def news(self, message, now=1.0):
        return self.does(RankNews(now, "ab"[first_rank(message) // 2], message))

    def ends(self, *ranks, code=0, signal=None, reason="exited", message=None, now=1.0):
        for rank in ranks:
            self.news(ended(3, rank, code, signal, reason, message), now)

    def heard(self, node, now, **stamps):
        self.nodes.decide(AgentSaid(now, node, node, stamps, messages.Alive()))

    def at(self, now):
        """Return the commands of a look at this time."""
        return self.does(Passed(now))

    def sent(self, commands):
        return [(order.node, order.message) for command in commands for order in each(command)]


@pytest.fixture
def led():
    return Led()


def test_ranks_are_ordered_once_it_is_durable_that_the_attempt_began(led):
    (written,) = led.does(BeginAttempt((7001, 7002), Beginning()))
    assert (written.event, written.durable, written.mark) == ("attempt_started", True, "ranks-3")
    assert written.fields["nodes"] == [{"node": "a", "ranks": [0, 1]}, {"node": "b", "ranks": [2, 3]}]
    assert written.fields["master"] == {"address": "10.0.0.1", "port": 7001}
    (start,) = led.does(StartRanks((7001, 7002), "/ckpt/5"))
    orders = each(start)
    assert {order.after for order in orders} == {"ranks-3"}
    assert [(order.node, order.message.node_rank) for order in orders] == [("a", 0), ("b", 1)]
    assert orders[1].message.coordinator_port == 7002
    assert orders[1].message.resume_from == "/ckpt/5"


def test_what_each_of_ten_thousand_nodes_is_told_of_the_others_is_small_and_made_once():
    nodes = Nodes([f"nid{number:06d}" for number in range(10_000)], epoch=2, segment=1, lost_s=20.0)
    for number, node in enumerate(nodes.by_name.values()):
        node.address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    attempt = Attempt(1, list(nodes.by_name.values()), 10, "fork", epoch=2, silent_s=2.0)
    attempt.decide(BeginAttempt((1, 2), Beginning()))
    (start,) = attempt.decide(StartRanks((1, 2), None))
    orders = each(start)
    assert len(orders) == 10_000
    assert len({id(order.body) for order in orders}) == 1
    assert len(orders[0].body) < 1000


def test_nothing_is_decided_before_the_orders_are_out(led):
    led.does(AgentLost("b", "its agent ended"))
    assert led.at(1.0) == []
    led.does(Ordered())
    assert [command.outcome.kind for command in led.at(1.1)] == ["node_lost"]


def test_an_attempt_whose_ranks_all_end_well_is_finished(led):
    led.trains()
    led.ends(0, 1, 2)
    assert led.at(1.0) == []
    led.ends(3)
    assert led.at(2.0) == [AttemptOver(AttemptOutcome("finished"))]
    assert led.at(3.0) == []


def test_ranks_that_one_message_tells_of_count_each(led):
    led.trains()
    written = led.news(messages.RanksEnded(3, (*ended(3, 2, 1, message="no").ended, *ended(3, 3).ended)))
    assert [(one.event, one.fields["rank"], one.fields["node"], one.fields["code"]) for one in written] == [
        ("rank_exited", 2, "b", 1),
        ("rank_exited", 3, "b", 0),
    ]
    again = messages.RanksEnded(3, (*ended(3, 3).ended, *ended(3, 1).ended))
    assert [one.fields["rank"] for one in led.news(again)] == [1]
    led.ends(0)
    assert led.attempt.all_ended


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        ([(0, 1, None, PEER), (1, 1, None, "IndexError: out of range"), (2, 1, None, "no")], 1),
        ([(0, 1, None, PEER), (3, None, "SIGKILL", "step 4"), (1, 1, None, PEER)], 3),
        ([(2, 1, None, PEER), (0, 1, None, PEER), (1, 1, None, PEER), (3, 1, None, PEER)], 2),
    ],
)
def test_the_earliest_failure_that_complains_of_no_peer_is_the_cause_else_the_first(led, failures, rank):
    led.trains()
    for number, code, signal, message in failures:
        led.ends(number, code=code, signal=signal, message=message)
    led.ends(*set(range(4)) - {number for number, *_ in failures})
    assert led.at(1.0) == []
    (over,) = led.at(1.3)
    assert (over.outcome.kind, over.outcome.failure.rank) == ("failed", rank)


def test_ranks_that_end_one_by_one_while_all_are_stopped_are_not_looked_through_each_time(led):
    led.trains()
    led.does(StopRanks(1.0, 5.0, 8.0, successor=True))
    led.at(1.0)
    waits_until = led.attempt.due
    led.ends(0, 1, 2, code=None, signal="SIGTERM", reason="stopped", now=1.05)
    assert led.attempt.due == waits_until > 1.05
    led.ends(3, code=None, signal="SIGTERM", reason="stopped", now=1.05)
    assert led.attempt.due < 1.05
    assert led.at(1.05) == [AttemptStopped([])]


def of_many(nodes, per_node):
    """Return an attempt of many ranks that train."""
    many = Nodes([f"n{index:05}" for index in range(nodes)], epoch=2, segment=1, lost_s=20.0)
    attempt = Attempt(1, list(many.by_name.values()), per_node, "fork", epoch=2, silent_s=2.0)
    attempt.decide(BeginAttempt((1, 2), Beginning()))
    (start,) = attempt.decide(StartRanks((1, 2), None))
    orders = each(start)
    attempt.decide(Ordered())
    return attempt, orders


def test_the_table_of_ten_thousand_nodes_is_the_same_few_bytes_for_all_of_them():
    _, orders = of_many(10_000, 10)
    assert len(orders) == 10_000
    assert all(order.body is orders[0].body for order in orders)
    assert max(len(json.dumps(messages.encode(order.message))) + len(order.body) for order in orders) < 400


@pytest.mark.parametrize("message", [PEER, "IndexError: out of range"])
def test_all_ranks_that_fail_at_once_make_a_line_each_and_one_verdict(message):
    attempt, _ = of_many(1000, 10)
    written, verdicts = [], []
    for index, node in enumerate(attempt.nodes):
        some = tuple(
            messages.EndedRank(rank, 1, None, "exited", 1.0, message) for rank in range(10 * index, 10 * index + 10)
        )
        now = 1.0 + index / 1000
        commands = attempt.decide(RankNews(now, node.name, messages.RanksEnded(1, some)))
        written += [(command.fields["rank"], command.durable) for command in commands]
        verdicts += [one for one in attempt.decide(Passed(now)) if isinstance(one, AttemptOver)]
    verdicts += attempt.decide(Passed(3.0))
    assert written == [(rank, False) for rank in range(10_000)]
    assert [over.outcome.failure.rank for over in verdicts if isinstance(over, AttemptOver)] == [0]


def test_nodes_are_not_asked_whether_they_live_while_the_ranks_of_thousands_end():
    attempt, _ = of_many(1000, 10)
    asked = []

    def fails(index, now):
        some = tuple(messages.EndedRank(10 * index + rank, 1, None, "exited", 1.0, PEER) for rank in range(10))
        attempt.decide(RankNews(now, attempt.nodes[index].name, messages.RanksEnded(1, some)))
        asked.extend(one for command in attempt.decide(Passed(now)) for one in each(command))

    for index in range(900):
        fails(index, 1.0 + index / 1000)
    assert asked == []
    for index in range(900, 999):  # the last ones one by one
        fails(index, 2.0 + (index - 900) / 10)
    assert [order.node for order in asked] == [node.name for node in attempt.nodes[902:]]


def test_nodes_that_are_waited_for_are_looked_through_ten_times_a_second_however_often_others_are_heard():
    attempt, _ = of_many(1000, 10)
    evidence, looks = FailureEvidence("probe-1"), []

    def living():
        looks.append(1)
        return attempt.nodes

    for turn in range(2000):
        assert evidence.look(1.0 + turn / 1000, 9000 - turn, True, living).again is not None
    assert 15 <= len(looks) <= 20


def test_what_an_agent_says_twice_or_of_another_attempt_counts_not(led):
    led.trains()
    started = messages.RanksStarted(3, (messages.StartedRank(0, 100),))
    assert led.news(started) == []
    led.ends(0)
    assert led.news(ended(3, 0, 1, message="again")) == []
    assert led.news(ended(2, 1, 1, message="earlier")) == []
    assert not led.attempt.all_ended
    led.ends(1, 2, 3)
    assert led.at(2.0) == [AttemptOver(AttemptOutcome("finished"))]


def test_of_failures_within_a_moment_the_one_that_complains_of_no_peer_is_the_cause(led):
    led.trains()
    led.ends(2, code=1, message=PEER)
    assert led.at(1.0) == []
    assert led.attempt.due == pytest.approx(1.2)
    led.ends(0, code=1, message="RuntimeError: out of memory", now=1.1)
    ((over),) = led.at(1.2)
    assert (over.outcome.kind, over.outcome.failure.rank) == ("failed", 0)


def test_where_all_complain_of_a_peer_living_nodes_must_answer_before_anybody_is_blamed(led):
    led.trains()
    led.ends(0, 1, code=1, message=PEER)
    led.at(1.0)
    assert led.sent(led.at(1.3)) == [("b", messages.Lease(0.0))]
    led.heard("b", 1.35, seen=1)  # said before it was asked, and late
    assert led.at(1.4) == []
    led.heard("b", 1.45, seen=2)
    assert led.at(1.5) == []
    ((over),) = led.at(1.7)
    assert over.outcome.kind == "failed"


def test_a_node_that_is_lost_while_it_is_waited_for_is_to_blame(led):
    led.trains()
    led.ends(0, 1, code=1, message=PEER)
    led.at(1.0)
    led.nodes.decide(Closed(1.1, "b", "b"))
    assert led.sent(led.at(1.3)) == [("b", messages.Lease(0.0))]
    assert led.at(15.0) == []
    led.does(AgentLost("b", "its agent is gone for 20 s"))
    ((over),) = led.at(21.0)
    assert (over.outcome.kind, over.outcome.failure.node) == ("node_lost", "b")


def test_ranks_that_an_agent_ended_by_itself_are_a_loss_and_no_failure(led):
    led.trains()
    led.ends(2, code=None, signal="SIGKILL", reason="stopped")
    ((over),) = led.at(1.0)
    assert (over.outcome.kind, over.outcome.failure.node) == ("node_lost", "b")


def test_a_lost_container_ends_the_attempt_and_its_ranks_are_still_to_be_ended(led):
    led.trains()
    led.does(ContainerGone("a", "it was killed"))
    ((over),) = led.at(1.0)
    assert over.outcome.kind == "node_lost"
    assert not led.attempt.all_ended


def test_an_attempt_that_is_asked_to_stop_agrees_on_the_greatest_step(led):
    led.trains()
    commands = led.does(AskToStop(10.0, CANCELLED, 10.0, "USR1"))
    assert commands[0] == Write("stop_requested", {"reason": "cancelled by you"})
    assert {type(message) for _, message in led.sent(commands)} == {messages.Signal, messages.StopRequest}
    led.news(messages.StopAnswers(3, ((0, 7), (1, 8))))
    assert led.at(10.3) == []
    led.news(messages.StopAnswers(3, ((2, 9), (3, 8))))
    commands = led.at(10.4)
    assert commands[0] == Write("stop_agreed", {"step": 9})
    assert led.sent(commands) == [("a", messages.StopAt(3, 9)), ("b", messages.StopAt(3, 9))]
    led.ends(0, 1, 2, 3, now=12.0)
    assert led.at(12.0) == [AttemptOver(CANCELLED)]


def test_ranks_that_do_not_ask_are_stopped_after_half_a_second(led):
    led.trains()
    led.does(AskToStop(10.0, CANCELLED, 10.0, ""))
    led.at(10.0)
    assert led.attempt.due == 10.5
    assert led.at(10.5) == [AttemptOver(CANCELLED)]


def test_ranks_that_have_a_signal_and_do_not_end_are_stopped_when_their_time_is_over(led):
    led.trains()
    led.does(AskToStop(10.0, CANCELLED, 4.0, "USR1"))
    assert led.at(10.5) == []
    assert led.at(13.9) == []
    assert led.at(14.0) == [AttemptOver(CANCELLED)]


def test_without_time_to_save_an_attempt_is_over_at_once(led):
    led.trains()
    assert led.does(AskToStop(10.0, CANCELLED, 0.0, "USR1")) == [
        Write("stop_requested", {"reason": "cancelled by you"})
    ]
    assert led.at(10.0) == [AttemptOver(CANCELLED)]


def stopping(led, successor=True):
    led.trains()
    led.heard("a", 10.0)
    led.heard("b", 10.0)
    orders = led.sent(led.does(StopRanks(10.0, 5.0, 9.0, successor)))
    assert orders == [("a", messages.Stop("ranks-3", 5.0)), ("b", messages.Stop("ranks-3", 5.0))]


def test_a_stop_waits_for_all_ranks(led):
    stopping(led)
    led.ends(0, 1, 2, code=None, signal="SIGTERM", reason="stopped")
    assert led.at(10.1) == []
    assert led.attempt.due == pytest.approx(10.2)
    led.ends(3, code=None, signal="SIGTERM", reason="stopped")
    assert led.at(10.2) == [AttemptStopped([])]


def test_another_node_is_to_take_the_place_of_one_whose_rank_the_kernel_holds(led):
    stopping(led)
    (exited,) = led.news(ended(3, 0, None, "SIGTERM", "stopped"))
    assert exited.event == "rank_exited"
    _, suspected = led.news(ended(3, 1, None, None, "stuck"))
    assert suspected == NodeSuspected("a", "a rank cannot be killed there: the kernel holds it")


def test_nodes_that_have_the_order_and_whose_ranks_do_not_end_are_overdue(led):
    stopping(led)
    for now in (10.5, 20.0):
        led.heard("a", now, seen=2)
        led.heard("b", now, seen=2)
        commands = led.at(now)
    assert commands == [AttemptStopped(["a", "b"])]


def test_a_node_of_which_nothing_is_heard_counts_as_living_until_it_is_lost(led):
    stopping(led)
    led.heard("a", 10.5, seen=2)
    led.ends(0, 1)
    led.nodes.decide(Closed(10.5, "b", "b"))
    assert led.at(25.0) == []
    led.does(AgentLost("b", "its agent is gone for 20 s"))
    assert led.at(30.0) == [AttemptStopped([])]


def test_without_a_successor_nodes_that_are_away_are_not_waited_for(led):
    stopping(led)
    led.ends(0, 1)
    led.nodes.decide(Closed(10.5, "b", "b"))
    assert led.at(11.0) == []
    led.does(NoSuccessor())
    assert led.at(11.1) == [AttemptStopped([])]


def test_without_a_successor_ranks_that_do_not_end_are_left_after_their_time(led):
    stopping(led, successor=False)
    assert led.at(19.0) == []
    assert led.at(19.1) == [AttemptStopped(["a", "b"])]
