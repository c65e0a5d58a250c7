"""The catalogue of rules: every rule matches what it is for, nothing before it takes that away, and files are checked."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.core.documents.patterns import pattern_fault
from cordee.core.errors import DocumentError
from cordee.systems.vetting.node.checks._base import CAUSES, STATUSES
from cordee.systems.vetting.node.judge.rules import match
from cordee.systems.vetting.rules import load_rules, read_catalogue
from cordee.systems.vetting.rules.model import Cause, Status

CATALOGUE = read_catalogue()
RESOLVED = load_rules()

# What the issue lists, beside the rules that name it.
NAMED_FAULTS = [
    "gpu.hot",
    "gpu.ecc-uncorrectable",
    "gpu.row-remap-failed",
    "gpu.row-remap-pending",
    "gpu.missing",
    "gpu.wrong-model",
    "gpu.throttled",
    "gpu.foreign-process",
    "gpu.memory-in-use",
    "xid.48",
    "xid.63",
    "xid.64",
    "xid.74",
    "xid.79",
    "xid.94",
    "xid.95",
    "xid.119",
    "xid.120",
    "nvlink.down",
    "pcie.downgraded",
    "link.errors",
    "link.down",
    "node.slow",
    "link.slow",
    "gemm.wrong-bits",
    "memory.slow",
    "fingerprint.differs",
    "environment.differs",
    "clock.skew",
    "storage.full",
    "storage.slow",
    "storage.hanging",
    "process.stuck",
    "memory.low",
    "nvidia-smi.missing",
    "nvidia-smi.hanging",
    "nvml.mismatch",
    "access.denied",
    "torch.missing",
    "check.crashed",
    "check.hung",
    "node.silent",
    "rank.missing",
    "pair.partitioned",
    "kernel-log.closed",
]

RULE = """
version: 1
rules:
- id: mine.hot
  text: Too hot.
  when: {check: gpu.temperature, status: fail}
  scope: node
  action: ticket
  kind: soft
  recovery: [Open a window.]
  source: our handbook
  example: {check: gpu.temperature, status: fail, evidence: hot}
  counterexample: {check: gpu.temperature, status: warn, evidence: warm}
"""


@pytest.mark.parametrize("rule", [rule for _, rule in CATALOGUE], ids=lambda rule: rule.id)
def test_a_rule_matches_its_example_and_not_its_counterexample(rule):
    alone = [rule.resolved("here")]
    assert match(alone, rule.example.result()) == alone[0]
    assert match(alone, rule.counterexample.result()) is None


@pytest.mark.parametrize("rule", [rule for _, rule in CATALOGUE], ids=lambda rule: rule.id)
def test_no_rule_before_it_takes_a_rules_example(rule):
    found = match(RESOLVED, rule.example.result())
    assert found is not None
    assert found["id"] == rule.id
    other = match(RESOLVED, rule.counterexample.result())
    assert other is None or other["id"] != rule.id


def test_every_fault_of_the_list_has_a_rule_of_its_own():
    assert set(NAMED_FAULTS) <= {rule["id"] for rule in RESOLVED}


@pytest.mark.parametrize("status", ["pass", "skip"])
def test_no_rule_matches_a_result_without_a_fault(status):
    for _, rule in CATALOGUE:
        assert match(RESOLVED, {**rule.example.result(), "status": status}) is None


@pytest.mark.parametrize("status", ["warn", "fail", "unknown"])
@pytest.mark.parametrize("cause", [None, *CAUSES])
def test_whatever_is_wrong_some_rule_matches(status, cause):
    assert match(RESOLVED, {"check": "a.new.check", "status": status, "cause": cause, "evidence": ""}) is not None


def test_rules_know_the_causes_and_statuses_of_checks():
    assert set(Cause.__args__) == set(CAUSES)
    assert set(Status.__args__) | {"pass", "skip"} == set(STATUSES)


def test_a_program_that_fails_beside_a_broken_gpu_does_not_hide_it():
    result = {"check": "gpu.xid", "status": "fail", "evidence": "XIDs 31, 79", "facts": {"xids": [31, 79]}}
    assert match(RESOLVED, result)["id"] == "xid.79"


def test_a_hard_fault_is_never_the_users():
    assert not [rule["id"] for rule in RESOLVED if rule["kind"] == "hard" and rule["scope"] != "node"]


def test_a_sites_rules_go_before_ours_and_replace_those_of_the_same_id(tmp_path):
    (tmp_path / "a.yaml").write_text(RULE)
    (tmp_path / "b.yaml").write_text(
        RULE.replace("mine.hot", "gpu.hot")
        .replace("status: fail}", "status: warn}", 1)
        .replace("status: fail,", "status: warn,")
        .replace("warn, evidence: warm", "fail")
    )
    rules = load_rules([tmp_path])
    assert [rule["id"] for rule in rules[:2]] == ["mine.hot", "gpu.hot"]
    assert [rule["id"] for rule in rules].count("gpu.hot") == 1
    assert rules[0]["origin"] == str(tmp_path / "a.yaml")
    assert rules[-1]["origin"] == "cordee/general"


@pytest.mark.parametrize(
    ("change", "words", "line"),
    [
        (("action: ticket", "action: explode"), "is not one of its values", 8),
        (("kind: soft", "kind: soft\n  kindness: much"), "has no key kindness", 10),
        (("  text: Too hot.\n", ""), "text is missing", 4),
        (("status: fail}", "status: pass}"), "is not one of its values", 6),
        (("status: fail}", "pattern: '(a+)+b'}"), "repeats a group", 6),
        (("status: fail}", "pattern: '('}"), "is not a regular expression", 6),
        (("id: mine.hot", "id: Mine hot"), "is not the id of a rule", 4),
        (("version: 1", "version: 2"), "version", 2),
        (("source: our handbook", "source: our handbook\n  source: again"), "is given twice", 12),
        (("check: gpu.temperature, status: fail}", "check: 'rm -rf /; $(x)'}"), "is not the name of a check", 6),
        (("rules:", "rules: ["), "YAML", 4),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_with_its_line(change, words, line, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(RULE.replace(*change, 1))
    with pytest.raises(DocumentError) as caught:
        load_rules([path])
    assert words in str(caught.value)
    assert (caught.value.file, caught.value.line) == (str(path), line)


def test_two_rules_of_a_file_have_two_names(tmp_path):
    (tmp_path / "mine.yaml").write_text(RULE + RULE.partition("rules:\n")[2])
    with pytest.raises(DocumentError, match="two rules are called mine"):
        load_rules([tmp_path])


@pytest.mark.parametrize("content", [b"", b"[]", b"1", b"\xff\xfe", b"version: 1\nrules: []\n", b"a: " + b"[" * 3000,
                                     b"? [a]\n: 1\n", b"version: 2026-13-45\n"])  # fmt: skip
def test_what_is_no_file_of_rules_is_refused_in_words(content, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(DocumentError):
        load_rules([path])


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DocumentError, match="cannot read it"):
        load_rules([tmp_path / "none.yaml"])


def test_aliases_that_grow_are_refused(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    with pytest.raises(DocumentError, match="values"):
        load_rules([tmp_path / "bomb.yaml"])


@settings(max_examples=150)
@given(position=st.integers(0, len(RULE)), junk=st.text(max_size=12), cut=st.integers(0, 12))
def test_a_damaged_file_is_read_or_refused_in_words(position, junk, cut, tmp_path_factory):
    path = Path(tmp_path_factory.getbasetemp()) / "damaged.yaml"
    path.write_bytes((RULE[:position] + junk + RULE[position + cut :]).encode(errors="replace"))
    with contextlib.suppress(DocumentError):
        load_rules([path])


@pytest.mark.parametrize(
    "pattern", ["a|b", r"\bxid\b", "x{0,80}y", "(one|two) ?three?", "[a-z]+", r"a.{1,50}b.{1,50}c"]
)
def test_a_bounded_pattern_is_taken(pattern):
    assert pattern_fault(pattern) is None


@pytest.mark.parametrize("pattern", ["", "(a+)+", "(a|a)*", "a*b*c*d*", r"(a)\1", "(?=a)", "(?<=a)b", "(?>a)", "a" * 301,
                                     "[", "a{0,200}b{0,200}", "(ab){2}"])  # fmt: skip
def test_a_pattern_that_could_run_away_is_refused(pattern):
    assert pattern_fault(pattern)
