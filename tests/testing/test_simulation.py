"""The simulator: the real supervisor and agents in virtual time, the rules that hold, and mutants that it must find."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from types import FunctionType

import pytest

from cordee.control.agent.machine import NodeTasks
from cordee.control.agent.ranks import channels
from cordee.control.agent.ranks.attempt import NodeAttempt
from cordee.control.agent.ranks.attempts import Attempts
from cordee.control.agent.ranks.channels import RankChannels
from cordee.control.agent.telemetry.node_telemetry import NodeTelemetry
from cordee.control.agent.uplink import Uplink
from cordee.control.lease import NodeLease
from cordee.control.supervisor.decisions import restart
from cordee.control.supervisor.decisions.attempt import Attempt
from cordee.control.supervisor.decisions.early_end import EarlyEnd
from cordee.control.supervisor.decisions.restart import MOST_LOSSES, Decision, RestartCounter
from cordee.control.supervisor.decisions.run import RunLead
from cordee.control.supervisor.decisions.trial import Trial
from cordee.control.supervisor.decisions.vocabulary import EndTraining, Terminated
from cordee.control.supervisor.machines import Machines
from cordee.control.supervisor.ownership import Ownership
from cordee.control.supervisor.supervisor import Supervisor
from cordee.core.clock import clocks_of, pause
from cordee.core.errors import EXIT_USAGE
from cordee.faces.cli import main
from cordee.machine.slots import SlotAllocator
from cordee.machine.tasks.task import TaskRunner
from cordee.runs.journal import JournalWriter, UnwrittenLines
from cordee.runs.lane import Inline
from cordee.runs.turn import Turn
from cordee.systems.explain.node.slow_links import SlowLinks
from cordee.systems.vetting.node.preparation import NodePreparation
from cordee.telemetry.node.blocklog import BlockLogWriter
from cordee.wire.connection import Connection
from cordee.wire.session import Inbox, Outbox
from support.commands import support
from support.simulation import KINDS, Case, RunScript, VirtualFault, campaign, case_of, resumed, shrunk, simulate, world
from support.simulation.disk import VirtualLane
from support.simulation.loop import VirtualClocks, VirtualLoop, VirtualProcess
from support.simulation.machine import Channels, SimulatedMachine, VirtualTasks
from support.simulation.meetings import meeting
from support.simulation.network import VirtualConnection
from support.simulation.points import cases
from support.simulation.rules import PHASES
from support.simulation.world import SimulatedPlace

TWO = RunScript(nodes=2, spares=0)


def case(*faults, script=TWO):
    return Case(1, script, faults)


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *words], support)
    return ended.value.code


def events(result):
    return [text.split()[2] for _, text in result.trace if text.startswith("journal ")]


def test_a_run_without_faults_ends_well_in_virtual_time():
    result = simulate(case())
    assert (result.end, result.violations) == ("finished", [])
    assert events(result)[-1] == "ended"
    assert 10 < result.virtual_s < 20


def test_the_same_seed_goes_the_same_way():
    first, second = simulate(case_of(3)), simulate(case_of(3))
    assert first.trace == second.trace
    assert first.trace != simulate(case_of(4)).trace


def test_a_simulation_has_no_thread_and_looks_at_no_connection_of_this_machine(monkeypatch):
    began: list[str] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: began.append(thread.name))
    monkeypatch.setattr(SlowLinks, "look", lambda *_: began.append("links"))
    assert simulate(case_of(4)).violations == []
    assert began == []


def test_a_simulation_leaves_no_file_open():
    before = os.listdir("/proc/self/fd")
    for at in (8.0, 9.0):
        simulate(case(VirtualFault("kill_supervisor", at=at)))
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.campaign
@pytest.mark.parametrize("block", range(6))
def test_no_rule_is_broken_by_what_is_held(block):
    done = campaign(range(40 * block, 40 * block + 40))
    assert done.broken == {}


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(1000, 2000, 200))
def test_no_rule_is_broken_by_what_is_held_in_many_seeds(first):
    assert campaign(range(first, first + 200)).broken == {}


@pytest.mark.parametrize("where", [(Ownership, "look"), (Machines, "happened"), (Supervisor, "serve")])
def test_what_interrupts_a_simulation_is_raised_and_not_taken_for_a_broken_rule(where, monkeypatch):
    class TimeIsUp(BaseException):
        """As pytest raises it, from a signal's handler, in whatever runs."""

    def interrupt(*_):
        raise TimeIsUp

    monkeypatch.setattr(*where, interrupt)
    with pytest.raises(TimeIsUp):
        simulate(case())


def test_a_rank_that_is_killed_is_restarted_from_the_checkpoint():
    result = simulate(case(VirtualFault("kill_rank", at=8.0)))
    assert (result.end, result.violations) == ("finished", [])
    assert events(result).count("attempt_started") == 2
    assert any("rank 0 of attempt 2 starts" in text for _, text in result.trace)


def test_a_supervisor_that_is_killed_is_followed_by_the_next_epoch():
    result = simulate(case(VirtualFault("kill_supervisor", at=8.0)))
    assert (result.end, result.violations) == ("finished", [])
    assert any(text.startswith("journal 2/0 supervisor_started") for _, text in result.trace)


@pytest.mark.parametrize("at", [1.0, 3.0, 5.0, 6.0])
def test_an_agent_that_dies_while_its_node_is_vetted_is_replaced_and_nobody_is_judged_without_it(at):
    result = simulate(case(VirtualFault("kill_agent", at=at), script=replace(TWO, checks_s=4.0)))
    assert (result.end, result.violations) == ("finished", [])
    assert events(result).count("attempt_started") == 1


def test_a_preempted_run_comes_back_and_a_cancelled_one_does_not():
    assert simulate(case(VirtualFault("preempt", at=8.0, seconds=20.0))).end == "finished"
    assert simulate(case(VirtualFault("cancel", at=8.0))).end == "cancelled"


# Defects, put back by a line each: what they break, in which seeds they are looked for, and which kinds of faults show them.


def _start_beside(trial, outcome, now):
    trial._outcome = outcome
    return [EndTraining()]


def _count_losses(policy, failure, progressed, lasted_s):
    return Decision(False, 0.0, 1, "crash_loop", failure.sentence())


def _always_again(policy, failure):
    return Decision(True, 0.0, 0, "node_lost", failure.sentence())


def _acknowledge_before_it_is_stored(telemetry, send, *log, **about):
    send_it(telemetry, send, *log, **about)
    telemetry.acknowledge(telemetry._sequence)
    for channel in telemetry._channels._open.values():
        channel.stored = channel.read


send_it = NodeTelemetry.send


def _take_twice(inbox, number):
    inbox.last = max(inbox.last, number)
    return True


def _without_the_absent(attempt):
    return [node for node in living_nodes(attempt) if node.connection is not None]


def _write_again_nothing(log):
    log._unsynced.clear()
    log._unsynced_bytes = 0


def _take_the_unseen_for_newer(ownership):
    return "newer" if (seen := look(ownership)) == "unseen" else seen


def _take_it_for_a_wish_to_end(lead, event):
    return lead._terminated(Terminated(0.0))


def _end_at_once(attempts, late_s):
    look_at_lease(attempts, 0.0)


def _remove_and_make_anew(turn):
    if turn._newest() and not turn._is_free(1):
        return False
    turn._remove(1)
    turn._newest = iter((0, 1)).__next__
    return take(turn)


living_nodes, look, take = Attempt._living_nodes, Ownership.look, Turn.take
look_at_lease = Attempts.look_at_lease

BREAKS = ("cut", "lose", "blip")
AWAY = ("swallow", "blip")
MIXED = ("kill_rank", "kill_supervisor", "cancel", "preempt", "hold", "delay")
FOLLOWED = Case(1, RunScript(steps=200), (VirtualFault("rival", 6.0), VirtualFault("kill_rank", 30.0)))
APART = Case(
    1,
    RunScript(steps=200, notice_s=60.0),
    (VirtualFault("blip", 10.0, node=1, seconds=4.0), VirtualFault("kill_rank", 10.1)),
)
LOSSES = Case(
    1,
    RunScript(spares=0, steps=200, every=1000),
    tuple(VirtualFault("kill_agent", 0.3, f"event attempt_started {number}") for number in range(1, 13)),
)
DECIDED = Case(
    1,
    RunScript(spares=0, setup_s=6.0, every=1000, notice_s=60.0, stopping=False, disk_s=0.3),
    (VirtualFault("time_limit", 0.0, "message setup_done 3", 2), VirtualFault("rival", 0.0, "event ended 1", 2)),
)
CACHED = Case(
    1,
    RunScript(steps=60),
    (
        VirtualFault("rival", 8.0),
        VirtualFault("cut", 8.2),
        VirtualFault("see_former", 8.4, "", 0, 0.6),
        VirtualFault("cut", 8.7),
    ),
)
LOGGED = Case(
    1,
    RunScript(spares=0, steps=60, notice_s=60.0, event_bytes=1 << 20),
    (VirtualFault("pause_agent", 8.0, seconds=15.0),),
)
MUTANTS = {
    "an attempt does not wait for the end of its ranks": (Trial, "_over", _start_beside, "two attempts at once", MIXED),
    "any failure ends the run as a crash loop": (
        RestartCounter, "decide", _count_losses, "node loss counted as failure", MIXED,
    ),
    "a cancel is not taken in": (EarlyEnd, "cancel", lambda *_, **__: None, "a cancel was lost", MIXED),
    "what is sent counts as stored": (
        NodeTelemetry, "send", _acknowledge_before_it_is_stored, "what was acknowledged is not stored", ("kill_supervisor",),
    ),
    "a lease is never over": (NodeLease, "over", lambda lease, now: False, "two attempts at once", AWAY),
    "nothing is sent again": (Outbox, "__iter__", lambda outbox: iter(()), "the run does not end", BREAKS),
    "numbered messages are taken twice": (Inbox, "take", _take_twice, "a healthy node was judged", ("twice",)),
    "a node without a connection counts as ended": (
        Attempt, "_living_nodes", _without_the_absent, "two attempts at once", APART,
    ),
    "a preparation is not told that its agent is gone": (
        NodePreparation, "lost", lambda *_: None, "the run does not end", ("kill_agent",),
    ),
    "whoever complains of a lost peer is taken for the cause": (
        restart, "complains_of_peer", lambda failure: False, "node loss counted as failure", ("kill_agent", "power_off"),
    ),
    "who owns the run cannot be seen, so somebody else does": (
        Ownership, "look", _take_the_unseen_for_newer, "the run was given up", ("disk_eio", "disk_stale"),
    ),
    "nobody looks for a newer owner": (Ownership, "look", lambda ownership: "ours", "an older epoch leads", FOLLOWED),
    "ranks are ordered before their attempt is durable": (
        JournalWriter, "durable", lambda journal: asyncio.sleep(0), "an effect before its durable event", ("clock",),
    ),
    "what a disk refuses late counts as written": (
        UnwrittenLines, "uncertain", UnwrittenLines.certain, "a durable event was lost", ("disk_quota",),
    ),
    "telemetry that a disk refuses late is forgotten": (
        BlockLogWriter, "_write_again", _write_again_nothing, "what was acknowledged is not stored", ("disk_quota",),
    ),
    "what ended ranks held of their node is not taken back": (
        SlotAllocator, "take_back", lambda *_: None, "node loss counted as failure", ("kill_agent", "power_off"),
    ),
    "ranks that cannot be started are not told of": (
        NodeAttempt, "do_not_start", lambda *_: None, "the run does not end", ("memory_full",),
    ),
    "who claims a run does not ask whether its end is decided": (
        Ownership, "decided", lambda *_: None, "the exit disagrees with the journal", DECIDED,
    ),
    "any number of losses is followed by another attempt": (
        RestartCounter, "_after_loss", _always_again, "nodes are lost without an end", LOSSES,
    ),
    "an agent forgets whom it has obeyed": (
        Uplink, "epoch", property(lambda uplink: 0, lambda uplink, epoch: None), "an agent obeys an older epoch", CACHED,
    ),
    "what ranks logged is told in one message, however much it is": (
        channels, "READ_BYTES", 1 << 40, "a handler raised", LOGGED,
    ),
    "who finds a stale lock removes it and makes it anew": (
        Turn, "take", _remove_and_make_anew, "two seal at once", ("sealers",),
    ),
    "the supervisor and the launchers share the process group of their batch script": (
        world, "APART", "", "the run does not end", ("hung_script",),
    ),
    "the end of a batch script is taken for a wish to end the run": (
        RunLead, "_have_orphaned", _take_it_for_a_wish_to_end, "nobody has cancelled the run", ("kill_script",),
    ),
    "nobody ends a job whose batch script is gone": (
        SimulatedPlace, "let_go", lambda *_: None, "the job is left behind", ("kill_script",),
    ),
    "a node's own standstill counts against its lease": (
        Attempts, "look_at_lease", _end_at_once, "a suspension ends ranks", ("suspend",),
    ),
    "the disk is written to on the loop": (VirtualLane, "submit", Inline.submit, "an event loop waits for a disk", ("disk_still",)),
}  # fmt: skip


def _longer(case):
    """Return a case whose faults last longer than a node may be silent."""
    return replace(case, faults=tuple(replace(fault, seconds=fault.seconds + 30.0) for fault in case.faults))


@pytest.mark.campaign
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_defect_that_is_put_back_is_found(mutant, monkeypatch):
    owner, name, replacement, rule, kinds = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, replacement, raising=name != "epoch")
    tried = [kinds] if isinstance(kinds, Case) else (case_of(seed, kinds=kinds) for seed in range(300))
    for case in tried:
        result = simulate(_longer(case) if kinds is AWAY else case)
        if rule in dict(result.violations):
            break
    assert rule in dict(result.violations)


# What a campaign has found: the seed, what the run is and does, and the fault that was left of it.
FOUND = {
    "an agent that is killed while it is vetted is replaced, and the run not aborted by vetting": Case(
        256, RunScript(spares=0, setup_s=6.0), (VirtualFault("kill_agent", at=1.65),)
    ),
    "what a lost node said before its neighbours failed, and what comes late, does not tell that it lives": Case(
        1271,
        RunScript(spares=0, every=1000, notice_s=1.0),
        (VirtualFault("hold_from", 0.3, "message ranks_started 1", 0, 11.0),),
    ),
    "a node that is lost before its attempt is durable is lost once": Case(
        373,
        RunScript(every=1000, steps=200, stopping=False, disk_s=0.3),
        (VirtualFault("power_off", 12.85, node=1), VirtualFault("disk_eio", 0.67, seconds=70.0)),
    ),
    "a supervisor that a newer one follows does not end the run": Case(
        499, RunScript(spares=0, notice_s=0.001, disk_s=0.0005), (VirtualFault("rival", 0.0, "message stop 2"),)
    ),
    "what a disk took back as the run ended is written once it takes it": Case(
        254, RunScript(setup_s=0.0, steps=30), (VirtualFault("disk_eio", 0.0, "event rank_exited 2", seconds=20.0),)
    ),
    "nor where two ranks of each node wait for the other's": Case(
        1227,
        RunScript(per_node=2, setup_s=0.0, notice_s=0.001),
        (VirtualFault("hold", 3.0, "message checks_done 2", 1, 12.4),),
    ),
    "telemetry that a disk took back is durable before the run's end is written": Case(
        2001, RunScript(setup_s=6.0, notice_s=0.001), (VirtualFault("disk_stale", 0.001, "message stop 2", 1, 70.0),)
    ),
    "what a supervisor has told agents is stored is written again before it stands down": Case(
        9787,
        RunScript(setup_s=0.0, checks_s=0.3, notice_s=0.01, stopping=False),
        (
            VirtualFault("blip", 13.47, node=1, seconds=10.2),
            VirtualFault("disk_stale", 0.001, "event attempt_started 1", 1, 6.0),
            VirtualFault("rival", 0.0, "message checks_output 2", 2),
        ),
    ),
    "a rank that the kernel holds when its agent's lease is over is a lost node, no failure of the run": Case(
        203161,
        RunScript(spares=0, steps=200, setup_s=0.0, checks_s=0.3, notice_s=0.001, stopping=False),
        (
            VirtualFault("hold", 5.51, node=1, seconds=6.0),
            VirtualFault("forget", 0.0, "message stop_at 1", 1),
            VirtualFault("stuck", 0.001, "message checks_done 1", 1, 19.5),
        ),
    ),
    "what a disk took back is lost with the supervisor that had it, though the next one only ends the run": Case(
        223275,
        RunScript(
            spares=1, per_node=2, steps=20, setup_s=2.0, checks_s=0.3, notice_s=0.01, stopping=False, disk_s=0.02
        ),
        (
            VirtualFault("power_off", 0.3, "message ranks_started 1", 2),
            VirtualFault("pause_supervisor", 0.001, "message stop_at 2", 2, 5.9),
            VirtualFault("kill_supervisor", 3.0, "message ranks_ended 2", 2),
            VirtualFault("disk_stale", 13.24, node=2, seconds=70.0),
        ),
    ),
    "a node whose ranks the kernel holds gives its place to a spare": Case(
        3270,
        RunScript(per_node=2, steps=8, every=1000, setup_s=0.0, checks_s=0.3, notice_s=1.0, disk_s=0.0005),
        (
            VirtualFault("bug", 0.0, "phase start 1"),
            VirtualFault("swallow_from", 0.0, "phase train 1", 1, 2.0),
            VirtualFault("stuck", 0.0, "phase restart 1", 0, 12.0),
            VirtualFault("kill_agent", 0.0, "phase restart 1", 1),
        ),
    ),
    "of two supervisors that claim a run the one that claimed it last leads, whichever was started first": Case(
        166,
        RunScript(spares=0, per_node=2, steps=8, every=3, setup_s=0.0, notice_s=0.001, disk_s=0.0005),
        (
            VirtualFault("preempt", 0.0, "phase queue 1", seconds=6.0),
            VirtualFault("preempt", 0.7, "phase train 1", 1, 2.0),
            VirtualFault("swallow_to", 0.0, "phase connect 2", 1, 6.0),
            VirtualFault("pause_supervisor", 0.1, "phase connect 2", 1, 0.5),
            VirtualFault("rival", 0.003, "phase start 1", 1),
            VirtualFault("pause_supervisor", 0.003, "phase start 1", 1, 0.5),
            VirtualFault("swallow_from", 0.001, "phase start 1", 1, 0.5),
            VirtualFault("rival", 0.001, "phase train 1"),
        ),
    ),
    "an agent whose greeting is never answered does not wait for ever": Case(
        668, RunScript(steps=8, every=3, setup_s=1.0), (VirtualFault("cut_supervisor", 0.0, "event vetting_started 1"),)
    ),
    "ranks of an attempt that was lost before it was durable are not ordered from the next agents": Case(
        5960,
        RunScript(per_node=2, setup_s=0.0, notice_s=0.001, stopping=False, disk_s=0.0005),
        (
            VirtualFault("disk_still", 5.72, seconds=70.0),
            VirtualFault("pause_supervisor", 14.62, seconds=6.0),
            VirtualFault("disk_readonly", 0.001, "message checks 3", 1, 180.0),
        ),
    ),
}


def test_a_cancel_that_comes_as_a_newer_supervisor_takes_over_is_not_lost():
    faults = (
        VirtualFault("rival", 10.23, node=1),
        VirtualFault("cancel", 10.31),
        VirtualFault("cut_agent", 0.0, "event attempt_ended 1"),
    )
    result = simulate(case(*faults, script=RunScript(setup_s=6.0, steps=200, notice_s=0.001, disk_s=0.0005)))
    assert (result.end, result.violations) == ("cancelled", [])


@pytest.mark.parametrize("what", FOUND)
def test_what_a_campaign_found_does_not_come_back(what):
    result = simulate(FOUND[what])
    assert (result.end, result.violations) == ("finished", [])


@pytest.mark.parametrize(
    "faults",
    [
        (VirtualFault("time_limit", 0.0, "message setup_done 3", 2), VirtualFault("rival", 0.0, "event ended 1", 2)),
        (VirtualFault("bug", 8.0), VirtualFault("bug", 12.0), VirtualFault("rival", 0.0, "event ended 1", 2)),
        (
            VirtualFault("cancel", 8.0),
            VirtualFault("rival", 0.0, "event ended 1", 2),
            VirtualFault("kill_supervisor", 0.0, "event ended 1"),
        ),
        (  # of which nothing is in the journal yet
            VirtualFault("disk_readonly", 0.0, "phase queue 1", seconds=0.5),
            VirtualFault("time_limit", 0.1, "phase connect 1", 1),
            VirtualFault("rival", 0.001, "phase end 1", 1),
        ),
    ],
)
def test_whoever_claims_a_run_whose_end_is_decided_writes_the_same_end(faults):
    result = simulate(
        case(*faults, script=RunScript(setup_s=6.0, every=1000, notice_s=60.0, stopping=False, disk_s=0.3))
    )
    assert (result.end in ("failed", "cancelled"), result.violations) == (True, [])
    assert events(result).count("supervisor_started") == 1


def test_a_run_that_ends_while_the_next_supervisor_claims_it_is_over():
    faults = (
        VirtualFault("time_limit", 1.0, "phase vet 1"),
        VirtualFault("rival", 0.0, "phase end 1", 1),
        VirtualFault("disk_quota", 0.0, "phase end 1", 1, 12.0),
    )
    result = simulate(Case(2842, RunScript(per_node=2, steps=8, every=1000, checks_s=0.3, disk_s=0.0005), faults))
    assert (result.end, result.violations) == ("failed", [])
    assert events(result).count("supervisor_started") == 1


def test_an_end_that_was_decided_between_two_segments_is_seen_by_whoever_claims_the_run():
    faults = (
        VirtualFault("requeue", 0.7, "phase train 1"),
        VirtualFault("rival", 0.0, "phase queue 2", 1),
        VirtualFault("cut_supervisor", 0.001, "phase train 1"),
        VirtualFault("cancel", 0.7, "phase train 1", 1),
        VirtualFault("rival", 0.0, "phase end 1"),
    )
    script = RunScript(steps=8, every=3, checks_s=0.3, notice_s=1.0, disk_s=0.0005)
    result = simulate(Case(4759, script, faults))
    assert (result.end, result.violations) == ("cancelled", [])


def test_a_cancel_is_not_lost_where_another_end_was_decided_at_once_and_written_late():
    faults = (
        VirtualFault("disk_readonly", 0.0, "phase queue 1", seconds=12.0),
        VirtualFault("cancel", 0.1, "phase connect 1", 1),
        VirtualFault("time_limit", 0.001, "phase vet 1", 1),
        VirtualFault("power_off", 0.0, "phase end 1"),
    )
    script = RunScript(steps=8, every=3, checks_s=0.3, notice_s=0.001, disk_s=0.0005)
    result = simulate(Case(9460, script, faults))
    assert (result.end, result.violations) == ("failed", [])


def test_a_supervisor_that_starts_may_wait_for_a_disk():
    faults = (
        VirtualFault("disk_quota", 0.001, "phase start 1", 0, 12.0),
        VirtualFault("time_limit", 0.7, "phase train 1"),
        VirtualFault("rival", 0.001, "phase stop 1"),
        VirtualFault("disk_still", 0.02, "phase stop 1", 0, 12.0),
        VirtualFault("disk_still", 0.0, "phase restart 1", 1, 2.0),
    )
    script = RunScript(spares=0, per_node=2, steps=8, every=3, setup_s=0.0, checks_s=0.3, notice_s=1.0, disk_s=0.0005)
    result = simulate(Case(11815, script, faults))
    assert (result.end, result.violations) == ("finished", [])


def test_what_a_disk_refused_late_may_be_in_the_journal_or_not():
    faults = (
        VirtualFault("disk_quota", 0.3, "event supervisor_started 1", 1, 25.0),
        VirtualFault("kill_supervisor", 13.01, node=2),
    )
    script = RunScript(per_node=2, every=1000, notice_s=1.0, stopping=False, disk_s=0.0005)
    result = simulate(Case(55947, script, faults))
    assert (result.end, result.violations) == ("finished", [])
    faults = (
        VirtualFault("requeue", 0.3, "phase vet 1"),
        VirtualFault("rival", 1.0, "phase vet 1"),
        VirtualFault("disk_quota", 0.0, "phase vet 1", 0, 0.5),
    )
    script = RunScript(spares=0, steps=8, every=1000, setup_s=0.0, checks_s=0.3, notice_s=0.001, disk_s=0.02)
    result = simulate(Case(29243, script, faults))
    assert (result.end, result.violations) == ("finished", [])
    faults = (
        VirtualFault("disk_quota", 0.001, "message stop 2", 1, 70.0),
        VirtualFault("blip", 16.97, node=0, seconds=10.2),
    )
    result = simulate(Case(37794, RunScript(spares=0, per_node=2, setup_s=0.0, disk_s=0.02), faults))
    assert (result.end, result.violations) == ("finished", [])


def test_an_agent_may_wait_for_its_disk_at_the_end_as_long_as_that_stands_still():
    script = RunScript(spares=0, every=1000, setup_s=0.0, notice_s=60.0, stopping=False, disk_s=0.3)
    faults = (
        VirtualFault("swallow_to", 0.3, "event rank_exited 2", 1, 2.0),
        VirtualFault("disk_still", 17.5, node=1, seconds=180.0),
    )
    result = simulate(Case(37566, script, faults))
    assert (result.end, result.violations) == ("finished", [])


def test_a_disk_that_stands_still_for_minutes_or_refuses_costs_no_rank_its_life():
    for kind in ("disk_still", "disk_eio", "disk_stale", "disk_quota", "disk_full", "disk_readonly"):
        result = simulate(
            case(VirtualFault(kind, at=8.0, seconds=180.0), script=RunScript(spares=0, steps=100, every=1000))
        )
        assert (kind, result.end, result.violations) == (kind, "finished", [])
        assert events(result).count("attempt_started") == 1


def test_a_node_that_is_away_for_longer_than_its_lease_runs_nothing_beside_the_next_attempt():
    script = RunScript(nodes=2, spares=1, steps=200, notice_s=60.0)
    result = simulate(case(VirtualFault("swallow", at=10.0, node=1, seconds=60.0), script=script))
    assert (result.end, result.violations) == ("finished", [])
    assert events(result).count("attempt_started") == 2


def test_a_failing_case_of_faults_of_the_disk_goes_the_same_way_again_and_is_made_shorter(monkeypatch):
    monkeypatch.setattr(Ownership, "look", _take_the_unseen_for_newer)
    faults = (
        VirtualFault("disk_quota", 4.0, seconds=6.0),
        VirtualFault("disk_stale", 8.0, seconds=20.0),
        VirtualFault("disk_full", 9.0, seconds=6.0),
    )
    first, second = (simulate(case(*faults)) for _ in range(2))
    assert first.violations
    assert (first.trace, first.violations) == (second.trace, second.violations)
    short = shrunk(first)
    assert [fault.kind for fault in short.case.faults] == ["disk_stale"]
    again = simulate(Case.from_document(json.loads(json.dumps(short.case.document()))))
    assert (again.trace, again.violations) == (short.trace, short.violations)


def test_memory_that_is_full_ends_the_run_and_losses_without_an_end_do():
    full = simulate(case(VirtualFault("memory_full", 0.0, "event attempt_started 1", seconds=6.0)))
    assert (full.end, full.violations) == ("failed", [])
    lost = simulate(LOSSES)
    assert (lost.end, lost.violations) == ("failed", [])
    assert events(lost).count("attempt_started") == MOST_LOSSES


def test_a_failing_case_is_made_shorter_and_replays(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(EarlyEnd, "cancel", lambda *_, **__: None)
    step_s = 5.0  # so that the run cannot end by itself before the cancel must have been heard
    slow = RunScript(nodes=2, spares=0, steps=40, step_s=step_s)
    result = simulate(
        case(
            VirtualFault("delay", 1.0, seconds=2.0),
            VirtualFault("cancel", 9.0),
            VirtualFault("clock", 3.0),
            script=slow,
        )
    )
    short = shrunk(result)
    assert [fault.kind for fault in short.case.faults] == ["cancel"]
    file = tmp_path / "case.json"
    file.write_text(json.dumps(short.case.document()))
    assert run("--case", str(file), "--json") == 1
    assert json.loads(capsys.readouterr().out)["violations"] == [list(broken) for broken in short.violations]


@pytest.mark.campaign
def test_a_campaign_goes_on_where_it_was(tmp_path):
    kept = tmp_path / "kept.jsonl"
    *_, first = resumed(kept, range(60), partial(case_of, kinds=("clock",)))
    lines = kept.read_text()
    kept.write_text(lines[:-20])  # killed while the second block was written
    *_, second = resumed(kept, range(60), partial(case_of, kinds=("clock",)))
    assert (
        (second.seeds, second.met, second.ends) == (first.seeds, first.met, first.ends) == (60, first.met, first.ends)
    )
    assert kept.read_text().startswith(lines.splitlines()[0])


def test_the_command_says_which_faults_met_which_phase(capsys):
    assert run("--seeds", "0-4", "--faults", "kill_rank", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["seeds"], document["broken"]) == (4, {})
    assert {kind for kind, _, _ in document["met"]} == {"kill_rank"}


@pytest.mark.campaign
def test_every_point_of_a_short_run_is_known_and_some_of_all_pairs_hold(tmp_path):
    all_cases = cases()
    assert len(all_cases) > 80_000
    assert {len(one.faults) for one in all_cases} == {1, 2}
    assert {fault.kind for one in all_cases for fault in one.faults} == set(KINDS)
    assert campaign(range(40), all_cases.__getitem__).broken == {}
    assert run("--pairs", "--seeds", "5000-5040", "--out", str(tmp_path / "kept"), "--json") == 0


def test_faults_that_wait_for_a_phase_meet_each_phase_of_a_run(capsys):
    row = [fault for number in range(len(KINDS)) for fault in meeting(number).faults]
    aimed = Counter((fault.kind, fault.on.split()[1]) for fault in row)
    assert all(aimed[kind, phase] for kind in KINDS for phase in PHASES)
    assert run("--phases", "--seeds", "0-10", "--json") == 0
    assert {phase for _, phase, _ in json.loads(capsys.readouterr().out)["met"]} == set(PHASES)


def test_a_fault_that_finds_nothing_that_it_could_befall_has_met_nothing():
    nothing = simulate(case(VirtualFault("kill_rank", 0.0, "phase connect 1")))
    assert (nothing.met, nothing.violations) == (Counter(), [])
    assert simulate(case(VirtualFault("kill_rank", 0.0, "phase train 1"))).met == {("kill_rank", "train"): 1}


def test_a_message_that_is_to_be_lost_is_the_next_one_of_its_node():
    result = simulate(case(VirtualFault("lose", 0.0, "phase vet 1", node=1)))
    assert (result.end, result.violations) == ("finished", [])
    assert result.moments["message hello"] == 3


@pytest.mark.parametrize(
    "wrong",
    [
        ["--pairs", "--nodes", "3"],
        ["--pairs", "--phases"],
        ["--seeds", "many"],
        ["--faults", "rain"],
        ["--case", "/dev/null"],
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    assert run(*wrong) == EXIT_USAGE


def test_nothing_of_a_process_that_was_killed_runs_and_what_a_paused_one_would_do_waits():
    loop, seen = VirtualLoop(), []

    async def count(name):
        for number in range(4):
            seen.append((name, number, round(loop.now, 3)))
            await asyncio.sleep(1.0)

    async def main():
        killed, paused = (VirtualProcess(loop, name, lambda name=name: count(name)) for name in ("killed", "paused"))
        await asyncio.sleep(1.5)
        killed.kill()
        paused.pause()
        await asyncio.sleep(10.0)
        paused.resume()
        await asyncio.sleep(10.0)

    loop.run_until_complete(main())
    assert seen == [
        ("killed", 0, 0.0), ("paused", 0, 0.0), ("killed", 1, 1.0), ("paused", 1, 1.0), ("paused", 2, 11.5), ("paused", 3, 12.5),
    ]  # fmt: skip
    loop.bury()


def test_a_process_that_stands_still_by_itself_does_nothing_else_while_the_others_go_on():
    loop, seen = VirtualLoop(), []

    async def stand_still():
        asyncio.get_running_loop().call_later(1.0, seen.append, ("its timer", None))
        pause(2.0)
        seen.append(("stood still", round(loop.now, 3)))
        await asyncio.sleep(0.5)
        seen.append(("went on", round(loop.now, 3)))

    async def count():
        for _ in range(3):
            await asyncio.sleep(0.9)
            seen.append(("another", round(loop.now, 3)))

    async def main():
        VirtualProcess(loop, "still", stand_still)
        VirtualProcess(loop, "another", count)
        await asyncio.sleep(10.0)

    with clocks_of(VirtualClocks(loop)):
        loop.run_until_complete(main())
    assert seen == [
        ("another", 0.9), ("another", 1.8), ("stood still", 2.0), ("its timer", None), ("went on", 2.5), ("another", 2.7),
    ]  # fmt: skip
    loop.bury()


def test_who_is_killed_while_it_stands_still_goes_no_further():
    loop, seen = VirtualLoop(), []

    async def stand_still():
        pause(2.0)
        seen.append("went on")

    async def main():
        process = VirtualProcess(loop, "still", stand_still)
        loop.after(1.0, process.kill)
        await asyncio.sleep(10.0)

    with clocks_of(VirtualClocks(loop)):
        loop.run_until_complete(main())
    assert seen == []
    loop.bury()


def test_a_supervisor_waits_in_virtual_time_for_an_owner_that_has_not_signed(monkeypatch):
    def stand_still(_):
        raise AssertionError("a simulation waits for real time")

    sign = Ownership._sign
    monkeypatch.setattr(Ownership, "_sign", lambda owner, path: None if path.parent.name == "1" else sign(owner, path))
    monkeypatch.setattr(time, "sleep", stand_still)
    result = simulate(case(VirtualFault("kill_supervisor", 8.0)))
    assert (result.end, result.violations) == ("finished", [])
    died = next(at for at, text in result.trace if text.startswith("FAULT"))
    claimed = next(at for at, text in result.trace if text.startswith("journal 2/0 supervisor_started"))
    assert claimed - died > 2.0


@pytest.mark.parametrize(
    ("real", "simulated"),
    [
        (RankChannels, Channels),
        (TaskRunner, VirtualTasks),
        (NodeTasks, SimulatedMachine),
        (Connection, VirtualConnection),
    ],
)
def test_what_is_simulated_does_all_that_the_real_one_does(real, simulated):
    functions = [name for name, value in vars(real).items() if isinstance(value, FunctionType) and name[0] != "_"]
    of_asyncio = dir(asyncio.Protocol)
    assert functions
    assert [name for name in functions if name not in of_asyncio and not hasattr(simulated, name)] == []


def test_each_kind_of_fault_says_what_it_is():
    assert len(KINDS) == len(set(KINDS)) > 20
