from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cordee.core.errors import DocumentError
from cordee.faces.cli import cordee
from cordee.systems.score.diagnosis.expression import Condition
from cordee.systems.score.diagnosis.rules import PACKAGE_FILE, class_of, examine_rules, load_rules, read_rules
from cordee.systems.score.features import FEATURES
from cordee.systems.score.result import CLASSES

OURS = read_rules(PACKAGE_FILE)
SITE = """\
[[rule]]
class = "input"
title = "the archive file system is slow today"
when = ["graphics < 0.6", "reading < 1", "io > 0.02", "writing < 1"]
advice = ["Stage to /scratch."]

[[rule.fixture]]
features = { graphics = 0.3, reading = 0.1, writing = 0, io = 0.05 }
class = "input"
"""


@pytest.mark.parametrize(
    ("kind", "fixture"),
    [(rule.kind, fixture) for rule in OURS for fixture in rule.fixtures],
    ids=[f"{rule.kind}-{rule.name}-{at}" for rule in OURS for at, _ in enumerate(rule.fixtures)],
)
def test_the_rules_give_a_fixture_its_class(kind, fixture):
    assert class_of(OURS, kind, fixture.features) == fixture.name


def test_every_class_has_a_rule_and_every_rule_a_fixture_and_advice():
    assert {rule.name for rule in OURS if rule.kind == "gpu"} == set(CLASSES) - {"contention"}
    assert {rule.name for rule in OURS} == set(CLASSES)
    assert examine_rules(OURS) == []
    assert all(rule.advice for rule in OURS)


def test_what_was_not_measured_never_makes_a_class_certain():
    decided = {
        "graphics": 0.3,
        "sm": 0.25,
        "P": 0.2,
        "D": 0.1,
        "X": 0.02,
        "io": 0.0,
        "writing": 0.0,
        "thr": 0.3,
        "gpus": 1.0,
    }
    assert class_of(OURS, "gpu", {**decided, "cpu": 0.1}) == "mixed"
    assert class_of(OURS, "gpu", {**decided, "cpu": 0.9}) == "input"
    assert class_of(OURS, "gpu", decided) == "unknown"


@given(
    st.dictionaries(st.sampled_from(sorted(FEATURES)), st.floats(0, 1), max_size=6), st.sampled_from(sorted(FEATURES))
)
def test_measuring_more_never_turns_one_class_into_another(features, more):
    """Without a feature the class is the same or unknown, but for those that rules may do without."""
    if more in ("X", "N", "io", "data_wait", "network", "reading"):
        return
    less = {name: value for name, value in features.items() if name != more}
    with_it = class_of(OURS, "gpu", features)
    assert class_of(OURS, "gpu", less) in (with_it, "unknown")


def test_the_page_of_rules_lists_every_feature():
    page = (Path(__file__).parents[3] / "docs" / "score-rules.md").read_text()
    assert [
        name for name, (unit, meaning) in FEATURES.items() if f"| `{name}` | {unit} | {meaning} |" not in page
    ] == []


def test_conditions_have_three_values():
    features = {"sm": np.array([[0.1, 0.9, np.nan]]), "cpu": np.array([[np.nan, 0.9, np.nan]])}
    truth = Condition("sm < 0.4 or cpu > 0.8", FEATURES).evaluate(features, (1, 3))
    assert truth.true.tolist() == [[True, True, False]]
    assert truth.false.tolist() == [[False, False, False]]
    both = Condition("sm < 0.4 and cpu > 0.8", FEATURES).evaluate(features, (1, 3))
    assert both.false.tolist() == [[False, True, False]]
    known = Condition("not known(cpu)", FEATURES).evaluate(features, (1, 3))
    assert known.true.tolist() == [[True, False, True]]


def test_conditions_count_and_choose():
    features = {"P": np.array([[0.2]]), "D": np.array([[0.5]])}
    assert Condition("0.4 < max(P, D) <= 0.5 and D - P * 2 > 0.05", FEATURES).evaluate(features, (1, 1)).true[0, 0]
    assert Condition("-P < 0 and P / 0 > 1", FEATURES).evaluate(features, (1, 1)).true.tolist() == [[False]]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true') > 0",
        "sm.real > 0",
        "sm",
        "sm < 0.4 if cpu > 1 else sm > 2",
        "(lambda: 1)() > 0",
        "sm == 0.4",
        "known(0.5)",
        "max(sm) > 0.1",
        "sm[0] > 1",
        "sm < 'x'",
        "sm < True",
        "warps < 0.4",
        "sm <",
        "sm < 0.1 " + "or sm < 0.1 " * 100,
        "(" * 300,
    ],
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(DocumentError):
        Condition(text, FEATURES)


def test_a_site_s_rules_come_before_ours_from_its_folder(tmp_path):
    (tmp_path / "site.toml").write_text(SITE)
    rules = load_rules(environ={"CORDEE_SCORE_RULES_PATH": str(tmp_path)})
    assert len(rules) == len(OURS) + 1
    assert rules[0].title == "the archive file system is slow today"
    features = {"graphics": 0.3, "reading": 0.1, "io": 0.05, "cpu": 0.1, "writing": 0.0}
    assert class_of(rules, "gpu", features) == "input"
    assert examine_rules(rules) == []


@pytest.mark.parametrize(
    ("before", "after", "line", "word"),
    [
        ('"graphics < 0.6"', '"grafics < 0.6"', 4, "grafics"),
        ('class = "input"\ntitle', 'class = "imput"\ntitle', 2, "imput"),
        ('advice = ["Stage to /scratch."]', "advice = []", 5, "advice"),
        ("title", "titel", 3, "titel"),
        ("io = 0.05 }", 'io = "high" }', 7, "io"),
        ('io = 0.05 }\nclass = "input"', 'io = 0.05 }\nclass = "slow"', 7, "slow"),
        ("[[rule]]", "[[rules]]", None, "rules"),
        ("when = [", "when = ", 4, "TOML"),
    ],
)
def test_a_wrong_rule_is_told_with_file_and_line(tmp_path, before, after, line, word):
    path = tmp_path / "site.toml"
    path.write_text(SITE.replace(before, after, 1))
    with pytest.raises(DocumentError) as raised:
        read_rules(path)
    assert raised.value.file == str(path)
    assert raised.value.line == line
    assert word in str(raised.value)


def test_a_misspelt_key_is_told_with_the_one_that_was_meant(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(SITE.replace("title", "titel"))
    with pytest.raises(DocumentError) as raised:
        read_rules(path)
    assert raised.value.next == "did you mean title?"


def test_a_rule_whose_fixture_another_rule_takes_is_told(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(SITE.replace("io = 0.05 }", "io = 0.01 }"))
    done = CliRunner().invoke(cordee, ["score", "rules", "--check", str(path), "--json"])
    assert done.exit_code == 1
    found = json.loads(done.stdout)["findings"]
    assert [(finding["line"], finding["rule"]) for finding in found] == [(7, "rule-on-trial")]


def test_cordee_score_rules_lists_what_is_tried_in_order():
    done = CliRunner().invoke(cordee, ["score", "rules"])
    assert done.exit_code == 0, done.output
    assert done.output.index("checkpoint") < done.output.index("communication") < done.output.index("mixed")
    assert done.output.rstrip().endswith("0 faults")
