"""From the results of many nodes to a verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordee.systems.vetting.node.judge.pairs import PairOutcome
from cordee.systems.vetting.node.judge.verdict import decide, verdict

Document = dict[str, Any]


def result(check: str = "host.memory", status: str = "pass", **what: Any) -> Document:
    """Return a result document as a check gives it."""
    document: Document = {
        "check": check,
        "name": check,
        "status": status,
        "value": None,
        "unit": None,
        "threshold": None,
    }
    document |= {"evidence": f"{check} says {status}", "required": True, "cause": None, "reference": None}
    return document | {"facts": {}, "compare": [], "version": 1, "seconds": 0.1} | what


def low(value: float, ratio: float = 0.9, **what: Any) -> Document:
    compare = [{"kind": "low", "of": "value", "ratio": ratio, "margin": None, "status": "fail"}]
    return result("gpu.gemm", value=value, unit="TFLOP/s", compare=compare, **what)


def high(value: float, **what: Any) -> Document:
    compare = [{"kind": "high", "of": "value", "ratio": None, "margin": 15, "status": "fail"}]
    return result("gpu.temperature", value=value, unit="C", compare=compare, **what)


def same(value: Any, of: str = "driver", **what: Any) -> Document:
    compare = [{"kind": "same", "of": of, "ratio": None, "margin": None, "status": "fail"}]
    return result("host.fingerprint", compare=compare, **{"facts": {of: value}, **what})


def unknown(check: str = "gpu.xid", cause: str = "error", evidence: str = "it broke", **what: Any) -> Document:
    return result(check, "unknown", cause=cause, evidence=evidence, **what)


def judge(reports: dict[str, list[Document] | None], **protocol: Any) -> Document:
    least = protocol.pop("min_nodes", None)
    pairs = protocol.pop("pairs", None)
    return decide({"rules": [], "baseline": {}, **protocol}, reports, pairs, min_nodes=least)


def nodes(*results: Document) -> dict[str, list[Document] | None]:
    """Return one result for each of as many nodes, beside a check that passes."""
    return {f"n{index + 1}": [result(), one] for index, one in enumerate(results)}


def verdicts(document: Document) -> dict[str, str]:
    return {node["node"]: node["verdict"] for node in document["nodes"]}


def found(document: Document, node: str, check: str) -> Document:
    results = next(entry["results"] for entry in document["nodes"] if entry["node"] == node)
    return next(one for one in results if one["check"] == check)


def test_healthy_nodes_take_part() -> None:
    document = judge(nodes(low(100), low(101), low(99), low(100)))
    assert (document["verdict"], document["exclude"]) == ("continue", [])
    assert document["reason"] == "all 4 nodes take part"
    assert set(verdicts(document).values()) == {"healthy"}


def test_a_node_below_its_peers_is_left_out_with_both_values() -> None:
    document = judge(nodes(low(100), low(100), low(100), low(70)))
    assert (document["verdict"], document["exclude"]) == ("exclude", ["n4"])
    slow = found(document, "n4", "gpu.gemm")
    assert slow["status"] == "fail"
    assert slow["threshold"] == pytest.approx(90)
    assert slow["reference"] == {"kind": "peer", "value": 100, "n": 4}
    assert "70 TFLOP/s is below 0.9 x 100 TFLOP/s, the 75th percentile of 4 nodes" in slow["evidence"]
    assert "n4 (gpu.gemm: " in document["reason"]
    assert found(document, "n1", "gpu.gemm")["reference"]["value"] == 100


def test_among_three_a_slow_node_is_suspect_and_not_blamed() -> None:
    document = judge(nodes(low(100), low(100), low(50)))
    assert document["verdict"] == "continue"
    assert verdicts(document) == {"n1": "healthy", "n2": "healthy", "n3": "suspect"}
    assert "n3" in document["reason"]


def test_with_the_fleets_baseline_one_of_two_is_blamed() -> None:
    document = judge(nodes(low(100), low(50)), baseline={"gpu.gemm": {"value": 102.0, "n": 40}})
    assert document["exclude"] == ["n2"]
    assert found(document, "n2", "gpu.gemm")["reference"] == {"kind": "fleet", "value": 102.0, "n": 40}
    assert "the fleet's baseline" in found(document, "n2", "gpu.gemm")["evidence"]


def test_a_node_alone_has_nobody_to_compare_with() -> None:
    document = judge(nodes(low(1)))
    assert document["verdict"] == "continue"
    assert "nobody to compare with" in found(document, "n1", "gpu.gemm")["evidence"]


def test_a_node_alone_is_held_against_the_fleets_baseline() -> None:
    document = judge(nodes(low(50)), baseline={"gpu.gemm": {"value": 100.0, "n": 9}})
    assert (document["verdict"], document["exclude"]) == ("abort", ["n1"])


def test_a_baseline_of_a_check_that_is_asked_twice_is_not_used() -> None:
    first, second = low(100), low(10, name="small")
    document = judge({"n1": [first, second]}, baseline={"gpu.gemm": {"value": 100.0, "n": 9}})
    assert document["verdict"] == "continue"


def test_many_slow_nodes_are_confusion_and_nobody_is_blamed() -> None:
    document = judge(nodes(low(100), low(100), low(100), low(60), low(60)))
    assert (document["verdict"], document["exclude"]) == ("abort", [])
    assert verdicts(document)["n4"] == "suspect"
    (entry,) = document["confused"]
    assert (entry["check"], entry["nodes"]) == ("gpu.gemm", ["n4", "n5"])
    assert "gpu.gemm: 2 of 5 nodes are off" in document["reason"]
    assert "the cause is shared" in document["reason"]


def test_confusion_about_a_check_that_is_not_required_stops_nothing() -> None:
    slow = [low(60, required=False) for _ in range(2)]
    document = judge(nodes(*(low(100, required=False) for _ in range(3)), *slow))
    assert document["verdict"] == "continue"
    assert document["confused"]


def test_models_are_not_compared_with_each_other() -> None:
    fast = [low(100, facts={"model": "H100"}) for _ in range(4)]
    slow = [low(50, facts={"devices": [{"device": 0, "model": "A100"}]}) for _ in range(4)]
    assert judge(nodes(*fast, *slow))["verdict"] == "continue"


def test_a_node_of_another_model_is_named_by_the_check_that_compares_models() -> None:
    usual = [same("H100", "model") for _ in range(4)]
    document = judge(nodes(*usual, same("A100", "model")))
    assert document["exclude"] == ["n5"]
    assert "model: A100 here, H100 on 4 of 5 nodes" in found(document, "n5", "host.fingerprint")["evidence"]


def test_a_hot_node_is_held_against_the_median() -> None:
    document = judge(nodes(high(50), high(52), high(51), high(70)))
    assert document["exclude"] == ["n4"]
    assert found(document, "n4", "gpu.temperature")["threshold"] == 66.5
    assert "70 C is more than 15 above 51.5 C" in found(document, "n4", "gpu.temperature")["evidence"]


def test_its_own_stricter_threshold_is_kept() -> None:
    document = judge(nodes(*(high(50, threshold=60) for _ in range(4))))
    assert found(document, "n1", "gpu.temperature")["threshold"] == 60


def test_a_node_that_differs_is_named_with_both_values() -> None:
    document = judge(nodes(same("550"), same("550"), same("550"), same("535")))
    assert document["exclude"] == ["n4"]
    assert "driver: 535 here, 550 on 3 of 4 nodes" in found(document, "n4", "host.fingerprint")["evidence"]


def test_without_a_majority_nobody_is_blamed() -> None:
    document = judge(nodes(same("a"), same("a"), same("b"), same("b"), same("c")))
    assert (document["verdict"], document["exclude"]) == ("abort", [])
    assert "no majority" in document["reason"]


def test_two_nodes_that_differ_are_both_suspect() -> None:
    document = judge(nodes(same("a"), same("b")))
    assert document["verdict"] == "continue"
    assert verdicts(document) == {"n1": "suspect", "n2": "suspect"}


def test_each_fact_of_a_check_is_compared_by_itself() -> None:
    def both(driver: str, kernel: str) -> Document:
        compare = [{"kind": "same", "of": of, "status": "fail"} for of in ("driver", "kernel")]
        return result("host.fingerprint", facts={"driver": driver, "kernel": kernel}, compare=compare)

    document = judge(nodes(*(both("1", "5") for _ in range(4)), both("2", "5"), both("1", "6")))
    assert document["exclude"] == ["n5", "n6"]
    assert "kernel" not in found(document, "n5", "host.fingerprint")["evidence"].partition("driver")[2]


def test_a_hard_fault_on_one_of_two_is_guilt() -> None:
    document = judge(nodes(result("gpu.ecc"), result("gpu.ecc", "fail", threshold=0, value=3)))
    assert (document["verdict"], document["exclude"]) == ("exclude", ["n2"])


def test_a_threshold_that_many_miss_is_the_thresholds_fault() -> None:
    hot = [result("gpu.temperature", "fail", value=40, threshold=30) for _ in range(2)]
    document = judge(nodes(*hot, *(result("gpu.temperature") for _ in range(4))))
    assert (document["verdict"], document["exclude"]) == ("abort", [])
    assert verdicts(document)["n1"] == "suspect"
    assert found(document, "n1", "gpu.temperature")["status"] == "fail"
    assert "gpu.temperature: 2 of 6 nodes fail it" in document["reason"]


def test_many_nodes_with_evidence_of_their_own_are_guilty() -> None:
    rules = [{"id": "gpu.ecc", "when": {"check": "gpu.ecc"}, "scope": "node", "action": "drain", "kind": "hard"}]
    broken = [result("gpu.ecc", "fail", threshold=0) for _ in range(2)]
    document = judge(nodes(*broken, *(result("gpu.ecc") for _ in range(3))), rules=rules)
    assert (document["verdict"], document["exclude"]) == ("exclude", ["n1", "n2"])
    assert found(document, "n1", "gpu.ecc")["rule"] == {
        "id": "gpu.ecc",
        "scope": "node",
        "action": "drain",
        "kind": "hard",
    }
    assert found(document, "n3", "gpu.ecc")["rule"] is None


def test_most_nodes_bad_is_an_abort_that_names_them() -> None:
    fallen = [result("gpu.xid", "fail", facts={"xids": [79]}) for _ in range(3)]
    document = judge(nodes(*fallen, result("gpu.xid")))
    assert (document["verdict"], document["exclude"]) == ("abort", ["n1", "n2", "n3"])
    assert "more than half" in document["reason"]


def test_a_check_that_is_not_required_excludes_nobody() -> None:
    document = judge(nodes(result("x", "fail", required=False), unknown("x", required=False), result("x"), result("x")))
    assert document["verdict"] == "continue"
    assert verdicts(document)["n1"] == verdicts(document)["n2"] == "suspect"


def test_a_required_check_that_is_unknown_excludes_its_node() -> None:
    document = judge(nodes(*(result("gpu.xid") for _ in range(4)), unknown()))
    assert (document["verdict"], document["exclude"]) == ("exclude", ["n5"])
    assert verdicts(document)["n5"] == "unknown"


def test_a_kernel_log_that_is_closed_everywhere_excludes_nobody() -> None:
    closed = [unknown(cause="closed", evidence=f"/dev/kmsg on n{n}: Permission denied after {n} s") for n in (1, 2, 3)]
    document = judge(nodes(*closed))
    assert (document["verdict"], document["exclude"]) == ("continue", [])
    (entry,) = document["unavailable"]
    assert (entry["check"], entry["cause"], entry["nodes"]) == ("gpu.xid", "closed", ["n1", "n2", "n3"])
    assert "gpu.xid could not be tested here (/dev/kmsg" in document["reason"]
    assert set(verdicts(document).values()) == {"suspect"}


def test_short_names_of_nodes_do_not_tell_reasons_apart() -> None:
    closed = {n: [result(), unknown(cause="closed", evidence=f"{n} does not let us look")] for n in ("a", "b", "c-a")}
    assert judge(closed)["unavailable"][0]["nodes"] == ["a", "b", "c-a"]


def test_what_is_broken_everywhere_is_an_abort_without_blame() -> None:
    document = judge(nodes(*(unknown(cause="absent", evidence="no libnvidia-ml.so.1") for _ in range(4))))
    assert (document["verdict"], document["exclude"]) == ("abort", [])
    assert "gpu.xid could not be tested on 4 of 4 nodes, first n1: no libnvidia-ml.so.1" in document["reason"]


def test_what_is_broken_everywhere_but_not_required_is_said() -> None:
    document = judge(nodes(*(unknown(cause="absent", evidence="no tool", required=False) for _ in range(4))))
    assert document["verdict"] == "continue"
    assert document["unavailable"][0]["check"] == "gpu.xid"
    assert "no tool" in document["reason"]


def test_different_reasons_are_not_one_reason() -> None:
    broken = [unknown(evidence=text) for text in ("alpha", "beta")]
    document = judge(nodes(*broken, *(result("gpu.xid") for _ in range(3))))
    assert document["exclude"] == ["n1", "n2"]
    assert document["unavailable"] == []


@pytest.mark.parametrize(("cause", "expected"), [("closed", "continue"), ("absent", "abort"), ("timeout", "abort")])
def test_of_a_single_node_only_what_is_closed_may_be_untested(cause: str, expected: str) -> None:
    assert judge(nodes(unknown(cause=cause)))["verdict"] == expected


def test_a_single_node_with_nothing_but_closed_doors_is_an_abort() -> None:
    document = judge({"n1": [unknown(cause="closed", evidence="closed")]})
    assert document["verdict"] == "abort"
    assert "n1 (gpu.xid: closed)" in document["reason"]


def test_nodes_on_which_nothing_ran_are_not_healthy() -> None:
    closed = {f"n{n}": [unknown(cause="closed", evidence="closed"), result("x", "skip")] for n in range(4)}
    document = judge(closed)
    assert document["verdict"] == "abort"
    assert set(verdicts(document).values()) == {"unknown"}
    assert "not one check really ran on 4 of 4 nodes" in document["reason"]


def test_the_one_node_on_which_nothing_ran_is_left_out() -> None:
    reports = nodes(*(result("gpu.xid") for _ in range(4)))
    reports["n5"] = [result("gpu.xid", "skip")]
    assert judge(reports)["exclude"] == ["n5"]


def test_a_silent_node_is_left_out_and_named() -> None:
    document = judge({**nodes(*(low(1) for _ in range(4))), "n9": None, "n10": [result()]})
    assert document["exclude"] == ["n9"]
    assert [node["node"] for node in document["nodes"]][-2:] == ["n9", "n10"]
    assert "n9 (node.answer: the node did not answer)" in document["reason"]


def test_a_node_that_falls_silent_midway_is_left_out() -> None:
    reports = nodes(*(result("gpu.xid") for _ in range(4)), unknown(cause="silent", evidence="its agent is gone"))
    assert judge(reports)["exclude"] == ["n5"]


def test_a_node_that_falls_silent_in_what_is_not_required_is_left_out_too() -> None:
    silent = unknown(cause="silent", required=False)
    document = judge(nodes(*(result("gpu.xid") for _ in range(4)), silent))
    assert document["exclude"] == ["n5"]
    assert verdicts(document)["n5"] == "unknown"


def test_many_silent_nodes_are_an_abort() -> None:
    document = judge({**nodes(low(1), low(1), low(1)), "a": None, "b": [unknown(cause="silent")]})
    assert document["verdict"] == "abort"
    assert "2 of 5 nodes did not answer (a, b)" in document["reason"]


def test_one_silent_node_of_two_is_left_out() -> None:
    document = judge({"n1": [result()], "n2": None})
    assert (document["verdict"], document["exclude"]) == ("exclude", ["n2"])


@pytest.mark.parametrize(("least", "expected"), [(3, "exclude"), (4, "abort"), (None, "exclude")])
def test_the_fewest_nodes_decide_between_without_some_and_abort(least: int | None, expected: str) -> None:
    document = judge(nodes(low(100), low(100), low(100), low(10)), min_nodes=least)
    assert (document["verdict"], document["exclude"]) == (expected, ["n4"])
    assert "n4" in document["reason"]


def test_no_nodes_are_an_abort() -> None:
    assert judge({})["verdict"] == "abort"


def test_what_the_pair_test_found_counts_as_results() -> None:
    slow = result("pair.bandwidth", "fail", value=1.0, evidence="slow with all")
    link = {"nodes": ["n1", "n2"], "text": "link between n1 and n2: slow"}
    rules = [{"id": "link.slow", "when": {"check": "pair.bandwidth", "pattern": "^link"}, "scope": "link"}]
    pairs = PairOutcome({"n3": slow}, pairs=[{"round": 1, "nodes": ["n1", "n3"]}], links=[link])
    document = judge(nodes(low(1), low(1), low(1), low(1)), pairs=pairs, rules=rules)
    assert document["exclude"] == ["n3"]
    assert document["links"] == [{**link, "rule": {"id": "link.slow", "scope": "link"}}]
    assert document["pairs"] == pairs.pairs
    assert "judged" not in found(document, "n3", "pair.bandwidth")


def test_confusion_of_the_pair_test_is_an_abort() -> None:
    entry = {"check": "pair.bandwidth", "nodes": ["n1"], "text": "half are slow", "abort": True}
    assert judge(nodes(low(1), low(1)), pairs=PairOutcome({}, confused=[entry]))["verdict"] == "abort"


def test_reports_are_left_as_they_are() -> None:
    import copy

    reports = nodes(low(100), low(100), low(100), low(10), unknown())
    before = copy.deepcopy(reports)
    judge(reports)
    assert reports == before


@pytest.mark.parametrize(
    "odd",
    [
        {"status": "fine"},
        {"facts": None},
        {"facts": [1]},
        {"compare": "low"},
        {"compare": [{"kind": "odd"}, 3]},
        {"compare": [{"kind": "low", "of": "value"}]},
        {"compare": [{"kind": "low", "of": "value", "ratio": 0.9}], "value": "fast"},
        {"compare": [{"kind": "low", "of": "value", "ratio": 0.9}], "value": float("nan")},
        {"compare": [{"kind": "same", "of": "it"}], "facts": {"it": {"a": [1]}}},
        {"evidence": None},
    ],
)
def test_what_peoples_own_checks_say_breaks_nothing(odd: Document) -> None:
    document = judge(nodes(*(result("mine", **odd) for _ in range(4))))
    assert document["exclude"] == []
    assert set(verdicts(document).values()) == ({"unknown"} if "status" in odd else {"healthy"})


def test_a_status_that_is_none_makes_a_node_unknown() -> None:
    assert verdict([{"status": "pass"}, {"status": "fine"}]) == "unknown"


HEALTHY = st.floats(98, 102)
SICK = st.one_of(
    st.builds(low, st.floats(1, 85)),
    st.builds(
        unknown, st.just("gpu.gemm"), st.sampled_from(["closed", "absent", "error"]), st.sampled_from(["a", "b c"])
    ),
    st.builds(result, st.just("gpu.gemm"), st.just("fail")),
    st.none(),
)
ALLOCATIONS = st.lists(st.one_of(st.builds(low, HEALTHY), st.builds(low, HEALTHY), SICK), min_size=1, max_size=14)


def reports_of(drawn: list[Document | None]) -> dict[str, list[Document] | None]:
    return {f"n{index}": None if one is None else [one] for index, one in enumerate(drawn)}


@given(ALLOCATIONS, st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_changes_nothing(drawn: list[Document | None], random: Any) -> None:
    reports = reports_of(drawn)
    order = list(reports)
    random.shuffle(order)
    assert judge({node: reports[node] for node in order}) == judge(reports)


@given(ALLOCATIONS, HEALTHY)
def test_another_healthy_node_makes_no_healthy_node_guilty(drawn: list[Document | None], value: float) -> None:
    reports = reports_of(drawn)
    clean = {node for node, results in reports.items() if results and results[0]["value"] and results[0]["value"] >= 98}
    document = judge({**reports, "new": [low(value)]})
    assert not clean & set(document["exclude"])
    assert "new" not in document["exclude"]


@given(ALLOCATIONS)
def test_what_is_unknown_never_ends_healthy(drawn: list[Document | None]) -> None:
    document = judge(reports_of(drawn))
    for node in document["nodes"]:
        if any(one["status"] == "unknown" for one in node["results"]):
            assert node["verdict"] != "healthy"
    unknown_nodes = {node["node"] for node in document["nodes"] if node["verdict"] in ("unknown", "bad")}
    assert document["verdict"] == "abort" or unknown_nodes <= set(document["exclude"])


@given(st.lists(st.floats(1, 110), min_size=1, max_size=40))
def test_a_comparison_blames_one_node_or_at_most_three_in_ten(values: list[float]) -> None:
    document = judge(nodes(*map(low, values)))
    blamed = [node for node, word in verdicts(document).items() if word == "bad"]
    assert len(blamed) <= max(1, 0.3 * len(values)) if len(values) >= 4 else not blamed


@given(ALLOCATIONS, st.one_of(st.none(), st.integers(1, 14)))
def test_the_verdict_fits_who_is_left(drawn: list[Document | None], least: int | None) -> None:
    document = judge(reports_of(drawn), min_nodes=least)
    assert document["reason"]
    left = len(drawn) - len(document["exclude"])
    if document["verdict"] == "continue":
        assert document["exclude"] == []
    if document["verdict"] != "abort":
        assert left >= (least or 1)


def test_a_protocol_may_say_whose_fault_a_failure_is() -> None:
    rule = {"id": "any", "when": {"status": "fail"}, "scope": "node", "action": "none", "text": "It failed."}
    bad = result("host.environment", "fail", name="variables")
    document = judge({"n1": [bad], "n2": [result()]}, rules=[rule], scopes={"variables": "user"})
    assert found(document, "n1", "host.environment")["rule"]["scope"] == "user"
    assert judge({"n1": [bad], "n2": [result()]}, rules=[rule])["nodes"][0]["results"][0]["rule"]["scope"] == "node"


def loaded(*results: Document, busy: str) -> dict[str, list[Document] | None]:
    """Return nodes, of which one has a host that something else uses."""
    reports = nodes(*results)
    for node, report in reports.items():
        assert report is not None
        load = {"status": "unknown", "cause": "busy"} if node == busy else {}
        report.append(result("host.load", "pass", required=False) | load)
    return reports


def test_what_a_busy_host_measured_too_low_is_unknown_and_not_held_against_it() -> None:
    document = judge(loaded(low(100), low(100), low(50), low(100), busy="n3"))
    slow = found(document, "n3", "gpu.gemm")
    assert (slow["status"], slow["cause"]) == ("unknown", "busy")
    assert "its host is busy" in slow["evidence"]
    assert (document["verdict"], document["exclude"], verdicts(document)["n3"]) == ("continue", [], "unknown")
    assert document["reason"].startswith("all 4 nodes take part; unknown, because the machine is busy: n3 (")


def test_a_busy_machine_is_unknown_and_takes_part_whatever_else_passed() -> None:
    for others in ([result()], []):
        document = judge({"n1": [*others, *(loaded(result(), busy="n1")["n1"] or [])[1:]]})
        assert (document["verdict"], document["exclude"], verdicts(document)["n1"]) == ("continue", [], "unknown")
        assert "unknown, because the machine is busy: n1 (host.load" in document["reason"]


def test_a_busy_machine_with_a_warning_is_suspect() -> None:
    document = judge(loaded(result("host.disk", "warn"), busy="n1"))
    assert verdicts(document)["n1"] == "suspect"


def test_a_quiet_host_that_is_slow_is_bad_though_another_is_busy() -> None:
    document = judge(loaded(low(100), low(50), low(100), low(100), busy="n3"))
    assert document["exclude"] == ["n2"]


def test_a_busy_host_that_computes_wrongly_is_bad() -> None:
    both = [
        {"kind": "low", "of": "value", "ratio": 0.9, "margin": None, "status": "fail"},
        {"kind": "same", "of": "checksum", "ratio": None, "margin": None, "status": "fail"},
    ]
    for compare in (both, both[::-1]):
        sheets = [low(100, facts={"checksum": "a"}) | {"compare": compare} for _ in range(4)]
        sheets[2] |= {"value": 50, "facts": {"checksum": "b"}}
        document = judge(loaded(*sheets, busy="n3"))
        assert found(document, "n3", "gpu.gemm")["status"] == "fail"
        assert document["exclude"] == ["n3"]
