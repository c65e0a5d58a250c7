"""`cordee correlate` of runs whose telemetry is real in form."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.faces.cli import cordee as main
from support.made.runs import MadeRun, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs"), MadeRun(gpus=16, seconds=300))


def test_the_document_ranks_what_moved(folder):
    done = CliRunner().invoke(main, ["correlate", str(folder.root), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "cordee.correlate/1"
    assert document["windows"] >= 24
    strengths = [abs(one["strength"]) for one in document["metrics"]]
    assert strengths == sorted(strengths, reverse=True)
    assert all(one["devices"] <= one["of"] for one in document["metrics"])


def test_a_part_that_is_too_short_says_how_long_it_must_be(folder):
    done = CliRunner().invoke(main, ["correlate", str(folder.root), "--last", "20s"])
    assert isinstance(done.exception, UsageError)
    assert "2 min" in str(done.exception.allowed)


def test_lines_say_that_it_is_no_proof(folder):
    done = CliRunner().invoke(main, ["correlate", str(folder.root)])
    assert done.exit_code == 0, done.output
    assert "a step took" in done.output
