"""The course of a run: events in, commands out, from the first node that connects to the end."""

from __future__ import annotations

import pytest

from cordee.control.supervisor.decisions.nodes import Nodes
from cordee.control.supervisor.decisions.outcomes import Ended, SegmentOver
from cordee.control.supervisor.decisions.run import RunLead
from cordee.control.supervisor.decisions.vocabulary import (
    AgentCame,
    AgentLost,
    AgentSaid,
    BeginningFound,
    Broke,
    CancelWanted,
    Changed,
    CloseAttempt,
    Conclude,
    Concluded,
    EndTraining,
    FateKnown,
    FindBeginning,
    FindFenced,
    FoundGone,
    GaveUp,
    Lead,
    LearnFate,
    NewAttempt,
    NodePrepared,
    NodeSuspected,
    NotCome,
    Order,
    OrderEach,
    Ordered,
    Orphaned,
    Over,
    Passed,
    PortsFound,
    Prepare,
    Preparing,
    RankNews,
    SayTraining,
    Terminated,
    TimeIsNear,
    TrainingEnded,
    TrainingSaid,
    VetAgain,
    Write,
)
from cordee.control.supervisor.start_checkpoint import Beginning
from cordee.runs.checkpoint import Checkpoint
from cordee.runs.plan import Checkpoints, RunRequest, RunRestart, RunSegment, RunStep, RunTasks, RunTimeouts
from cordee.wire import messages

STEP = RunStep(
    RunTasks(("true",), {}),
    Checkpoints("/c", grace_s=30.0),
    RunRequest(nodes=2, min_nodes=2),
    RunSegment(grace_s=60.0),
    restart=RunRestart(retries=1, backoff_s=4.0),
)
TIMEOUTS = RunTimeouts(connect_s=60.0, heartbeat_s=1.0, lost_s=20.0, orphan_s=60.0, kill_s=10.0, lease_s=8.0)
NEWEST = Checkpoint("/c/step-5", "step-5", 5, 1)


class Led:
    """A run on two of the nodes a, b and c; what is decided for nodes is done to them."""

    def __init__(self, chains=False, attempts=0, step=STEP):
        self.nodes = Nodes(["a", "b", "c"], epoch=2, segment=1, lost_s=20.0)
        self.run = RunLead(step, TIMEOUTS, self.nodes.by_name, 2, attempts, chains, "/run/control/agent*.log")
        self.now = 0.0
        self.sent = []

    def does(self, *events):
        """Return the commands that follow from events, and from a look right after, without orders to agents."""
        commands = []
        for event in [*events, Passed(self.now)]:
            commands += self.run.decide(event)
        for command in commands:
            orders = [command] if isinstance(command, Order) else []
            if isinstance(command, OrderEach):
                orders = [command.at(place) for place in range(len(command.nodes))]
            for order in orders:
                self.nodes.decide(order)
                self.sent.append((order.node, order.message))
        return [command for command in commands if not isinstance(command, (Order, OrderEach))]

    def at(self, now):
        self.now = now
        return self.does()

    def joins(self, *names, incarnation=1, verdict="healthy"):
        for name in names:
            hello = messages.Hello(
                incarnation, 7, 1, "h", "3.9", messages.Slots(), epoch=2, attempt=0, living=(), at=self.now
            )
            self.nodes.decide(AgentCame(self.now, name, f"{name}{incarnation}", hello, "10.0.0.1"))
            if verdict:
                self.nodes.decide(NodePrepared(name, incarnation, verdict, []))
        return self.does(Changed())

    def leaves(self, name, reason="its agent ended"):
        self.nodes.decide(GaveUp(name, reason))
        return self.does(AgentLost(name, reason))

    def ports(self, *ports, text=""):
        question = next(message.id for _, message in reversed(self.sent) if isinstance(message, messages.Port))
        return self.does(PortsFound(messages.FreePorts(question, ports, text)))

    def chooses(self):
        self.does(Lead(self.now))
        self.joins("a", "b", "c")
        return self.does(Concluded(None))

    def trains(self, newest=None):
        if self.run.trial is None:
            self.chooses()
        self.ports(7001, 7002)
        self.does(BeginningFound(Beginning(newest)), TrainingSaid())
        self.does(Ordered())
        number = self.run.attempt.number
        for rank, node in enumerate(self.run.attempt.nodes):
            self.does(
                RankNews(self.now, node.name, messages.RanksStarted(number, (messages.StartedRank(rank, 100 + rank),)))
            )

    def rank_ends(self, rank, code=0, signal=None, reason="exited", message=None):
        attempt = self.run.attempt
        news = messages.RanksEnded(attempt.number, (messages.EndedRank(rank, code, signal, reason, 1.0, message),))
        return self.does(RankNews(self.now, attempt.nodes[rank].name, news))

    def fails(self, message="RuntimeError: no"):
        """Rank 0 fails, rank 1 is ended; return what follows once checkpoints were looked at."""
        self.rank_ends(0, code=1, message=message)
        self.at(self.now + 0.5)
        return self.rank_ends(1, code=None, signal="SIGTERM", reason="stopped")


@pytest.fixture
def led():
    return Led()


def written(commands):
    return [command.event for command in commands if isinstance(command, Write)]


def over(commands):
    (end,) = [command.over for command in commands if isinstance(command, Over)]
    return end


def test_a_plain_run_goes_from_its_nodes_to_its_end(led):
    led.does(Lead(0.0))
    led.joins("a", "b")
    assert led.run.due == pytest.approx(60.3)
    assert led.joins("c") == [NotCome(0.0), Conclude()]
    (chosen,) = led.does(Concluded(None))
    assert chosen == Write("nodes_chosen", {"nodes": ["a", "b"], "spares": ["c"], "excluded": []})
    assert led.sent == [("a", messages.Port("ports-1", "10.0.0.1", 2))]
    assert led.ports(7001, 7002) == [FindBeginning()]
    new, started, say = led.does(BeginningFound(Beginning(NEWEST)))
    assert (new, started.event, say) == (NewAttempt(), "attempt_started", SayTraining())
    assert started.fields["checkpoint"] == NEWEST.name
    led.does(TrainingSaid())
    assert [type(message).__name__ for _, message in led.sent] == ["Port", "Ranks", "Ranks"]
    assert led.does(Ordered()) == []
    led.rank_ends(0)
    assert EndTraining() in led.rank_ends(1)
    commands = led.does(TrainingEnded(NEWEST))
    assert commands[:2] == [
        CloseAttempt(1, NEWEST),
        Write("attempt_ended", {"attempt": 1, "outcome": "finished", "reason": "", "progress": False, "failure": None}),
    ]
    assert over(commands).state == "finished"
    assert led.run.due is None
    assert led.does(CancelWanted(9.0, "you")) == []


def test_nodes_that_do_not_come_are_given_up_when_their_time_is_over(led):
    led.does(Lead(0.0))
    led.joins("a", "b")
    assert led.at(60.2) == []
    assert led.at(60.3) == [NotCome(60.3)]
    assert led.at(60.4) == []
    led.nodes.decide(NotCome(60.3))
    assert led.at(60.5) == [Conclude()]


def test_a_run_without_enough_agents_ends_its_segment(led):
    led.does(Lead(0.0))
    led.joins("a")
    assert led.at(61.0) == [NotCome(61.0)]
    led.nodes.decide(NotCome(61.0))
    end = over(led.at(61.1))
    assert isinstance(end, SegmentOver)
    assert end.text == "1 of 3 agents connected, 2 nodes are needed; see /run/control/agent*.log"


def test_a_supervisor_that_follows_another_waits_until_the_leases_of_its_ranks_are_over():
    led = Led(attempts=3)
    led.run._timeouts = TIMEOUTS._replace(connect_s=1.0)
    led.does(Lead(0.0))
    assert led.run.due == 20.0


def test_nodes_are_judged_once_none_is_being_prepared(led):
    led.does(Lead(0.0))
    led.does(Preparing(True))
    assert led.joins("a", "b", "c") == [NotCome(0.0)]
    assert led.does(Preparing(False)) == [Conclude()]
    end = over(led.does(Concluded("two nodes are bad")))
    assert (end.state, end.reason, end.text) == ("failed", "vetting", "two nodes are bad")


def test_too_few_healthy_nodes_end_the_run(led):
    led.does(Lead(0.0))
    led.joins("a")
    led.joins("b", "c", verdict="bad")
    end = over(led.does(Concluded(None)))
    assert (end.reason, end.text) == ("vetting", "1 healthy nodes, 2 are needed")


def test_a_node_that_tells_no_port_is_replaced_and_that_is_a_loss(led):
    led.chooses()
    for second in range(1, 21):
        assert led.at(float(second)) == []
    assert led.at(20.5) == [GaveUp("a", "it gave no free port")]
    commands = led.leaves("a", "it gave no free port")
    assert written(commands) == ["restart_scheduled", "nodes_chosen"] or written(commands) == ["restart_scheduled"]


def test_a_node_without_a_free_port_ends_the_run(led):
    led.chooses()
    assert over(led.ports(text="all are taken")).text == "no free port on a: all are taken"


def test_an_attempt_that_cannot_begin_where_it_was_told_ends_the_run(led):
    led.chooses()
    led.ports(7001, 7002)
    ended = Ended("failed", 2, "no_beginning", "it was removed")
    assert over(led.does(BeginningFound(ended))) is ended


def test_a_failure_is_followed_by_another_attempt_on_the_same_nodes_and_twice_the_same_by_the_end(led):
    led.trains()
    assert EndTraining() in led.fails()
    commands = led.does(TrainingEnded(None))
    assert written(commands) == ["attempt_ended", "restart_scheduled"]
    assert Conclude() in commands
    assert written(led.does(Concluded(None))) == ["nodes_chosen"]
    led.trains()
    assert led.run.attempt.number == 2
    led.fails()
    commands = led.does(TrainingEnded(None))
    assert written(commands) == ["attempt_ended", "crash_loop"]
    assert over(commands).reason == "crash_loop"


def test_the_attempt_after_one_that_failed_at_its_start_is_told_to_begin_with_an_older_checkpoint(led):
    led.trains(NEWEST)
    led.fails()
    commands = led.does(TrainingEnded(NEWEST))
    assert written(commands) == ["attempt_ended", "checkpoints_doubted", "restart_scheduled"]
    led.does(Concluded(None))
    ((doubt,),) = [command.doubts for command in led.ports(7001, 7002) if isinstance(command, FindBeginning)]
    assert (doubt.checkpoint, doubt.open) == (NEWEST, True)
    assert "attempt 1 began with it and failed before it told a step: rank 0 on a exited" in doubt.why


def test_an_attempt_that_told_a_step_has_the_next_one_begin_with_the_same_checkpoint(led):
    led.trains(NEWEST)
    led.fails()
    assert written(led.does(TrainingEnded(NEWEST, stepped=True))) == ["attempt_ended", "restart_scheduled"]
    led.does(Concluded(None))
    assert FindBeginning() in led.ports(7001, 7002)


def test_what_failed_long_ago_does_not_count_against_ranks_that_ran_on_for_as_long_as_is_forgotten():
    led = Led(step=STEP._replace(restart=RunRestart(retries=1, backoff_s=4.0, forget_s=300.0)))
    for month in range(6):
        led.trains()
        led.now += 30 * 86400.0
        led.fails()
        assert "restart_scheduled" in written(led.does(TrainingEnded(None))), f"after {month + 1} months"
        led.does(Concluded(None))
    led.trains()
    led.now += 200.0
    led.fails()
    assert over(led.does(TrainingEnded(None))).reason == "crash_loop", "twice the same within that time"


def test_losses_are_followed_by_growing_pauses_and_a_spare_takes_the_place(led):
    led.trains()
    assert led.leaves("b") == []
    assert EndTraining() in led.rank_ends(0, code=None, signal="SIGKILL", reason="stopped")
    assert written(led.does(TrainingEnded(None)))[-1] == "restart_scheduled"
    chosen = led.does(Concluded(None))
    assert chosen[0].fields["nodes"] == ["a", "c"]


def test_a_spare_takes_the_place_of_a_suspected_node_which_is_vetted_again_and_used_only_without_another(led):
    led.trains()
    suspected = NodeSuspected("b", "rank 1 is slow")
    assert written(led.nodes.decide(suspected)) == ["node_suspected"]
    assert led.nodes.decide(suspected) == []
    led.fails()
    commands = led.does(TrainingEnded(None))
    assert VetAgain() in commands
    assert led.nodes.decide(VetAgain()) == [Prepare("b", "it is vetted again", again=True)]
    led.does(Preparing(True))
    assert led.at(30.0) == []  # it is waited for
    led.nodes.decide(NodePrepared("b", 1, "healthy", []))
    assert Conclude() in led.does(Preparing(False))
    assert led.nodes.decide(VetAgain()) == []  # once
    chosen = led.does(Concluded(None))
    assert chosen[0] == Write("nodes_chosen", {"nodes": ["a", "c"], "spares": ["b"], "excluded": []})
    led.trains()
    assert led.leaves("c") == []
    led.rank_ends(0, code=None, signal="SIGKILL", reason="stopped")
    led.at(50.0)
    led.does(TrainingEnded(None))
    led.at(200.0)
    chosen = led.does(Concluded(None))
    assert chosen[0].fields["nodes"] == ["a", "b"]


def test_a_node_that_is_suspected_no_longer_stays(led):
    led.trains()
    led.nodes.decide(NodeSuspected("b", "rank 1 is slow"))
    assert written(led.nodes.decide(NodeSuspected("b", ""))) == ["node_suspected"]
    led.fails()
    led.does(TrainingEnded(None))
    assert led.nodes.decide(VetAgain()) == []
    assert led.does(Concluded(None))[0].fields["nodes"] == ["a", "b"]


def test_what_an_earlier_supervisor_was_told_of_nodes_still_counts():
    led = Led()
    led.nodes.suspected_before({"a": "rank 0 is slow", "b": "", "gone": "rank 9 is slow"})
    chosen = led.chooses()
    assert next(one for one in chosen if isinstance(one, Write)).fields["nodes"] == ["b", "c"]


def test_without_a_spare_the_segment_ends_when_nobody_comes_back(led):
    led.trains()
    led.leaves("c")
    led.leaves("b")
    led.rank_ends(0, code=None, signal="SIGKILL", reason="stopped")
    led.at(1.0)
    led.does(TrainingEnded(None))
    assert led.at(60.9) == []
    end = over(led.at(61.0))
    assert isinstance(end, SegmentOver)
    assert end.text == "b, c did not come back within 60 s and no spare is left"


def test_a_cancel_before_ranks_run_ends_the_run_at_once(led):
    led.chooses()
    end = over(led.does(CancelWanted(1.0, "you")))
    assert (end.state, end.text) == ("cancelled", "cancelled by you")


def test_a_cancel_lets_ranks_save_and_ends_the_run_when_they_have_ended(led):
    led.trains()
    assert written(led.does(CancelWanted(1.0, "you"))) == ["stop_requested"]
    led.at(1.6)
    led.rank_ends(0, code=None, signal="SIGTERM", reason="stopped")
    led.rank_ends(1, code=None, signal="SIGTERM", reason="stopped")
    led.at(2.0)
    commands = led.does(TrainingEnded(NEWEST))
    assert written(commands) == ["attempt_ended"]
    assert over(commands).state == "cancelled"


def test_of_two_reasons_to_end_the_first_stands(led):
    led.trains()
    led.does(TimeIsNear(1.0))
    assert led.does(CancelWanted(1.1, "you")) == []
    assert led.run.early.over.reason == "time_limit"


def test_a_signal_is_understood_before_what_its_ranks_died_of_is_blamed():
    led = Led(chains=True)
    led.trains()
    led.rank_ends(0, code=None, signal="SIGTERM")
    led.rank_ends(1, code=None, signal="SIGTERM")
    assert led.at(4.0) == [EndTraining()]
    commands = led.does(TrainingEnded(None))
    assert written(commands) == ["attempt_ended"]
    assert led.does(Terminated(4.0)) == [LearnFate()]
    assert led.does(Terminated(4.1)) == []
    assert over(led.does(FateKnown(5.0, "preempted"))).reason == "preempted"


def test_a_run_whose_batch_script_is_gone_goes_on_until_the_scheduler_says_what_it_means():
    led = Led(chains=True)
    led.trains()
    assert led.does(Orphaned()) == [LearnFate(patiently=True)]
    assert led.does(Terminated(4.0)) == [LearnFate()]
    for undecided in ("running", "unknown"):
        assert led.does(FateKnown(5.0, undecided)) == []
    assert led.does(Terminated(80.0)) == [LearnFate()]
    assert written(led.does(FateKnown(90.0, "killed"))) == ["stop_requested"]
    assert led.run.early.over.reason == "killed"


def broken_off(led):
    """Let the checks of a node end with an error, and its vetting refuse the run."""
    led.does(Lead(0.0))
    led.joins("a", "b", "c")
    led.nodes.by_name["b"].results = [{"check": "host.memory", "status": "unknown", "cause": "error"}]
    return led.does(Concluded("1 nodes are left where 2 are needed"))


def test_a_signal_is_understood_before_checks_that_it_ended_are_blamed():
    led = Led(chains=True)
    assert broken_off(led) == []
    assert led.does(Terminated(1.0)) == [LearnFate()]
    assert led.at(60.0) == []
    assert over(led.does(FateKnown(61.0, "killed"))).reason == "killed"


def test_checks_that_broke_off_without_a_signal_refuse_the_run_after_a_moment():
    led = Led(chains=True)
    assert broken_off(led) == []
    assert led.at(1.9) == []
    assert over(led.at(2.0)).reason == "vetting"


def test_checks_that_broke_off_refuse_a_run_at_once_that_no_scheduler_ends(led):
    assert over(broken_off(led)).reason == "vetting"


def test_agents_whose_ranks_do_not_end_are_replaced_and_fenced(led):
    led.trains()
    led.rank_ends(0, code=1, message="RuntimeError: no")
    led.at(0.5)
    commands = []
    for second in range(1, 20):
        led.now = float(second)
        for node in led.nodes.by_name.values():
            stamps = {"seen": node.session.outbox.last}
            led.nodes.decide(AgentSaid(led.now, node.name, node.connection, stamps, messages.Alive()))
        commands = led.does()
        if commands:
            break
    assert commands == [GaveUp("b", "its ranks did not end when killed"), FindFenced([("b", 1)])]
    led.leaves("b", "its ranks did not end when killed")
    assert FindFenced([("b", 1)]) in led.at(led.now + 0.3)
    assert led.does(FoundGone([("b", 1)])) == []
    assert led.at(led.now + 0.3) == [EndTraining()]


def test_what_only_this_program_can_get_wrong_ends_the_run(led):
    led.does(Lead(0.0))
    assert over(led.does(Broke("vetting broke"))).reason == "internal"
