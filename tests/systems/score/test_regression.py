from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cordee.core.errors import DocumentError, UsageError
from cordee.systems.score.baselines.baseline import Baseline, check_folder, personal, read_baseline, write_baseline
from cordee.systems.score.baselines.comparison import judge_trace, make_baseline, open_baseline
from cordee.systems.score.baselines.judge import BETTER, SAME, UNKNOWN, WORSE, judge
from cordee.systems.score.baselines.observe import Observation, Quantity
from cordee.systems.score.cli import baseline as baseline_command
from cordee.systems.score.cli import baselines as baselines_command
from cordee.systems.score.cli.default import command as score_command
from cordee.systems.score.load import load
from cordee.systems.score.score import score
from support.recordings.recording import made_node, write_recording

SECONDS = 400


def remembering(chance: np.random.Generator, count: int, memory: float) -> np.ndarray:
    """A series of mean 0 and spread 1 in which each value holds `memory` of the one before."""
    steps = chance.normal(size=count) * math.sqrt(1 - memory**2)
    values = np.empty(count)
    values[0] = chance.normal()
    for at in range(1, count):
        values[at] = memory * values[at - 1] + steps[at]
    return values


def recording(folder: Path, seed: int, level: float = 0.6, seconds: int = SECONDS, tokens: float = 0.0, **more) -> Path:
    chance = np.random.default_rng(seed)
    sm = np.clip(level + 0.05 * remembering(chance, seconds, 0.7)[:, None] + np.zeros((1, 2)), 0, 1)
    values = {"gpu_graphics_ratio": np.full_like(sm, 0.95), "gpu_sm_ratio": sm, "gpu_tensor_ratio": sm * 0.6}
    values["gpu_dram_ratio"] = np.full_like(sm, 0.2)
    values["gpu_power_watts"] = np.full_like(sm, 500.0)
    node = made_node(0, 2, values, **more)
    if tokens:
        node.logged = {0: [(float(at), at, {"tokens": tokens}) for at in range(1, seconds)]}
    write_recording(folder, [node])
    return folder


@pytest.fixture(scope="module")
def repeats(tmp_path_factory) -> list[Path]:
    place = tmp_path_factory.mktemp("repeats")
    return [recording(place / f"run-{seed}", seed) for seed in range(6)]


def seen(points: float, **more) -> Observation:
    quantities = {"score": Quantity(points, "points")}
    quantities |= {name: Quantity(value, "") for name, value in more.items()}
    return Observation("gpu", "nvml-gpm", {"H100": 4}, 1, 4, 4, 600.0, 1.0, "0.1.0", quantities)


def of(*runs: Observation) -> Baseline:
    return Baseline("llm", runs, "2026-11-21T18:00:00Z", "0.1.0")


def five(run: Observation) -> Baseline:
    return of(*[run] * 5)


def test_a_run_is_held_against_the_median_and_spread_of_five():
    calm = of(seen(60), seen(60.2), seen(59.9), seen(60.1), seen(59.8))
    assert judge(seen(59.3), calm).verdict == SAME  # less than a point is nothing anyone would look for
    assert judge(seen(56), calm).verdict == WORSE
    assert judge(seen(64), calm).verdict == BETTER
    wide = of(seen(60), seen(52), seen(67), seen(58), seen(61))
    assert judge(seen(40), wide).verdict == SAME
    assert "5 runs" in judge(seen(40), wide).method
    assert judge(seen(20), wide).verdict == WORSE


def test_fewer_than_five_runs_show_a_difference_and_give_no_verdict():
    found = judge(seen(20), of(*[seen(60)] * 4))
    assert (found.verdict, found.exit_code) == (UNKNOWN, 2)
    assert [(change.difference, change.verdict) for change in found.changes] == [(-40, UNKNOWN)]
    assert "at least 5" in found.method


def test_a_lower_score_of_a_job_that_became_faster_is_no_regression():
    before = five(seen(60, tokens_per_s=1000.0, energy_per_token=2.0))
    assert judge(seen(50, tokens_per_s=1300.0, energy_per_token=2.0), before).verdict == BETTER
    assert judge(seen(60, tokens_per_s=900.0, energy_per_token=2.0), before).verdict == WORSE
    assert judge(seen(60, tokens_per_s=1000.0, energy_per_token=2.3), before).verdict == WORSE
    words = [change.words() for change in judge(seen(60, tokens_per_s=900.0), before).changes]
    assert "tokens_per_s: 1000 before, 900 now" in words[1]
    assert words[1].endswith("worse")


def test_a_speed_that_only_one_side_knows_is_told_not_to_have_decided():
    found = judge(seen(60), five(seen(60, tokens_per_s=1000.0)))
    assert found.verdict == SAME
    assert found.remarks == ("the baseline has tokens_per_s and this run has not: it did not decide",)


def test_what_must_not_be_compared_is_not_unless_asked():
    now = replace(seen(50), models={"A100": 4}, world_size=8)
    found = judge(now, five(seen(60)))
    assert (found.verdict, found.exit_code, found.changes) == (UNKNOWN, 2, ())
    assert found.incomparable == ("model of GPU: H100 before, A100 now", "number of ranks: 4 before, 8 now")
    forced = judge(now, five(seen(60)), anyway=True)
    assert (forced.verdict, forced.forced, forced.exit_code) == (WORSE, True, 1)


def test_repeats_of_a_recording_are_the_same_and_a_loss_is_found(repeats, tmp_path):
    made = make_baseline(repeats[:5], "llm")
    trace = load(repeats[5])
    same = judge_trace(trace, score(trace), made)
    assert same.verdict == SAME, [change.words() for change in same.changes]
    slow = load(recording(tmp_path / "slow", 9, level=0.5))
    found = judge_trace(slow, score(slow), made)
    assert found.verdict == WORSE
    fallen = {change.name: change.verdict for change in found.changes}
    assert (fallen["time"], fallen["breadth"]) == (SAME, WORSE)


def test_a_baseline_comes_back_out_of_its_file_without_anything_personal(repeats, tmp_path):
    made = make_baseline(repeats[:3], "llm", note="monthly")
    write_baseline(tmp_path / "b.json", made)
    assert read_baseline(tmp_path / "b.json") == made
    assert open_baseline(str(tmp_path / "b.json")) == made
    document = json.loads((tmp_path / "b.json").read_text())
    assert document["schema"] == "cordee.baseline/1"
    assert document["quantities"]["score"]["runs"] == 3
    score_of_all = document["quantities"]["score"]
    assert score_of_all["low"] < score_of_all["median"] < score_of_all["high"]
    assert "command" not in document
    for words in (str(repeats[0]), "train.py"):
        assert words not in json.dumps(document)
    with pytest.raises(UsageError, match="already"):
        write_baseline(tmp_path / "b.json", made)
    write_baseline(tmp_path / "c.json", make_baseline(repeats[:1], "llm", keep_command=True))
    assert read_baseline(tmp_path / "c.json").command == "python train.py"
    with pytest.raises(DocumentError, match="something personal"):
        write_baseline(tmp_path / "d.json", replace(made, command="python /users/alice/train.py"))
    assert not (tmp_path / "d.json").exists()


def test_what_the_application_logged_decides_too(tmp_path):
    fast = make_baseline([recording(tmp_path / f"fast-{seed}", seed, tokens=4096.0) for seed in range(5)], "llm")
    slow = load(recording(tmp_path / "slow", 5, tokens=3000.0))
    found = judge_trace(slow, score(slow), fast)
    rates = {change.name: change for change in found.changes if change.decides}
    assert rates["tokens_per_s"].verdict == WORSE
    assert rates["energy_per_token"].verdict == WORSE
    assert rates["score"].verdict == SAME
    assert found.verdict == WORSE


def test_runs_that_do_not_belong_together_make_no_baseline(repeats, tmp_path):
    other = recording(tmp_path / "other", 1, model="NVIDIA A100-SXM4-40GB")
    for folders, workload, words in (
        ([repeats[0], other], "llm", "model of GPU"),
        ([repeats[0], repeats[0]], "llm", "the same run twice"),
        ([repeats[0]], "My Model!", "lower case"),
    ):
        with pytest.raises(UsageError) as raised:
            make_baseline(folders, workload)
        assert words in str(raised.value)


def test_damaged_baselines_and_other_documents_are_refused(tmp_path, repeats):
    whole = make_baseline(repeats[:1], "llm").document()

    def damaged(**more) -> str:
        return json.dumps({**whole, "runs": [{**whole["runs"][0], **more}]})

    for name, text, words in (
        ("torn", json.dumps(whole)[:99], "no JSON"),
        ("other", '{"schema": "cordee.score/1"}', "no baseline"),
        ("list", "[]", "no baseline"),
        ("newer", json.dumps({**whole, "schema": "cordee.baseline/2"}), "no baseline"),
        ("empty", json.dumps({**whole, "runs": []}), "damaged: it holds no run"),
        ("lacking", json.dumps({key: value for key, value in whole.items() if key != "runs"}), "'runs' is missing"),
        ("words", damaged(quantities={"score": {"value": "high", "unit": "points"}}), "a valid number"),
        ("timeless", damaged(seconds=0), "seconds is not above 0"),
        ("huge", damaged(quantities={"score": {"value": 1e200, "unit": "points"}}), "no number that can be"),
        ("capless", damaged(caps={"H100": {"tensor": 0.9}}), "the caps of H100"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(DocumentError) as raised:
            read_baseline(tmp_path / name)
        assert words in str(raised.value), name
    with pytest.raises(DocumentError, match="cannot read"):
        read_baseline(tmp_path / "absent")


def test_paths_homes_and_addresses_are_personal_and_units_are_not():
    for text in ("/users/alice/train.py", "python /home/bob/x", "~/data", "alice@example.org", "C:\\jobs"):
        assert personal({"note": [text]}), text
    for text in ("tokens/s", "0.1.0", "NVIDIA H100 80GB HBM3", "before/after, 2 and/or 3", "llama-8b"):
        assert not personal({"note": text}), text


def test_a_folder_of_contributed_baselines_is_listed_and_checked(repeats, tmp_path):
    keep = tmp_path / "kept"
    keep.mkdir()
    write_baseline(keep / "llm.json", make_baseline(repeats[:3], "llm", note="from a user"))
    done = CliRunner().invoke(baselines_command.command, ["check", str(keep)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "llm.json: llm, 2 x NVIDIA H100 80GB HBM3, 3 runs" in done.output
    document = json.loads((keep / "llm.json").read_text())
    (keep / "twice.json").write_text(json.dumps({**document, "note": "made in /home/carol/runs"}))
    (keep / "broken.json").write_text("{")
    found, findings = check_folder(keep)
    assert len(found) == 2
    assert {finding.rule for finding in findings} == {"no-baseline", "personal", "twice"}
    done = CliRunner().invoke(baselines_command.command, ["check", str(keep), "--json"], catch_exceptions=False)
    assert done.exit_code == 1
    assert json.loads(done.output)["valid"] is False
    done = CliRunner().invoke(baselines_command.command, ["list", str(keep)], catch_exceptions=False)
    assert done.exit_code == 0


def test_the_command_makes_a_baseline_and_says_how_sharp_it_is(repeats, tmp_path):
    words = [str(repeats[0]), "-o", str(tmp_path / "b.json"), "--workload", "llm"]
    done = CliRunner().invoke(baseline_command.command, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "5 runs or more" in done.output
    words = [*map(str, repeats[:3]), "-o", str(tmp_path / "c.json"), "--workload", "llm", "--json"]
    done = CliRunner().invoke(baseline_command.command, words, catch_exceptions=False)
    assert json.loads(done.output)["quantities"]["score"]["runs"] == 3


def test_score_against_a_baseline_exits_by_what_became_of_it(repeats, tmp_path):
    write_baseline(tmp_path / "b.json", make_baseline(repeats[:5], "llm"))
    slow = recording(tmp_path / "slow", 9, level=0.5)
    other = recording(tmp_path / "other", 9, model="NVIDIA A100-SXM4-40GB")
    for folder, more, code, words in (
        (repeats[5], [], 0, "no difference beyond the spread"),
        (slow, [], 1, "* score: "),
        (slow, ["--workload", "vision"], 2, "not comparable: workload: llm before, vision now"),
        (other, [], 2, "not comparable: model of GPU"),
        (other, ["--anyway"], 0, "compared in spite of: model of GPU"),
    ):
        given = [str(folder), "--against", str(tmp_path / "b.json"), "--no-pages", *more]
        done = CliRunner().invoke(score_command, given, catch_exceptions=False)
        assert (done.exit_code, words in done.output) == (code, True), done.output
    given = [str(slow), "--against", str(repeats[0]), "--no-pages"]
    done = CliRunner().invoke(score_command, given, catch_exceptions=False)
    assert (done.exit_code, "cannot be judged" in done.output) == (2, True)
    given = [str(slow), str(repeats[5]), "--against", str(tmp_path / "b.json"), "--no-pages", "--json"]
    done = CliRunner().invoke(score_command, given, catch_exceptions=False)
    assert done.exit_code == 1
    verdicts = [each["judgement"]["verdict"] for each in json.loads(done.output)["scores"]]
    assert verdicts == ["worse", "same"]


def test_other_caps_than_the_baselines_do_not_look_like_a_change(repeats, tmp_path):
    made = make_baseline(repeats[:1], "llm")
    caps = {model: {**of_model, "tensor": 0.8} for model, of_model in made.runs[0].caps.items()}
    trace = load(repeats[0])
    found = judge_trace(trace, score(trace), replace(made, runs=(replace(made.runs[0], caps=caps),)))
    assert any("scored by what counted as full" in remark for remark in found.remarks)
    assert {change.name: change.now for change in found.changes}["score"] > score(trace).shares.score


def test_options_of_a_comparison_without_a_baseline_are_refused(repeats):
    with pytest.raises(UsageError, match="nothing to compare with"):
        CliRunner().invoke(score_command, [str(repeats[0]), "--workload", "llm"], catch_exceptions=False)
