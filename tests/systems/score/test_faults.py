from __future__ import annotations

import json

import pytest

from cordee.core.errors import UsageError
from cordee.core.words import COLUMNS
from cordee.systems.score.cli.text import score_lines, table_lines
from cordee.systems.score.document import document
from cordee.systems.score.load import load
from cordee.systems.score.score import score
from support.recording_faults import FAULTS

NOTHING = ("no_samples", "only_a_beginning")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    return {name: score(load(make(folder / name))) for name, make in FAULTS.items() if name not in NOTHING}


@pytest.mark.parametrize("name", NOTHING)
def test_a_recording_without_samples_is_told_with_what_to_do(name, tmp_path):
    with pytest.raises(UsageError) as raised:
        load(FAULTS[name](tmp_path / name))
    assert "nothing to score" in str(raised.value)
    assert "cordee record" in str(raised.value)


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in NOTHING])
def test_whatever_is_wrong_with_a_recording_the_identity_holds_and_lines_fit(found, name):
    result = found[name]
    for part in (result, *result.devices, *result.nodes, *result.ranks):
        shares = part.shares
        if shares.score is not None:
            assert shares.score == pytest.approx(100 * shares.time * shares.breadth * shares.depth)
    assert json.loads(json.dumps(document(result), allow_nan=False))["score"] == pytest.approx(result.shares.score)
    lines = score_lines(result)
    assert max(map(len, lines)) <= COLUMNS
    assert "not speed" in "\n".join(lines)


def test_jobs_stand_side_by_side_within_the_width(found):
    lines = table_lines([found["healthy"], found["aborted_job"], found["no_gpu"]])
    assert max(map(len, lines)) <= COLUMNS
    assert [line.split()[0] for line in lines[1:4]] == ["healthy", "aborted_job", "no_gpu"]


def flags(result):
    return {flag.rule: flag.text for flag in result.flags}


def test_faults_are_named(found):
    assert found["aborted_job"].job.state == "failed"
    assert "4 of 8 ranks" in flags(found["missing_node"])["ranks-without-samples"]
    assert found["missing_node"].shares.coverage == pytest.approx(0.5, abs=0.01)
    assert "another user" in flags(found["shared_gpu"])["device-shared"]
    assert "is lost" in flags(found["lost_gpu"])["gpu-lost"]
    assert "models-mixed" in flags(found["mixed_models"])
    assert any("clock of nid000000 went back by 3" in remark for remark in found["clock_going_back"].remarks)
    assert any("killed" in remark for remark in found["half_written"].remarks)
    assert not flags(found["healthy"])


def test_an_instance_counts_by_its_share_of_sms(found):
    busy, idle = found["mig"].devices
    expected = (busy.shares.score * 60 + idle.shares.score * 16) / 76
    assert found["mig"].shares.score == pytest.approx(expected)


def test_a_source_that_tells_less_is_trusted_less(found):
    assert found["coarse_source"].assumed == ("breadth", "depth")
    assert found["coarse_source"].confidence < found["unknown_metrics"].confidence < found["healthy"].confidence
