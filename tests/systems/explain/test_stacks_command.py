"""A hang in `cordee stacks`, in a run's document and in its report."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.faces.cli import cordee as main
from cordee.faces.report import render
from cordee.faces.report.run_document import run_document
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.state import replay
from cordee.systems.explain.hang_report import hang_findings
from support.made.runs import MadeRun, write_run

from .made_hang import MadeHang, stack

OWN = ("/home/me/train.py", 55, "evaluate <b>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    run = write_run(tmp_path_factory.mktemp("runs"), MadeRun(gpus=8, seconds=30))
    made = MadeHang(run.root)
    made.rank(3, stack(OWN), enqueued=16, completed=16)
    made.gone(6)
    writer = JournalWriter(run.journal, "test", 9)
    for finding in hang_findings(run.root, 1):
        writer.append("finding", finding=finding.document())
    assert writer.flush()
    return run


def test_all_ranks_are_told_in_one_tree(folder):
    done = CliRunner().invoke(main, ["stacks", str(folder.root)])
    assert done.exit_code == 0, done.output
    assert "/home/me/train.py:40 (step)  6 ranks: 0-2, 4-5, 7" in done.output
    assert "/home/me/train.py:55 (evaluate <b>)  1 rank: 3" in done.output
    assert "no stack of rank 6" in done.output


def test_the_document_says_each_rank_s_line(folder):
    done = CliRunner().invoke(main, ["stacks", str(folder.root), "--json"])
    document = json.loads(done.stdout)
    assert (document["schema"], document["hang"], document["without"]) == ("cordee.stacks/1", 1, [6])
    assert document["ranks"]["3"] == "/home/me/train.py:55 (evaluate <b>)"


def test_a_hang_that_was_not_there_and_a_run_without_any_are_errors(folder, tmp_path):
    done = CliRunner().invoke(main, ["stacks", str(folder.root), "--hang", "7"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.allowed == [1]
    other = write_run(tmp_path, MadeRun(gpus=8, seconds=20))
    done = CliRunner().invoke(main, ["stacks", str(other.root)])
    assert isinstance(done.exception, UsageError)
    assert "[hang]" in str(done.exception.next)


def test_show_says_rank_node_and_line_where_its_contract_has_them(folder):
    document = run_document(folder, replay(read_journal(folder.journal), folder.id))
    (finding,) = [one for one in document["findings"] if one["rule"].startswith("hang-")]
    assert (finding["ranks"], finding["nodes"]) == ([3], ["node-1"])
    assert finding["where"] == "/home/me/train.py:55 (evaluate <b>)"
    assert finding["next"]


def test_the_report_shows_cause_and_stacks_and_trusts_no_text(folder):
    page = render(folder.root).read_text()
    assert "rank 3 on node-1 has not gone on" in page
    assert "evaluate &lt;b&gt;" in page
    assert "evaluate <b>" not in page
    text = (folder.report / "report.txt").read_text()
    assert "Hangs" in text
    assert max(map(len, text.splitlines())) <= 80
