"""Who is drained, repaired and brought back, and who is left alone: decisions without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.job.fleet_site import OffenderPolicy
from cordee.systems.vetting.fleet.audit import Deed, settled
from cordee.systems.vetting.fleet.cluster import SlurmNode, parse_nodes, parse_reservations
from cordee.systems.vetting.fleet.observations import Clean, NodeFault, NodeRecord
from cordee.systems.vetting.fleet.policy import convictions, propose, room_left
from cordee.systems.vetting.fleet.proposals import Proposal, reason_of
from cordee.systems.vetting.fleet.situation import FleetSituation
from cordee.systems.vetting.fleet.views import rank_offenders

NOW = 1_800_000_000.0
DAY = 86400.0
POLICY = OffenderPolicy()
REASON = "cordee: node_problem pair.slow job 2 2027-01-14"
ALL = frozenset(["reset_gpu", "reboot", "diagnose", "ticket", "vet"])


def fault(
    job: str = "1", *, rule: str = "pair.slow", days: float = 1.0, partners: str = "ab", **more: Any
) -> NodeFault:
    given: dict[str, Any] = {
        "check": "pair.bandwidth", "kind": "soft", "scope": "node", "action": "exclude", "evidence": "11 GB/s",
        "relative": True, **more,
    }  # fmt: skip
    return NodeFault(
        NOW - days * DAY, f"v{job}-{days}", job, job, "training", "n1", rule=rule, partners=frozenset(partners), **given
    )


def hard(job: str = "1", **more: Any) -> NodeFault:
    given = {"rule": "xid.79", "kind": "hard", "check": "gpu.xid", "action": "drain", "relative": False}
    return fault(job, **{**given, **more})


def clean(days: float, *checks: str) -> Clean:
    return Clean(NOW - days * DAY, f"clean-{days}", frozenset(checks or ["pair.bandwidth"]))


def record(*seen: NodeFault | Clean, node: str = "n1") -> NodeRecord:
    faults = sorted((each for each in seen if isinstance(each, NodeFault)), key=lambda each: each.at)
    well = sorted((each for each in seen if isinstance(each, Clean)), key=lambda each: each.at)
    return NodeRecord(node, len(seen), [replace(each, node=node) for each in faults], well)


def deed(action: str, days: float, *, phase: str = "done", reason: str = REASON, **more: Any) -> Deed:
    given = {"rule": "pair.slow", "check": "pair.bandwidth", "first_step": "exclude", "node": "n1", **more}
    return Deed(f"{action}-{days}", NOW - days * DAY, action, phase=phase, reason=reason, **given)


def state(
    name: str = "n1", words: str = "IDLE", reason: str = "", partitions: tuple[str, ...] = ("normal",)
) -> SlurmNode:
    return SlurmNode(name, frozenset(words.split("+")), reason, partitions)


DRAINED = state(words="IDLE+DRAIN", reason=REASON)


def decide(
    records: Any = (),
    nodes: Any = None,
    deeds: Any = (),
    policy: OffenderPolicy = POLICY,
    commands: frozenset[str] = frozenset(),
) -> list[Proposal]:
    known = [records] if isinstance(records, NodeRecord) else list(records)
    states = [nodes] if isinstance(nodes, SlurmNode) else list(nodes or [state()])
    return propose(
        FleetSituation(
            {each.node: each for each in known},
            {each.name: each for each in states},
            list(deeds),
            policy,
            commands,
            NOW,
        )
    )


def actions(proposals: list[Proposal]) -> list[tuple[str, str, bool]]:
    return [(proposal.action, proposal.node, proposal.held is None) for proposal in proposals]


def test_a_hard_fault_drains_at_once():
    (proposal,) = decide(record(hard("7")))
    assert (proposal.action, proposal.kind, proposal.held) == ("drain", "hard", None)
    assert proposal.reason == "cordee: node_problem xid.79 job 7 2027-01-14"


def test_one_soft_fault_drains_nobody():
    assert decide(record(fault("1"))) == []


def test_two_jobs_with_different_partners_confirm_a_soft_fault():
    (proposal,) = decide(record(fault("1", partners="a"), fault("2", partners="b", days=0.5)))
    assert (proposal.action, proposal.held) == ("drain", None)
    assert [each.job for each in proposal.evidence] == ["1", "2"]
    assert "in 2 jobs" in proposal.why


@pytest.mark.parametrize(
    "seen",
    [
        [fault("1", days=2), fault("1", days=1)],  # the same job, requeued
        [fault("1", partners="a"), fault("2", partners="a")],  # the same partner: perhaps it is to blame
        [fault("1"), fault("2", rule="clock.skew")],  # two things, each seen once
        [fault("1", days=40), fault("2", days=1)],  # too long ago (only what is young is handed on)
        [fault(""), fault("", days=2)],  # outside of jobs
        [fault("1", action="none"), fault("2", action="none")],
        [fault("1", scope="link"), fault("2", scope="link")],
        [fault("1", scope="fleet"), fault("2", scope="fleet")],
    ],
    ids=["same job", "same partner", "two rules", "old", "no job", "nothing to do", "a link", "the fleet"],
)
def test_what_does_not_confirm_a_soft_fault(seen):
    young = [each for each in seen if each.at > NOW - POLICY.days * DAY]
    assert decide(record(*young)) == []


def hot(partners: str) -> NodeRecord:
    return record(*[fault(job, rule="gpu.hot", relative=False, partners=partners) for job in "12"])


def test_a_fault_that_rests_on_no_other_node_may_be_met_beside_the_same_one():
    assert actions(decide(hot("a"))) == [("drain", "n1", True)]


def test_a_fault_that_was_met_alone_counts_only_by_protocols_of_the_site():
    assert decide(hot("")) == []
    assert convictions(hot(""), POLICY)[0].missing == "no other node was well in the same vetting"
    assert actions(decide(hot(""), policy=OffenderPolicy(protocols=["training"]))) == [("drain", "n1", True)]


def test_slowness_with_several_partners_is_confirmed_though_they_are_the_same():
    assert actions(decide(record(fault("1", partners="ab"), fault("2", partners="ab")))) == [("drain", "n1", True)]


def test_a_site_may_ask_for_more_confirmations():
    three = OffenderPolicy(confirmations=3)
    assert decide(record(fault("1"), fault("2")), policy=three) == []
    assert actions(decide(record(*[fault(job) for job in "123"]), policy=three)) == [("drain", "n1", True)]


def test_the_reason_says_whose_problem_it_is():
    left_over = [fault(job, rule="gpu.foreign-process", scope="user", action="drain", relative=False) for job in "12"]
    (proposal,) = decide(record(*left_over))
    assert proposal.reason.startswith("cordee: user_problem gpu.foreign-process job ")


def test_a_reason_holds_only_plain_words():
    assert reason_of("node", "a b;c'$(x)\n", "1 2", 0) == "cordee: node_problem a_b_c_x_ job 1_2 1970-01-01"
    assert reason_of("user", "x", "", 0) == "cordee: user_problem x 1970-01-01"


@pytest.mark.parametrize(
    ("words", "reason", "said"),
    [
        ("IDLE+DRAIN", "fan is broken", "not by us: fan is broken"),
        ("IDLE+DRAIN", "cordee: node_problem xid.79 job 9 2027-01-01", "not by us"),  # our tag, but not in our trail
        ("DOWN", "Not responding", "down"),
        ("IDLE+MAINTENANCE+RESERVED", "", "maintenance"),
        ("MAINT", "", "maintenance"),
        ("ALLOCATED+RESERVED", "", "reserved"),
        ("IDLE+POWERED_DOWN", "", "down"),
        ("MIXED+DRAIN", "ask bob", "not by us"),
    ],
)
def test_what_others_did_is_left_alone(words, reason, said):
    (proposal,) = decide(record(hard()), state(words=words, reason=reason))
    assert said in proposal.held


def test_a_node_that_works_may_be_drained():
    assert actions(decide(record(hard()), state(words="ALLOCATED"))) == [("drain", "n1", True)]


def test_a_node_that_slurm_does_not_know_is_not_touched():
    assert decide(record(hard(), node="gone")) == []


@pytest.mark.parametrize(
    ("size", "ratio", "allowed"),
    [(4, 0.05, 1), (1, 0.05, 1), (19, 0.05, 1), (40, 0.05, 2), (100, 0.05, 5), (10, 1.0, 10)],
)
def test_only_so_many_nodes_of_a_partition_are_drained_in_a_day(size, ratio, allowed):
    names = [f"n{number}" for number in range(size)]
    found = decide(
        [record(hard(), node=name) for name in names],
        [state(name) for name in names],
        policy=OffenderPolicy(daily_ratio=ratio),
    )
    assert len(found) == size
    assert sum(proposal.held is None for proposal in found) == allowed
    assert all("drains of today" in proposal.held for proposal in found if proposal.held)


def test_drains_of_the_last_day_count_and_older_ones_do_not():
    nodes = [state(), state("n2")]
    for days, held in ((0.5, True), (1.5, False)):
        (proposal,) = decide(
            record(hard()), nodes, [deed("drain", days, node="n2"), deed("resume", days - 0.1, node="n2")]
        )
        assert (proposal.held is not None) == held


def test_drains_that_did_not_happen_do_not_count():
    (proposal,) = decide(record(hard()), [state(), state("n2")], [deed("drain", 0.5, node="n2", phase="failed")])
    assert proposal.held is None


def test_every_partition_of_a_node_must_have_room():
    nodes = [state(partitions=("normal", "debug")), state("n2", partitions=("debug",)), state("n3")]
    found = decide([record(hard()), record(hard(), node="n2")], nodes)
    assert sum(proposal.held is None for proposal in found) == 1
    assert "partition debug" in next(proposal.held for proposal in found if proposal.held)


def test_hard_faults_go_first_when_room_is_short():
    soft = record(fault("1"), fault("2"), node="a1")
    found = decide([soft, record(hard(), node="z9")], [state("a1"), state("z9")])
    assert actions(found) == [("drain", "z9", True), ("drain", "a1", False)]


def test_a_node_is_drained_once():
    assert decide(record(hard()), DRAINED, [deed("drain", 0.5)]) == []


def test_a_node_that_an_administrator_brought_back_is_judged_anew():
    trail = [deed("drain", 2)]
    assert decide(record(hard(days=3)), state(), trail) == []
    assert actions(decide(record(hard(days=0.1)), state(), trail)) == [("drain", "n1", True)]


@pytest.mark.parametrize("reason", ["fan", REASON + " see ticket 5", "", REASON.upper()])
def test_a_drain_whose_reason_a_person_changed_is_theirs(reason):
    changed = state(words="IDLE+DRAIN", reason=reason)
    assert decide(record(clean(0.2), clean(0.1)), changed, [deed("drain", 0.5)], commands=ALL) == []


def test_two_clean_vettings_bring_a_node_back():
    (proposal,) = decide(record(clean(0.2), clean(0.1)), DRAINED, [deed("drain", 0.5)])
    assert (proposal.action, proposal.held, proposal.reason) == ("resume", None, REASON)


@pytest.mark.parametrize(
    "seen",
    [
        [clean(0.1)],
        [clean(0.7), clean(0.6)],  # before the drain
        [clean(0.3), clean(0.2), fault("3", days=0.15)],  # and then not clean
        [clean(0.3), fault("3", days=0.2), clean(0.1)],
    ],
    ids=["one", "before", "bad since", "bad between"],
)
def test_what_does_not_bring_a_node_back(seen):
    assert decide(record(*seen), DRAINED, [deed("drain", 0.5)]) == []


def test_clean_vettings_without_the_check_that_failed_bring_nobody_back():
    (proposal,) = decide(record(clean(0.2, "host.memory"), clean(0.1)), DRAINED, [deed("drain", 0.5)])
    assert "pair.bandwidth passed in only 1" in proposal.held


@pytest.mark.parametrize("words", ["ALLOCATED+DRAIN", "IDLE+DRAIN+MAINT+RESERVED"])
def test_nothing_is_done_to_a_drained_node_that_works_or_is_under_maintenance(words):
    busy = state(words=words, reason=REASON)
    assert decide(record(clean(0.2), clean(0.1)), busy, [deed("drain", 0.5)], commands=ALL) == []


def test_the_ladder_is_climbed_one_step_for_each_failure():
    trail = [deed("drain", 0.9, first_step="reset_gpu")]
    climbed = []
    for number in range(4):
        (proposal,) = decide(record(fault("9", days=0.8 - 0.1 * number + 0.01)), DRAINED, trail, commands=ALL)
        climbed.append(proposal.action)
        trail.append(deed(proposal.action, 0.8 - 0.1 * number))
    assert climbed == ["reset_gpu", "reboot", "diagnose", "ticket"]
    (after,) = decide(record(fault("9", days=0.01)), DRAINED, trail, commands=ALL)
    assert after.action == "vet"


@pytest.mark.parametrize(
    ("first", "step"), [("reset_gpu", "reset_gpu"), ("reboot", "reboot"), ("drain", "reboot"), ("exclude", "reboot"),
                        ("ticket", "ticket")]
)  # fmt: skip
def test_a_rule_says_where_the_ladder_begins(first, step):
    (proposal,) = decide(record(), DRAINED, [deed("drain", 0.5, first_step=first)], commands=ALL)
    assert proposal.action == step


def test_steps_without_a_command_are_left_out():
    (proposal,) = decide(record(), DRAINED, [deed("drain", 0.5)], commands=frozenset(["ticket"]))
    assert proposal.action == "ticket"
    assert decide(record(), DRAINED, [deed("drain", 0.5)]) == []


def test_after_a_step_the_node_is_vetted_before_the_next_one():
    trail = [deed("drain", 0.5), deed("reboot", 0.4)]
    assert actions(decide(record(), DRAINED, trail, commands=ALL)) == [("vet", "n1", True)]
    assert decide(record(), DRAINED, [*trail, deed("vet", 0.001)], commands=ALL) == []
    assert actions(decide(record(clean(0.2), clean(0.1)), DRAINED, trail, commands=ALL)) == [("resume", "n1", True)]


def test_a_step_that_failed_leads_to_the_next():
    trail = [deed("drain", 0.5), deed("reboot", 0.4, phase="failed")]
    assert actions(decide(record(), DRAINED, trail, commands=ALL)) == [("diagnose", "n1", True)]


def test_a_ticket_that_was_not_taken_is_sent_again():
    trail = [deed("drain", 0.5, first_step="ticket"), deed("ticket", 0.4, phase="failed")]
    assert actions(decide(record(), DRAINED, trail, commands=ALL)) == [("ticket", "n1", True)]


def test_the_third_drain_needs_a_person():
    trail = [deed("drain", 20), deed("resume", 19), deed("drain", 10), deed("resume", 9)]
    (third,) = decide(record(hard(days=1)), state(), trail, commands=ALL)
    assert (third.action, third.held) == ("drain", None)
    assert "a person decides" in third.why
    trail.append(deed("drain", 0.5))
    well = record(clean(0.2), clean(0.1))
    assert actions(decide(well, DRAINED, trail, commands=ALL)) == [("ticket", "n1", True)]
    assert decide(well, DRAINED, [*trail, deed("ticket", 0.4)], commands=ALL) == []


def test_drains_of_long_ago_are_forgotten():
    trail = [deed("drain", 40), deed("resume", 39), deed("drain", 35), deed("resume", 34), deed("drain", 0.5)]
    assert actions(decide(record(clean(0.2), clean(0.1)), DRAINED, trail)) == [("resume", "n1", True)]


@pytest.mark.parametrize(
    ("action", "now", "phase"),
    [
        ("drain", DRAINED, "done"),
        ("drain", state(), "failed"),
        ("drain", state(words="IDLE+DRAIN", reason="fan"), "failed"),
        ("drain", None, "failed"),
        ("resume", state(), "done"),
        ("resume", DRAINED, "failed"),
        ("reboot", state(), "unknown"),
        ("reset_gpu", state(), "unknown"),
        ("ticket", DRAINED, "failed"),
    ],
)
def test_an_action_without_an_outcome_is_settled_by_what_slurm_says(action, now, phase):
    assert settled(deed(action, 0.1, phase="open"), now)[0] == phase


def test_a_reboot_with_an_unknown_outcome_is_not_done_again():
    trail = [deed("drain", 0.5), deed("reboot", 0.4, phase="unknown")]
    assert [action for action, *_ in actions(decide(record(), DRAINED, trail, commands=ALL))] == ["vet"]


def test_offenders_are_ranked_hard_first_then_confirmed_then_by_jobs():
    records = [
        record(fault("1"), node="once"),
        record(*[fault(job) for job in "123"], node="thrice"),
        record(*[fault(job) for job in "12"], node="twice"),
        record(hard(), node="broken"),
        record(clean(1), node="well"),
    ]
    ranked = rank_offenders({each.node: each for each in records}, POLICY, [deed("drain", 3, node="thrice")])
    assert [each["node"] for each in ranked] == ["broken", "thrice", "twice", "once"]
    assert [each["drains"] for each in ranked] == [0, 1, 0, 0]
    assert ranked[-1]["rules"][0]["missing"] == "1 of 2 jobs"
    assert ranked[1]["rules"][0]["evidence"][0]["partners"] == ["a", "b"]


def test_the_gravest_accusation_counts():
    found = convictions(record(fault("1"), fault("2"), hard("3", days=9)), POLICY)
    assert [each.rule for each in found] == ["xid.79", "pair.slow"]


FAULTS = st.builds(
    fault,
    st.sampled_from("1234"),
    rule=st.sampled_from(["pair.slow", "gpu.hot"]),
    days=st.floats(0.01, 27),
    partners=st.sampled_from(["", "a", "b", "ab"]),
)
SEEN = st.lists(FAULTS | st.builds(clean, st.floats(0.01, 27)), max_size=8)
WORDS = st.sampled_from(["IDLE", "ALLOCATED", "IDLE+DRAIN", "DOWN", "MAINT", "IDLE+RESERVED"])


@settings(max_examples=150)
@given(
    seen=st.lists(SEEN, min_size=1, max_size=12),
    words=st.lists(WORDS, min_size=12, max_size=12),
    reasons=st.lists(st.sampled_from(["", REASON, "fan"]), min_size=12, max_size=12),
    trail=st.lists(st.tuples(st.sampled_from(["drain", "resume", "reboot"]), st.floats(0.01, 27)), max_size=6),
)
def test_whatever_the_history_holds_the_limits_are_kept(seen, words, reasons, trail):
    names = [f"n{number}" for number in range(len(seen))]
    nodes = [state(name, word, reason) for name, word, reason in zip(names, words, reasons, strict=False)]
    deeds = sorted((deed(action, days, node="n0") for action, days in trail), key=lambda each: each.at)
    found = decide(
        [record(*each, node=name) for name, each in zip(names, seen, strict=True)], nodes, deeds, commands=ALL
    )
    done = [proposal for proposal in found if proposal.held is None]
    by_name = {each.name: each for each in nodes}
    drains = [proposal.node for proposal in done if proposal.action == "drain"]
    assert len(drains) == len(set(drains)) <= 1  # 5 % of 12, and at least one
    for proposal in done:
        now = by_name[proposal.node]
        if proposal.action == "drain":
            assert now.words <= {"IDLE", "ALLOCATED"}
            assert len({each.job for each in proposal.evidence}) >= 2
        else:
            assert proposal.node == "n0"
            assert now.drained
            assert now.reason == REASON


def test_room_is_counted_for_each_partition():
    nodes = {f"n{number}": state(f"n{number}", partitions=("normal",)) for number in range(60)}
    nodes["d1"] = state("d1", partitions=("debug",))
    assert room_left(FleetSituation({}, nodes, [deed("drain", 0.5)], POLICY, now=NOW)) == {"normal": 2, "debug": 1}


RECORDED = (
    "NodeName=n1 Arch=x86_64 CPUTot=8 State=IDLE+DRAIN Partitions=normal,debug BootTime=None "
    "Reason=cordee: node_problem gpu.hot job 123 2026-11-21 [root@2026-11-21T11:00:00]\n"
    "NodeName=n2 State=MIXED+MAINTENANCE+RESERVED Partitions=normal\n"
    "NodeName=n3 State=DOWN*+NOT_RESPONDING Reason=Not responding [slurm@2026-11-21T11:00:00] Comment=x\n"
    "NodeName=n4 State=IDLE+PLANNED Partitions=\n"
)


def test_slurms_nodes_are_read():
    nodes: dict[str, SlurmNode] = parse_nodes(RECORDED)
    assert nodes["n1"].reason == "cordee: node_problem gpu.hot job 123 2026-11-21"
    assert (nodes["n1"].partitions, nodes["n1"].drained) == (("normal", "debug"), True)
    facts: list[Callable[[SlurmNode], bool]] = [
        lambda node: node.drained, lambda node: node.down, lambda node: node.working, lambda node: node.maintenance,
        lambda node: node.reserved,
    ]  # fmt: skip
    assert [fact(nodes["n2"]) for fact in facts] == [False, False, True, True, True]
    assert [fact(nodes["n3"]) for fact in facts] == [False, True, False, False, False]
    assert not any(fact(nodes["n4"]) for fact in facts)


def test_slurms_reservations_are_read():
    text = (
        "ReservationName=service StartTime=2026-11-21T11:00:00 Nodes=n[1-2] NodeCnt=2 Flags=MAINT,IGNORE_JOBS State=ACTIVE\n"
        "ReservationName=course Nodes=n2,n7 Flags= State=ACTIVE\n"
        "ReservationName=later Nodes=n9 Flags=MAINT State=INACTIVE\n"
        "ReservationName=cores Nodes=(null) Flags= State=ACTIVE\n"
    )
    found = parse_reservations(text)
    assert set(found) == {"n1", "n2", "n7"}
    assert found["n2"] == {"RESERVED", "MAINT"}
    assert found["n7"] == {"RESERVED"}
    assert parse_reservations("No reservations in the system\n") == {}


def test_a_reset_is_for_the_gpus_that_are_at_fault():
    two = ({"device": 2, "fault": True}, {"device": 0, "fault": True})
    named = {"2": two[:1], "0,2": two, "": ({"device": 0}, {"device": 1}), "3": ({"device": 3},)}
    for gpu, devices in named.items():
        (proposal,) = decide(record(hard(devices=devices)), state())
        assert proposal.gpu == gpu
