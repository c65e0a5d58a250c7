"""Files of rules about runs: what they may hold, that each is tried, and what of an event or a metric they hold for."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from cordee.core.errors import DocumentError
from cordee.faces.cli import cordee as main
from cordee.systems.rules.catalogue import BUILT_IN, resolved_rules, rule_paths, tried_rules
from cordee.systems.rules.node.judge import RuleJudge, RulePlace, rule_findings

from .conftest import event, named


def finding_event(*about, at: float = 0.0) -> dict:
    return event("finding", at, finding=named(*about).document())


def test_the_rules_of_cordee_match_their_examples_and_spare_their_counterexamples():
    assert tried_rules([BUILT_IN]) == []
    assert [rule["id"] for rule in resolved_rules([])] == ["node-again", "switch-again"]


def test_a_rule_that_does_not_do_what_its_examples_say_is_told(rules_file):
    wrong = {"id": "wrong", "when": "{finding: hang-gil}"}
    path = rules_file({}, wrong)
    assert [finding.text for finding in tried_rules([path])] == [
        "wrong does not match its example",
        "wrong matches its counterexample",
    ]
    done = CliRunner().invoke(main, ["rules", "check", str(path)])
    assert done.exit_code == 1
    assert "2 rules, 2 faults" in done.output


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ('{finding: "hardware-*", patern: x}', "patern"),
        ("{node: n1}", "looks at nothing"),
        ('{finding: "*", event: ended}', "looks at event and finding"),
        ("{metric: loss}", "compares the metric with nothing"),
        ("{event: ended, above: 3}", "above without a metric"),
        ("{metric: loss, above: 3, pattern: x}", "beside a metric"),
        ("{metric: loss, above: .nan}", "above"),
        ("{metric: loss, above: 1, over: 0s}", "over"),
        ("{event: ended, runs: 3}", "counts runs by something else"),
        ('{finding: "*", same: node}', "same without runs"),
        ("{event: ended, pattern: '(a+)+b'}", "repeats a group"),
        ("{event: ended, pattern: 'a*b*c*d*'}", "multiply"),
        ("{event: ended, pattern: '" + "a" * 400 + "'}", "400 characters"),
    ],
)
def test_what_a_rule_may_not_hold_is_refused_with_its_line(rules_file, when, said):
    with pytest.raises(DocumentError) as refused:
        resolved_rules([rules_file({"when": when})])
    told = " ".join(f"{one.text} {one.given}" for one in refused.value.findings)
    assert said in told, told
    assert refused.value.findings[0].line is not None


def test_a_file_with_a_rule_twice_is_refused(rules_file):
    with pytest.raises(DocumentError, match="two rules are called"):
        resolved_rules([rules_file({}, {})])


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_a_file_that_others_can_write_to_is_refused(rules_file, mode):
    path = rules_file({})
    path.chmod(mode)
    with pytest.raises(DocumentError, match="others can write to this file of rules"):
        resolved_rules([path])


def test_a_file_of_another_user_and_one_in_a_folder_that_all_can_change_are_refused(rules_file, tmp_path):
    path = rules_file({})
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        with pytest.raises(DocumentError, match="others can write"):
            resolved_rules([path])
        os.chown(path, 0, 0)
    tmp_path.chmod(0o777)
    with pytest.raises(DocumentError, match="others can write"):
        resolved_rules([path])
    tmp_path.chmod(0o1777)
    assert len(resolved_rules([path], built_in=False)) == 1


def test_a_file_that_is_no_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "rules.yaml")
    with pytest.raises(DocumentError, match="is not a file"):
        resolved_rules(rule_paths([tmp_path]))
    done = CliRunner().invoke(main, ["rules", "check", str(tmp_path / "nothing.yaml")])
    assert isinstance(done.exception, DocumentError)
    assert (done.exception.exit_code, done.exception.file) == (2, str(tmp_path / "nothing.yaml"))


def judge_of(rules_file, **rule: str) -> RuleJudge:
    return RuleJudge(resolved_rules([rules_file(rule)], built_in=False))


def test_a_rule_about_findings_looks_at_rule_severity_node_and_text(rules_file):
    when = "{finding: 'hardware-*', severity: error, node: 'n[12]', pattern: 'xid 79'}"
    judge = judge_of(rules_file, when=when)
    assert [match.place for match in judge.event(finding_event("hardware-xid", ["n1"]))] == [RulePlace(("n1",))]
    assert judge.event(finding_event("hardware-xid", ["n3"])) == []
    assert judge.event(finding_event("hardware-xid", ["n1"], "XID 13")) == []
    assert judge.event(finding_event("hang-gil", ["n1"])) == []
    assert judge.event(finding_event("hardware-xid", ["n1"], "XID 79", "warn")) == []


def test_a_rule_about_an_event_finds_the_place_of_a_failure(rules_file):
    judge = judge_of(rules_file, when="{event: attempt_ended, pattern: 'code.: 3'}")
    failed = event("attempt_ended", reason="rank 5 on n2 exited", failure={"rank": 5, "node": "n2", "code": 3})
    (match,) = judge.event(failed)
    assert (match.place, match.what) == (RulePlace(("n2",), (5,)), "attempt_ended: rank 5 on n2 exited")
    assert judge.event(event("attempt_ended", failure={"rank": 5, "node": "n2", "code": 4})) == []


def test_a_rule_that_counts_in_a_run_counts_each_place_by_itself_and_only_within_its_time(rules_file):
    judge = judge_of(rules_file, when="{event: node_lost, times: 3, within: 60s}")
    lost = lambda node, at: bool(judge.event(event("node_lost", at, node=node)))  # noqa: E731
    assert [lost("n1", at) for at in (0, 10, 100, 110, 120)] == [False, False, False, False, True]
    assert [lost("n2", at) for at in (0, 10)] == [False, False]


def test_a_rule_does_not_look_at_what_rules_have_found(rules_file):
    judge = judge_of(rules_file, when="{finding: '*'}")
    (match,) = judge.event(finding_event("hardware-xid", ["n1"]))
    found = rule_findings(match.rule, [match])
    assert (found.severity, found.rule, found.next) == ("warn", "site-xid", "mend it")
    assert judge.event(event("finding", finding=found.document())) == []


def test_windows_in_a_row_count_and_one_between_that_does_not_hold_ends_the_row(rules_file):
    judge = judge_of(rules_file, when="{metric: loss, above: 5, over: 10s, times: 2}")
    (rule,) = judge.windows
    values = {1: 6.0, 2: 7.0, 3: 4.0, 4: 6.0, 6: 6.0, 7: float("nan"), 8: 9.0, 9: 9.0}
    held = [number for number, value in values.items() if judge.window(rule, RulePlace((), (1,)), number, value)]
    assert held == [2, 9]


@pytest.mark.parametrize(
    ("action", "severity"), [("none", "info"), ("tell", "warn"), ("exclude", "warn"), ("drain", "error")]
)
def test_how_grave_a_finding_is_follows_from_the_action(rules_file, action, severity):
    judge = judge_of(rules_file, action=action)
    (match,) = judge.event(finding_event("hardware-xid", ["n1"]))
    assert rule_findings(match.rule, [match]).severity == severity
