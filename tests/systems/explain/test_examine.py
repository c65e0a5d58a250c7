"""`[hang]` and `[observe]` of a job document: what the plan says of them, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.core.errors import DocumentError
from cordee.job.load import load_job
from cordee.job.plan.compile import make_plan

JOB = 'name = "a"\nrun = "python train.py"\n[need]\ntime = "1h"\n'


def planned(folder: Path, more: str):
    (folder / "cordee.toml").write_text(JOB + more)
    (folder / "train.py").touch()
    loaded = load_job(folder)
    plan, findings = make_plan(loaded, run_id="a-1", run_folder=folder / "runs")
    return plan.document()["steps"][0]["systems"].get("explain"), [
        one for one in findings if one.rule.startswith(("hang", "stragglers"))
    ]


def test_a_job_that_says_nothing_of_it_is_watched_with_the_defaults(tmp_path):
    assert planned(tmp_path, "") == (None, [])


def test_what_it_says_is_in_the_plan(tmp_path):
    part, findings = planned(tmp_path, '[hang]\nafter = "5min"\naction = "restart"\n')
    assert part == {"enabled": True, "after_s": 300.0, "action": "restart"}
    assert findings == []
    assert planned(tmp_path, "[observe]\nstragglers = false\n") == (
        {"stragglers": False, "stragglers_action": "report"},
        [],
    )
    assert planned(tmp_path, 'spare_nodes = 1\n[observe]\nstragglers_action = "replace"\n') == (
        {"stragglers": True, "stragglers_action": "replace"},
        [],
    )


@pytest.mark.parametrize(
    ("more", "rule", "line"),
    [
        ('[hang]\naction = "restart"\n[restart]\nretries = 0\n', "hang-no-retries", 6),
        ('[hang]\nafter = "2h"\n', "hang-after-too-long", 6),
        ('[observe]\nstragglers_action = "replace"\n', "stragglers-not-replaced", 6),
        ('[observe]\nstragglers_action = "replace"\nstragglers = false\n', "stragglers-not-replaced", 6),
    ],
)
def test_what_has_no_effect_is_said_with_its_line(tmp_path, more, rule, line):
    (finding,) = planned(tmp_path, more)[1]
    assert (finding.rule, finding.severity, finding.line) == (rule, "warn", line)


@pytest.mark.parametrize(
    "wrong",
    [
        '[hang]\nafter = "2s"',
        '[hang]\nafter = "soon"',
        '[hang]\naction = "kill"',
        "[hang]\nenabled = 3",
        "[hang]\npatience = 1",
        '[observe]\nstragglers = "yes"',
        '[observe]\nstragglers_action = "restart"',
        "[observe]\nhangs = true",
    ],
)
def test_what_it_cannot_say_is_refused_with_its_line(tmp_path, wrong):
    with pytest.raises(DocumentError) as caught:
        planned(tmp_path, f"{wrong}\n")
    assert "6" in str(caught.value)
