"""The pair test as a state machine, on networks that are simulated: no clock and no socket takes part."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.systems.vetting.node.judge.pair_judgement import judge
from cordee.systems.vetting.node.judge.pairs import Out, PairOutcome, PairPolicy, PairTest
from cordee.systems.vetting.node.judge.verdict import decide
from cordee.systems.vetting.rules import load_rules
from support.hosts.fabric import HEALTHY_BYTES_PER_S, SimulatedFabric


def names(count: int) -> list[str]:
    return [f"n{index}" for index in range(count)]


def quiet(**faults: Any) -> SimulatedFabric:
    """Return a network without noise and dips."""
    return SimulatedFabric(noise=0, dip_ratio=0, **faults)


def link(a: str, b: str, share: float) -> dict[frozenset[str], float]:
    return {frozenset((a, b)): share}


def statuses(outcome: PairOutcome) -> dict[str, str]:
    return {node: result["status"] for node, result in outcome.results.items()}


def off(outcome: PairOutcome) -> dict[str, str]:
    return {node: status for node, status in statuses(outcome).items() if status != "pass"}


def rounds_of(test: PairTest, fabric: SimulatedFabric) -> list[list[tuple[str, str]]]:
    rounds = []
    while pairs := test.next_round():
        rounds.append(pairs)
        for a, b in pairs:
            test.record(a, b, fabric.rate(a, b), "connection refused")
    return rounds


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 64, 65])
def test_each_round_pairs_a_node_once_and_two_rounds_bring_new_partners(count: int) -> None:
    rounds = rounds_of(PairTest(names(count), "seed"), quiet())
    assert len(rounds) == (3 if count == 3 else 2)
    for pairs in rounds:
        met = [node for pair in pairs for node in pair]
        assert len(met) == len(set(met)) == count - count % 2
    if count > 2:
        everyone = [frozenset(pair) for pairs in rounds for pair in pairs]
        assert len(everyone) == len(set(everyone))
    assert {node for pairs in rounds for pair in pairs for node in pair} == set(names(count))


def test_the_same_seed_gives_the_same_pairs_whatever_the_order() -> None:
    first = rounds_of(PairTest(names(16), "a"), quiet())
    assert rounds_of(PairTest(reversed(names(16)), "a"), quiet()) == first
    assert rounds_of(PairTest(names(16), "b"), quiet()) != first


@pytest.mark.parametrize("count", [0, 1])
def test_a_node_alone_has_nobody_to_meet(count: int) -> None:
    outcome = quiet().run(PairTest(names(count), "seed"))
    assert statuses(outcome) == dict.fromkeys(names(count), "skip")


@pytest.mark.parametrize("count", [4, 5, 8, 16, 65])
@pytest.mark.parametrize("share", [0.8, 0.3])
def test_the_slow_node_is_named_and_its_partners_are_not(count: int, share: float) -> None:
    outcome = quiet(slow={"n2": share}).run(PairTest(names(count), "seed"))
    assert off(outcome) == {"n2": "fail"}
    result = outcome.results["n2"]
    assert result["value"] == pytest.approx(share * HEALTHY_BYTES_PER_S)
    assert result["threshold"] == pytest.approx(0.88 * HEALTHY_BYTES_PER_S)
    assert "0.88 x 25 GB/s, the 75th percentile of" in result["evidence"]
    assert result["facts"]["partners"][0]["node"] in result["evidence"]
    assert outcome.links == outcome.confused == []


def test_among_three_all_pairs_meet_and_the_slow_one_is_suspect() -> None:
    assert off(quiet(slow={"n1": 0.5}).run(PairTest(names(3), "seed"))) == {"n1": "warn"}


def test_with_the_fleets_baseline_one_of_three_is_blamed() -> None:
    test = PairTest(names(3), "seed", baseline={"value": HEALTHY_BYTES_PER_S, "n": 50})
    outcome = quiet(slow={"n1": 0.5}).run(test)
    assert off(outcome) == {"n1": "fail"}
    assert outcome.results["n1"]["reference"] == {"kind": "fleet", "value": HEALTHY_BYTES_PER_S, "n": 50}


def test_two_slow_nodes_are_both_named() -> None:
    assert off(quiet(slow={"n1": 0.5, "n6": 0.7}).run(PairTest(names(8), "seed"))) == {"n1": "fail", "n6": "fail"}


def test_when_most_are_below_the_baseline_nobody_is_blamed() -> None:
    test = PairTest(names(8), "seed", baseline={"value": 2 * HEALTHY_BYTES_PER_S, "n": 50})
    outcome = quiet().run(test)
    assert set(statuses(outcome).values()) == {"warn"}
    (entry,) = outcome.confused
    assert entry["abort"]
    assert "8 of 8 nodes" in entry["text"]


def test_a_pair_test_that_is_not_required_aborts_nothing() -> None:
    test = PairTest(names(2), "seed", policy=PairPolicy(required=False, min_bytes_per_s=1e12))
    (entry,) = quiet().run(test).confused
    assert not entry["abort"]


def test_an_absolute_threshold_blames_where_peers_are_too_few() -> None:
    test = PairTest(names(3), "seed", policy=PairPolicy(min_bytes_per_s=0.9 * HEALTHY_BYTES_PER_S))
    outcome = quiet(slow={"n1": 0.5}).run(test)
    assert off(outcome) == {"n1": "fail"}
    assert "what the protocol asks for" in outcome.results["n1"]["evidence"]


@pytest.mark.parametrize("count", [3, 4, 8, 9])
def test_a_node_that_reaches_nobody_is_named_and_not_its_partners(count: int) -> None:
    outcome = quiet(dead=["n1"]).run(PairTest(names(count), "seed"))
    assert off(outcome) == {"n1": "fail"}
    assert "n1 exchanged no data with any of" in outcome.results["n1"]["evidence"]
    assert "connection refused" in outcome.results["n1"]["evidence"]


def test_when_no_pair_could_be_measured_all_are_unknown_for_one_reason() -> None:
    outcome = quiet(dead=names(4)).run(PairTest(names(4), "seed"))
    assert set(statuses(outcome).values()) == {"unknown"}
    assert len({result["evidence"] for result in outcome.results.values()}) == 1
    document = decide({}, {node: [] for node in names(4)}, outcome)
    assert (document["verdict"], document["exclude"]) == ("abort", [])


def test_a_meeting_for_which_a_node_was_late_says_nothing_of_either() -> None:
    test = PairTest(names(4), "seed")
    (late, partner), others = test.next_round()
    test.record(late, partner, None, f"{late}: no answer in time", late=[late])
    test.record(*others, 1e9)
    while pairs := test.next_round():
        for a, b in pairs:
            test.record(a, b, 1e9)
    outcome = judge(test)
    assert (off(outcome), outcome.links) == ({}, [])


def test_a_node_that_is_always_late_could_not_be_tested_and_is_not_said_to_be_cut_off() -> None:
    test = PairTest(names(6), "seed")
    while pairs := test.next_round():
        for pair in pairs:
            late = [node for node in pair if node == "n3"]
            test.record(*pair, None if late else 1e9, "n3: no answer in time" if late else "", late=late)
    outcome = judge(test)
    assert off(outcome) == {"n3": "unknown"}
    assert (outcome.results["n3"]["cause"], outcome.confused, outcome.links) == ("timeout", [], [])
    assert outcome.results["n3"]["evidence"] == "it is there, but did not answer in time (n3: no answer in time)"


def test_a_node_that_reaches_nobody_is_named_though_it_was_late_once() -> None:
    test = PairTest(names(4), "seed")
    while pairs := test.next_round():
        for pair in pairs:
            dead = "n1" in pair
            late = ["n1"] if dead and not test.of_node("n1") else []
            test.record(*pair, None if dead else 1e9, "connection refused" if dead else "", late=late)
    assert off(judge(test)) == {"n1": "fail"}


def test_a_node_that_stops_answering_is_silent_and_meets_nobody_again() -> None:
    test, rounds = PairTest(names(6), "seed"), []
    while pairs := test.next_round():
        rounds.append(pairs)
        for a, b in pairs:
            out = {node: Out("its agent is gone", "silent") for node in (a, b) if node == "n3"}
            test.record(a, b, None if out else 1e9, "n3: its agent is gone" if out else "", out)
    outcome = judge(test)
    assert off(outcome) == {"n3": "unknown"}
    assert outcome.results["n3"]["cause"] == "silent"
    assert sum("n3" in pair for pairs in rounds for pair in pairs) == 1


def first_pair(count: int, **arguments: Any) -> tuple[str, str]:
    return PairTest(names(count), "seed", **arguments).next_round()[0]


@pytest.mark.parametrize("share", [0.5, 0])
def test_a_slow_pair_of_good_nodes_is_a_link_and_no_nodes_fault(share: float) -> None:
    a, b = first_pair(8)
    outcome = quiet(links=link(a, b, share)).run(PairTest(names(8), "seed"))
    (fault,) = outcome.links
    assert set(fault["nodes"]) == {a, b}
    assert off(outcome) == {a: "warn", b: "warn"}
    assert "link between" in outcome.results[a]["evidence"]
    document = decide({}, {node: [] for node in names(8)}, outcome)
    assert (document["verdict"], document["exclude"]) == ("continue", [])
    assert "link fault: link between" in document["reason"]


def test_a_single_dip_is_flapping_and_no_link_fault() -> None:
    test = PairTest(names(8), "seed")
    (a, b), *others = test.next_round()
    test.record(a, b, 0.4 * HEALTHY_BYTES_PER_S)
    for pair in others:
        test.record(*pair, HEALTHY_BYTES_PER_S)
    outcome = quiet().run(test)
    assert outcome.links == []
    assert off(outcome) == {a: "warn", b: "warn"}
    assert "flapping: 10 GB/s once, with " + b in outcome.results[a]["evidence"]


SWITCHES = {"leaf1": "n[0-7]", "leaf2": "n[8-15]", "leaf3": "n[16-23]", "spine": "n[0-23]"}
LEAF = {f"n{index}": f"leaf{index // 8 + 1}" for index in range(24)}


def crossing(*pairs: tuple[str, str]) -> dict[frozenset[str], float]:
    """Return a network in which all pairs between these switches are slow."""
    return {
        frozenset((a, b)): 0.5 for a in LEAF for b in LEAF if (LEAF[a], LEAF[b]) in pairs or (LEAF[b], LEAF[a]) in pairs
    }


def test_the_first_round_stays_within_switches_and_the_second_crosses_them() -> None:
    first, second = rounds_of(PairTest(names(24), "seed", switches=SWITCHES), quiet())
    assert all(LEAF[a] == LEAF[b] for a, b in first)
    assert all(LEAF[a] != LEAF[b] for a, b in second)


def test_with_odd_switches_everybody_is_met() -> None:
    switches = {"leaf1": "n[0-4]", "leaf2": "n[5-6]", "leaf3": "n[7-8]"}
    rounds = rounds_of(PairTest(names(9), "seed", switches=switches), quiet())
    assert {node for pairs in rounds for pair in pairs for node in pair} == set(names(9))


def test_a_slow_link_between_two_switches_is_named_by_them() -> None:
    outcome = quiet(links=crossing(("leaf1", "leaf2"))).run(PairTest(names(24), "seed", switches=SWITCHES))
    (fault,) = outcome.links
    assert fault["switches"] == ["leaf1", "leaf2"]
    assert "fail" not in statuses(outcome).values()


def test_a_switch_that_is_slow_with_all_others_is_named_alone() -> None:
    links = crossing(("leaf1", "leaf2"), ("leaf1", "leaf3"))
    # Seeds for which the second round crosses from the switch to both others.
    found = [quiet(links=links).run(PairTest(names(24), f"seed{seed}", switches=SWITCHES)).links for seed in range(6)]
    assert ["leaf1"] in [faults[0]["switches"] for faults in found]
    assert all("leaf1" in fault["switches"] for faults in found for fault in faults)


def test_a_switch_whose_node_list_is_malformed_is_left_out_and_said() -> None:
    test = PairTest(names(4), "seed", switches={"leaf1": "n[0-", "leaf2": "n[0-3]"})
    outcome = quiet(slow={"n1": 0.5}).run(test)
    assert off(outcome) == {"n1": "fail"}
    assert "without switch leaf1" in outcome.confused[0]["text"]
    assert decide({}, {node: [] for node in names(4)}, outcome)["verdict"] == "exclude"


def rule_of(outcome: PairOutcome, node: str) -> str:
    document = decide({"rules": load_rules()}, {name: [] for name in outcome.results}, outcome)
    (result,) = next(entry["results"] for entry in document["nodes"] if entry["node"] == node)
    return result["rule"]["id"]


def test_each_fault_of_a_pair_falls_under_its_own_rule() -> None:
    a, b = first_pair(8)
    assert rule_of(quiet(slow={"n2": 0.5}).run(PairTest(names(8), "seed")), "n2") == "pair.slow"
    assert rule_of(quiet(dead=["n2"]).run(PairTest(names(8), "seed")), "n2") == "pair.partitioned"
    for share in (0.5, 0):
        outcome = quiet(links=link(a, b, share)).run(PairTest(names(8), "seed"))
        assert rule_of(outcome, a) == "link.slow"
        assert decide({"rules": load_rules()}, {}, outcome)["links"][0]["rule"]["id"] == "link.slow"


def test_a_slow_node_is_named_beside_a_slow_link() -> None:
    fabric = quiet(links=crossing(("leaf1", "leaf2")), slow={"n20": 0.6})
    outcome = fabric.run(PairTest(names(24), "seed", switches=SWITCHES))
    assert [node for node, status in statuses(outcome).items() if status == "fail"] == ["n20"]
    assert outcome.links[0]["switches"] == ["leaf1", "leaf2"]


def test_when_many_pairs_stay_slow_the_network_is_to_blame() -> None:
    test = PairTest(names(8), "seed")
    pairs = test.next_round()
    links = {frozenset(pair): 0.3 for pair in pairs}
    for a, b in pairs:
        test.record(a, b, 0.3 * HEALTHY_BYTES_PER_S)
    outcome = quiet(links=links).run(test)
    assert "fail" not in statuses(outcome).values()
    assert "4 of 8 pairs stay slow" in outcome.confused[0]["text"]


@settings(max_examples=60)
@given(
    st.integers(1, 24),
    st.dictionaries(st.integers(0, 23), st.floats(0.05, 1), max_size=6),
    st.sets(st.integers(0, 23), max_size=3),
    st.booleans(),
    st.integers(0, 1000),
)
def test_whatever_the_faults_the_test_ends_and_blames_no_healthy_node(
    count: int, slow: dict[int, float], dead: set[int], known: bool, seed: int
) -> None:
    sick = {f"n{index}" for index, share in slow.items() if share < 1} | {f"n{index}" for index in dead}
    fabric = quiet(slow={f"n{index}": share for index, share in slow.items()}, dead={f"n{index}" for index in dead})
    test = PairTest(names(count), str(seed), switches=SWITCHES if known else None)
    rounds = rounds_of(test, fabric)
    assert len(rounds) <= 5
    outcome = judge(test)
    assert set(outcome.results) == set(names(count))
    assert {node for node, status in statuses(outcome).items() if status == "fail"} <= sick


@pytest.mark.parametrize(("count", "trials"), [(4, 1500), (8, 700), (16, 350), (64, 80), (1024, 3)])
def test_slow_nodes_are_found_and_healthy_ones_hardly_ever_blamed(count: int, trials: int) -> None:
    found = blamed = sick_in_all = 0
    for trial in range(trials):
        sick = {f"n{(7 * trial + 13 * index) % count}" for index in range(max(1, round(0.012 * count)))}
        fabric = SimulatedFabric(slow=dict.fromkeys(sick, 0.8), seed=trial)
        results = fabric.run(PairTest(names(count), str(trial))).results
        failed = {node for node, result in results.items() if result["status"] == "fail"}
        found, blamed, sick_in_all = found + len(failed & sick), blamed + len(failed - sick), sick_in_all + len(sick)
    assert found >= 0.98 * sick_in_all
    assert blamed <= 0.001 * trials * count


def busy_test(count: int, *busy: str) -> PairTest:
    return PairTest(names(count), "seed", busy=busy)


def test_a_busy_host_that_is_slow_is_unknown_and_nobody_is_left_out() -> None:
    outcome = quiet(slow={"n2": 0.8}).run(busy_test(8, "n2"))
    assert off(outcome) == {"n2": "unknown"}
    result = outcome.results["n2"]
    assert result["cause"] == "busy"
    assert "its host is busy (host.load)" in result["evidence"]
    assert outcome.confused == []
    document = verdict_of(outcome, 8, "n2")
    assert (document["verdict"], document["exclude"]) == ("continue", [])
    assert {node["node"]: node["verdict"] for node in document["nodes"]}["n2"] == "unknown"
    assert "n2" in document["reason"]


def test_so_many_busy_hosts_that_are_slow_abort_nothing() -> None:
    outcome = quiet(slow={"n0": 0.7, "n1": 0.8, "n2": 0.75}).run(busy_test(4, "n0", "n1", "n2"))
    assert outcome.confused == []
    assert verdict_of(outcome, 4, "n0", "n1", "n2")["verdict"] == "continue"


def test_a_slow_node_is_found_among_busy_ones_and_where_others_are_busy() -> None:
    assert off(quiet(slow={"n3": 0.7}).run(busy_test(8, "n5"))) == {"n3": "fail"}


def test_a_busy_host_that_is_cut_off_is_cut_off() -> None:
    assert off(quiet(dead=["n2"]).run(busy_test(8, "n2"))) == {"n2": "fail"}


def test_one_node_far_below_all_others_is_found_beside_a_noisy_one() -> None:
    for far in ({"slow": {"n1": 0.8, "n3": 0.05}}, {"slow": {"n1": 0.8}, "dead": ["n3"]}):
        outcome = quiet(**far).run(PairTest(names(4), "seed"))
        assert (outcome.results["n3"]["status"], outcome.results["n1"]["status"]) == ("fail", "warn")
        assert outcome.confused == []


def verdict_of(outcome: PairOutcome, count: int, *busy: str) -> dict[str, Any]:
    load = {"check": "host.load", "value": 3.0, "unit": "load per core", "threshold": 2.0, "required": False}
    more = {"evidence": "load 6 on 2 cores", "reference": None, "facts": {}, "compare": []}
    said = {True: {"status": "unknown", "cause": "busy"}, False: {"status": "pass", "cause": None}}
    reports: dict[str, Any] = {node: [{**load, **more, **said[node in busy]}] for node in names(count)}
    return decide({"rules": []}, reports, outcome)
