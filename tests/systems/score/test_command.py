from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.faces.cli import cordee
from support.recording_faults import healthy, no_gpu

RULE = """\
[[rule]]
class = "latency"
title = "our own rule"
when = ["P < 0.9"]
advice = ["ask us"]
"""


@pytest.fixture
def recording(tmp_path):
    return healthy(tmp_path / "healthy", seconds=30)


def scored(*arguments):
    done = CliRunner().invoke(cordee, ["score", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done


def test_caps_and_rules_of_ones_own_are_used(recording, tmp_path):
    (tmp_path / "caps.toml").write_text('[model."NVIDIA H100 80GB HBM3"]\ntensor = 0.7\norigin = "here"\n')
    (tmp_path / "rules.toml").write_text(RULE)
    plain = json.loads(scored(recording, "--no-pages", "--json").stdout)
    mine = ("--caps", tmp_path / "caps.toml")
    own = json.loads(scored(recording, *mine, "--no-pages", "--json").stdout)
    assert own["score"] > plain["score"]
    assert own["caps"][0]["origin"] == "here"
    ruled = json.loads(scored(recording, "--rules", tmp_path / "rules.toml", "--no-pages", "--json").stdout)
    assert (plain["diagnosis"][0]["class"], ruled["diagnosis"][0]["title"]) == ("compute", "our own rule")
    assert not (recording / "report").exists()


def test_several_jobs_are_one_document_and_one_table(recording, tmp_path):
    other = no_gpu(tmp_path / "cores")
    documents = json.loads(scored(recording, other, "--no-pages", "--json").stdout)["scores"]
    assert [document["kind"] for document in documents] == ["gpu", "cpu"]
    assert "Not comparable" in scored(recording, other, "--no-pages").output


def test_pages_that_cannot_be_written_are_told_and_the_score_is_shown(recording):
    (recording / "report").touch()
    done = scored(recording)
    assert "score " in done.stdout
    assert "no pages" in done.stderr


def test_a_document_says_where_a_class_was_seen(recording):
    document = json.loads(scored(recording, "--no-pages", "--json").stdout)
    where = document["diagnosis"][0]["where"]
    assert where["device"] == document["devices"][0]["device"]
    assert where["ranks"] == [0]
    assert where["start"].endswith("Z")
    assert where["values"]["P"] == pytest.approx(0.75, abs=0.05)


def test_a_word_is_a_command_and_a_path_is_a_folder(recording, monkeypatch):
    monkeypatch.chdir(recording.parent)
    recording.rename(recording.parent / "rules")
    assert "score " in scored("./rules", "--no-pages").output
    assert "fixtures" in scored("rules").output
