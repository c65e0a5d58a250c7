"""What the supervisor decides about its nodes: events in, commands out, without a clock or a connection."""

from __future__ import annotations

import pytest

from cordee.control.supervisor.decisions.node_choice import NodePool
from cordee.control.supervisor.decisions.nodes import LOST_AT_ONCE, Nodes, usable
from cordee.control.supervisor.decisions.vocabulary import (
    Abort,
    AgentCame,
    AgentLost,
    AgentSaid,
    Changed,
    Close,
    Closed,
    Complain,
    ContainerGone,
    FindGone,
    FoundGone,
    GaveUp,
    HeldUp,
    IsOver,
    LeasesDue,
    LookedAt,
    NodeJudged,
    NodePrepared,
    NodeSuspected,
    NotCome,
    Order,
    Passed,
    Prepare,
    ReplaceAgent,
    Send,
    Take,
    Tell,
    Write,
)
from cordee.core.errors import WireError
from cordee.wire import messages

LOST_S = 20.0
ALIVE = messages.Alive()
STOP = messages.Stop("ranks-1", 0.0)
SLOTS = messages.Slots(
    (messages.CoreSlots(0, 4, "0-7"), messages.CoreSlots(1, 2, "8-11")),
    (messages.GpuSlot("GPU-a", "0-7", None, ()),),
    64,
)
DONE = messages.SetupDone("1", "pass", "", 1.0)


class Told:
    """Nodes a and b of a supervisor with epoch 2."""

    def __init__(self):
        self.nodes = Nodes(["a", "b"], epoch=2, segment=1, lost_s=LOST_S)
        self.a, self.b = self.nodes.by_name.values()

    def hello(self, now=0.0, node="a", connection="first", attempt=None, attempt_there=0, **more):
        hello = messages.Hello(1, 7, 1, "h", "3.9", SLOTS, epoch=2, attempt=attempt_there, living=(), at=now)
        return self.nodes.decide(AgentCame(now, node, connection, hello._replace(**more), "10.0.0.1", attempt))

    def said(self, message=ALIVE, now=1.0, connection="first", node="a", **stamps):
        return self.nodes.decide(AgentSaid(now, node, connection, stamps, message))

    def ready(self, node="a", incarnation=1, verdict="healthy"):
        return self.nodes.decide(NodePrepared(node, incarnation, verdict, []))


@pytest.fixture
def told():
    return Told()


def kinds(commands):
    return [type(command) for command in commands]


def sent(commands):
    return [command.message["t"] for command in commands if isinstance(command, Send)]


def test_an_agent_that_is_new_is_welcomed_written_down_and_prepared(told):
    commands = told.hello()
    assert kinds(commands) == [Send, Write, Prepare]
    assert commands[0].connection == "first"
    assert commands[0].message == {
        "t": "welcome", "epoch": 2, "segment": 1, "session": "2.1", "of": 0.0, "seen": 0,
    }  # fmt: skip
    assert commands[1].event == "node_connected"
    assert (commands[1].fields["cores"], commands[1].fields["gpus"]) == (6, ["GPU-a"])
    assert not commands[1].durable
    assert told.a.address == "10.0.0.1"
    assert usable([told.a]) == []


def test_an_older_agent_and_one_that_has_seen_a_newer_supervisor_are_sent_away(told):
    told.hello(incarnation=2)
    assert told.hello(connection="late", incarnation=1) == [Close("late", "a newer agent serves this node")]
    assert told.hello(connection="late", incarnation=2, epoch=3) == [Close("late", "a newer supervisor leads this run")]
    assert told.a.connection == "first"


def test_a_second_agent_of_the_same_incarnation_is_told_that_there_is_another(told):
    told.hello()
    (command,) = told.hello(connection="second", pid=8)
    assert command == Send("second", {"t": "bye", "another": True})


def test_an_agent_that_comes_back_gets_what_it_missed_and_nothing_is_prepared_anew(told):
    told.hello()
    told.ready()
    told.said(n=1, seen=0)
    told.nodes.decide(Closed(2.0, "a", "first"))
    assert usable([told.a]) == []
    assert told.nodes.decide(Order("a", STOP)) == []
    commands = told.hello(5.0, connection="second", session="2.1", seen=0)
    assert sent(commands) == ["welcome", "stop"]
    assert usable([told.a]) == [told.a]


def test_a_newer_connection_ends_the_older_one_and_its_end_changes_nothing(told):
    told.hello()
    told.ready()
    commands = told.hello(connection="second", session="2.1")
    assert commands[0] == Abort("first", "replaced by a newer connection")
    told.nodes.decide(Closed(3.0, "a", "first"))
    assert told.a.connection == "second"


def test_an_agent_that_knows_another_session_begins_anew(told):
    told.hello()
    told.said(n=1, seen=0)
    commands = told.hello(connection="second", session="2.9")
    assert AgentLost("a", "its agent was replaced") in commands
    assert Prepare("a") in commands
    assert told.a.session.identifier == "2.2"


def test_ranks_of_another_attempt_are_cleared_before_the_node_is_prepared(told):
    commands = told.hello(living=(0,))
    assert sent(commands) == ["welcome", "clear"]
    assert Prepare not in kinds(commands)
    assert told.said(messages.Cleared(), n=1, seen=1) == [Prepare("a")]


def test_a_node_that_keeps_tasks_for_the_next_attempt_is_ready_and_is_chosen_before_all_others(told):
    told.hello(living=(0,))
    told.hello(node="b", connection="other")
    told.ready("b")
    assert told.said(messages.Cleared(True), n=1, seen=1) == [Changed()]
    told.nodes.decide(NodeSuspected("a", "slow"))
    pool = NodePool(list(told.nodes.by_name.values()), 1, 1)
    assert pool.choose([told.b]).chosen == [told.a]
    told.said(messages.RanksStarted(2, ()), n=2, seen=1)
    assert pool.choose([told.b]).chosen == [told.b]


def test_a_connection_that_breaks_does_not_clear_what_a_node_keeps(told):
    told.hello(living=(0,))
    told.said(messages.Cleared(True), n=1, seen=1)
    told.nodes.decide(Closed(2.0, "a", "first"))
    told.nodes.decide(Order("a", messages.Stop("ranks-2", 0.0)))
    commands = told.hello(3.0, connection="second", session="2.1", seen=1, living=(0,), attempt=2)
    assert sent(commands) == ["welcome", "stop"]
    assert told.a.ready


def test_nothing_is_chosen_while_a_node_that_cannot_be_may_keep_tasks(told):
    told.hello(living=(0,))
    told.said(messages.Cleared(True), n=1, seen=1)
    pool = NodePool(list(told.nodes.by_name.values()), 1, 1)
    assert not pool.may_keep(2.0, 6.0)
    told.nodes.decide(Closed(2.0, "a", "first"))
    assert pool.may_keep(3.0, 6.0)
    told.nodes.decide(GaveUp("a", "no reason"))
    assert pool.may_keep(7.9, 6.0)
    assert not pool.may_keep(8.1, 6.0)


def test_a_node_whose_old_ranks_do_not_end_is_lost(told):
    told.hello(10.0, living=(0,))
    told.said(now=29.0)
    assert told.nodes.decide(LookedAt(30.0, frozenset())) == []
    commands = told.nodes.decide(LookedAt(30.1, frozenset()))
    assert commands[0] == Write("node_lost", {"node": "a", "reason": "ranks of an earlier attempt do not end there"})


def test_ranks_of_the_attempt_that_is_under_way_go_on_and_others_are_cleared(told):
    told.hello()
    told.ready()
    again = {"connection": "second", "session": "2.1", "living": (0,)}
    assert sent(told.hello(attempt_there=3, attempt=3, **again)) == ["welcome"]
    assert told.a.ready
    assert sent(told.hello(attempt_there=2, attempt=3, **again)) == ["welcome", "clear"]
    assert not told.a.ready


def test_silence_is_a_loss_after_its_time_and_not_before(told):
    told.hello(10.0)
    told.said(now=12.0)
    assert told.nodes.decide(LookedAt(12.0 + LOST_S, frozenset())) == []
    commands = told.nodes.decide(LookedAt(12.1 + LOST_S, frozenset()))
    assert kinds(commands) == [Write, Abort, AgentLost, ReplaceAgent]
    assert commands[2] == AgentLost("a", "its agent is silent for 20 s")
    assert commands[3] == ReplaceAgent("a", 1)
    assert told.nodes.decide(LookedAt(90.0, frozenset())) == []
    assert kinds(told.nodes.decide(LookedAt(90.0, frozenset("a")))) == [Write, AgentLost, ReplaceAgent]


def test_time_in_which_this_process_stood_still_is_nobodys_silence(told):
    told.hello(10.0)
    told.nodes.decide(HeldUp(60.0))
    assert told.nodes.decide(LookedAt(85.0, frozenset())) == []


def test_an_agent_whose_process_has_ended_is_lost_at_once(told):
    told.hello()
    told.ready()
    told.nodes.decide(Closed(2.0, "a", "first"))
    assert told.nodes.decide(LookedAt(2.5, frozenset())) == [FindGone([("a", 1)])]
    assert told.nodes.decide(FoundGone([("a", 2)])) == []
    assert AgentLost("a", "its agent ended") in told.nodes.decide(FoundGone([("a", 1)]))
    assert told.nodes.decide(FoundGone([("a", 1)])) == []


def test_agents_that_leave_at_the_end_are_not_missed(told):
    told.hello()
    told.ready()
    told.nodes.decide(IsOver())
    told.nodes.decide(Closed(2.0, "a", "first"))
    assert told.nodes.decide(LookedAt(99.0, frozenset("a"))) == []
    assert told.nodes.decide(FoundGone([("a", 1)])) == []


def test_nodes_that_never_came_are_written_and_replaced(told):
    told.hello()
    reason = {"node": "b", "reason": "no agent connected within 30 s"}
    lost = [Write("node_lost", reason), AgentLost("b", reason["reason"]), ReplaceAgent("b", 0)]
    assert not told.nodes.by_name["b"].missed
    assert told.nodes.decide(NotCome(30.0)) == lost
    assert told.nodes.by_name["b"].missed


def test_thousands_of_nodes_that_never_came_are_lost_in_parts_but_for_those_that_come_meanwhile():
    names = [f"n{index}" for index in range(2 * LOST_AT_ONCE + 7)]
    nodes = Nodes(names, epoch=2, segment=1, lost_s=20.0)
    parts = [lost_in(nodes.decide(NotCome(30.0)))]
    hello = messages.Hello(1, 7, 1, "h", "3.9", messages.Slots(), epoch=1, attempt=0, living=())
    nodes.decide(AgentCame(0.0, names[-1], "link", hello, "10.0.0.1"))
    while nodes.due is not None:
        parts.append(lost_in(nodes.decide(Passed(1.0))))
    assert [len(part) for part in parts] == [LOST_AT_ONCE] * 2 + [6]
    assert [name for part in parts for name in part] == names[:-1]


def test_what_comes_twice_is_handled_once_and_what_is_missing_ends_the_connection(told):
    told.hello()
    assert told.said(DONE, n=1) == [Take("a", DONE, b"")]
    assert told.said(DONE, n=1) == []
    assert told.said(DONE, n=2, connection="older") == []
    with pytest.raises(WireError):
        told.said(DONE, n=3)


def test_an_agent_that_says_what_is_no_message_is_replaced_and_that_is_complained_of_once(told):
    told.hello()
    assert kinds(told.said(WireError("no message"), n=1)) == [Complain, Write, Abort, AgentLost, ReplaceAgent]
    assert told.said(WireError("no message"), n=1) == []


def test_a_lost_container_ends_what_ran_in_it_and_the_node_is_prepared_anew(told):
    told.hello()
    told.ready()
    commands = told.said(messages.ContainerLost("it was killed"), n=1)
    about = {"node": "a", "reason": "it was killed"}
    assert commands == [Write("container_lost", about), ContainerGone(**about), Prepare(**about)]
    assert not told.a.ready


def test_leases_answer_the_moment_that_the_agent_told_last(told):
    told.hello()
    told.hello(node="b", connection="other")
    told.said(at=4.25)
    told.nodes.decide(Closed(2.0, "b", "other"))
    assert told.nodes.decide(LeasesDue(5.0)) == [Send("first", {"t": "lease", "of": 4.25, "seen": 0})]


def test_a_sign_of_life_is_nobodys_concern_but_the_nodes(told):
    told.hello()
    assert told.said(now=3.0, at=4.25) == []
    assert (told.a.last_heard, told.a.last_said) == (3.0, 4.25)
    assert kinds(told.said(messages.Time("clock-1", 1.5))) == [Take]


def test_an_acknowledgement_renews_the_lease_and_then_no_other_message_does(told):
    told.hello()
    told.said(at=4.25)
    about = {"sequence": 3, "of": 4.25, "seen": 0}
    assert told.nodes.decide(Tell("a", messages.Ack(3))) == [Send("first", {"t": "ack", **about})]
    assert told.nodes.decide(LeasesDue(5.0)) == []
    assert sent(told.nodes.decide(LeasesDue(6.0))) == ["lease"]


def test_parts_of_the_leases_are_all_of_them_once():
    nodes = Nodes([f"n{number}" for number in range(1000)], epoch=2, segment=1, lost_s=LOST_S)
    hello = messages.Hello(1, 7, 1, "h", "3.9", SLOTS, epoch=2, attempt=0, living=(), at=1.0)
    for name in nodes.by_name:
        nodes.decide(AgentCame(0.0, name, name, hello, "10.0.0.1", None))
    parts = [[send.connection for send in nodes.decide(LeasesDue(5.0, part, 3))] for part in range(3)]
    assert [len(part) for part in parts] == [334, 333, 333]
    assert sorted(name for part in parts for name in part) == sorted(nodes.by_name)


def test_an_agent_that_takes_nothing_is_cut_off(told):
    told.hello()
    commands = [command for _ in range(20_002) for command in told.nodes.decide(Order("a", messages.ShellInput("1")))]
    assert kinds(commands[-1:]) == [Abort]
    assert told.a.session is None
    assert told.nodes.decide(Order("a", STOP)) == []


def test_an_order_is_known_to_be_taken_once_the_agent_has_acknowledged_it(told):
    told.hello()
    told.nodes.decide(Order("a", STOP, mark="ranks-1"))
    assert not told.a.has_taken("ranks-1")
    assert not told.a.has_taken("ranks-2")
    told.said(seen=1)
    assert told.a.has_taken("ranks-1")
    told.hello(connection="second", pid=8, incarnation=2)
    assert not told.a.has_taken("ranks-1")


def test_what_an_earlier_agent_was_found_to_be_counts_for_no_other(told):
    told.hello(incarnation=2)
    told.ready(incarnation=1)
    assert not told.a.ready
    told.ready(incarnation=2, verdict="suspect")
    assert usable([told.a]) == [told.a]
    (written,) = told.nodes.decide(NodeJudged("a", "bad", [{"check": "gpu"}]))
    assert written == Write(
        "node_verdict", {"node": "a", "verdict": "bad", "results": [{"check": "gpu"}]}, durable=False
    )
    assert usable([told.a]) == []


def test_that_a_machine_was_busy_keeps_no_node_from_holding_ranks(told):
    told.hello(incarnation=2)
    told.ready(incarnation=2)
    busy = {"check": "host.load", "status": "unknown", "cause": "busy"}
    told.nodes.decide(NodeJudged("a", "unknown", [{"check": "gpu", "status": "pass"}, busy]))
    assert usable([told.a]) == [told.a]
    told.nodes.decide(NodeJudged("a", "unknown", [{"check": "gpu", "status": "unknown", "cause": "timeout"}, busy]))
    assert usable([told.a]) == []


def test_a_node_that_is_given_up_is_replaced_and_hears_nothing_more(told):
    told.hello()
    assert kinds(told.nodes.decide(GaveUp("a", "it gave no free port"))) == [Write, Abort, AgentLost, ReplaceAgent]
    assert told.nodes.decide(Tell("a", messages.Bye())) == []


def _thousands(count):
    nodes = Nodes([f"n{index}" for index in range(count)], epoch=2, segment=1, lost_s=LOST_S)
    for index in range(count):
        hello = messages.Hello(1, 7, 1, "h", "3.9", SLOTS, epoch=2, attempt=0, living=(), at=0.0)
        nodes.decide(AgentCame(0.0, f"n{index}", f"c{index}", hello, "10.0.0.1", None))
    return nodes


def lost_in(commands):
    return [command.node for command in commands if isinstance(command, AgentLost)]


def test_thousands_of_nodes_that_fall_silent_at_once_are_lost_in_parts_and_in_their_order():
    nodes = _thousands(3 * LOST_AT_ONCE + 7)
    parts = [lost_in(nodes.decide(LookedAt(LOST_S + 1, frozenset())))]
    while nodes.due is not None:
        assert nodes.due <= LOST_S + 1
        parts.append(lost_in(nodes.decide(Passed(LOST_S + 1))))
    assert [len(part) for part in parts] == [LOST_AT_ONCE] * 3 + [7]
    assert [name for part in parts for name in part] == list(nodes.by_name)
    assert lost_in(nodes.decide(LookedAt(LOST_S + 2, frozenset()))) == []


def test_a_node_that_is_heard_of_before_its_turn_is_not_lost_and_none_is_lost_twice():
    nodes = _thousands(2 * LOST_AT_ONCE)
    last = 2 * LOST_AT_ONCE - 1
    nodes.decide(LookedAt(LOST_S + 1, frozenset()))
    nodes.decide(LookedAt(LOST_S + 1, frozenset()))
    assert all(node.session is None for node in list(nodes.by_name.values())[: 2 * LOST_AT_ONCE])
    assert nodes.due is None

    nodes = _thousands(2 * LOST_AT_ONCE)
    nodes.decide(LookedAt(LOST_S + 1, frozenset()))
    nodes.decide(AgentSaid(LOST_S + 1, f"n{last}", nodes.by_name[f"n{last}"].connection, {}, ALIVE, b""))
    rest = lost_in(nodes.decide(Passed(LOST_S + 1)))
    assert rest == [f"n{index}" for index in range(LOST_AT_ONCE, last)]
    assert (nodes.due, nodes.by_name[f"n{last}"].session is not None) == (None, True)


def test_nodes_that_are_to_be_lost_are_not_once_the_run_is_over():
    nodes = _thousands(2 * LOST_AT_ONCE)
    nodes.decide(LookedAt(LOST_S + 1, frozenset()))
    nodes.decide(IsOver())
    assert lost_in(nodes.decide(Passed(LOST_S + 1))) == []
    assert nodes.due is None
