"""Which rule a result falls under."""

from __future__ import annotations

from typing import Any

import pytest

from cordee.systems.vetting.node.judge.rules import match


def result(**what: Any) -> dict[str, Any]:
    return {"check": "gpu.ecc", "status": "fail", "cause": None, "evidence": "GPU 3: 2 errors", "facts": {}, **what}


@pytest.mark.parametrize(
    "when",
    [
        {"check": "gpu.ecc"},
        {"check": "gpu.*"},
        {"check": ["host.load", "gpu.e*"]},
        {"status": "fail"},
        {"status": ["warn", "fail"]},
        {"check": "gpu.ecc", "pattern": r"GPU \d+: [1-9]"},
        {"pattern": ["nothing like it", "errors$"]},
    ],
)
def test_a_rule_holds_when_all_that_it_names_holds(when: dict[str, Any]) -> None:
    rule = {"id": "it", "when": when}
    assert match([rule], result()) is rule


@pytest.mark.parametrize(
    "when",
    [
        {"check": "gpu.xid"},
        {"check": "GPU.ECC"},
        {"check": "gpu.ecc", "status": "warn"},
        {"check": "gpu.ecc", "cause": "closed"},
        {"check": "gpu.ecc", "xid": 79},
        {"check": "gpu.ecc", "pattern": "remap"},
        {},
    ],
)
def test_a_rule_does_not_hold_when_one_of_its_conditions_does_not(when: dict[str, Any]) -> None:
    assert match([{"id": "it", "when": when}], result()) is None


def test_the_first_rule_that_holds_wins() -> None:
    rules = [{"id": "no", "when": {"check": "x"}}, {"id": "a", "when": {"check": "gpu.*"}}]
    rules.append({"id": "b", "when": {"check": "gpu.ecc"}})
    assert match(rules, result())["id"] == "a"


@pytest.mark.parametrize(("xid", "holds"), [(79, True), ([48, 79], True), (48, False), ([], False)])
def test_an_xid_is_any_of_those_that_were_logged(xid: Any, holds: bool) -> None:
    assert (match([{"id": "it", "when": {"xid": xid}}], result(facts={"xids": [31, 79]})) is not None) is holds


def test_silence_is_matched_by_its_cause() -> None:
    silent = result(check="node.answer", status="unknown", cause="silent")
    assert match([{"id": "silent", "when": {"cause": "silent"}}], silent)


@pytest.mark.parametrize("facts", [None, {"xids": None}, {"xids": 79}, {"xids": [{}]}])
def test_facts_of_an_odd_shape_match_no_xid(facts: Any) -> None:
    assert match([{"id": "it", "when": {"xid": 79}}], result(facts=facts)) is None
