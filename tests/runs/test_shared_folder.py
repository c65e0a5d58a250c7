"""A folder of runs that several users share: what one of them leaves there neither holds, fills nor misleads the others."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.core.errors import RunFolderError
from cordee.runs.folder import RunFolder
from cordee.runs.index import CACHE, find_run, list_runs
from cordee.runs.journal import JournalWriter, client_journal
from cordee.telemetry.store.reader import Run
from support.made.runs import MadeRun, write_run

EVENT = {
    "schema": "cordee.journal/1",
    "epoch": 0,
    "seq": 0,
    "writer": "client",
    "time": "2026-11-22T10:00:00Z",
    "mono": 1.0,
}
_MEMORY_BYTES = 3 << 30


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run as it should be, beside which others lie."""
    return write_run(tmp_path_factory.mktemp("shared"), MadeRun(4, 30))


@pytest.fixture
def odd(good: RunFolder) -> RunFolder:
    """A run that has not ended, in whose folder a test puts something."""
    folder = RunFolder.create(good.root.parent, f"odd-20261122T100000Z-{os.urandom(2).hex().translate(_LETTERS)}")
    folder.plan.write_text('{"schema": "cordee.plan/1", "backend": "local", "steps": []}')
    _event(folder, event="submitted", backend="local", nodes=1, ranks=1)
    return folder


_LETTERS = str.maketrans("0123456789", "ghijklmnop")


def _event(folder: RunFolder, **fields: object) -> None:
    (folder.journal / "client.jsonl").write_text(json.dumps({**EVENT, **fields}) + "\n")


def _cordee(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command, with an end to its memory."""
    return subprocess.run(
        [sys.executable, "-m", "cordee.faces.cli", *arguments, "--runs", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES)),
    )


def _fifo(folder: RunFolder) -> None:
    os.mkfifo(folder.journal / "supervisor-1.jsonl")


def _endless(folder: RunFolder) -> None:
    (folder.journal / "supervisor-1.jsonl").symlink_to("/dev/zero")


def _huge(folder: RunFolder) -> None:
    (folder.journal / "supervisor-1.jsonl").touch()
    os.truncate(folder.journal / "supervisor-1.jsonl", 1 << 40)


def _elsewhere(folder: RunFolder) -> None:
    folder.journal.rename(folder.root.parent / f".{folder.id}")
    folder.journal.symlink_to(folder.root.parent / f".{folder.id}")


def _nonsense(folder: RunFolder) -> None:
    _event(folder, event="attempt_started", attempt="x", nodes=5)


UNREADABLE = {
    _fifo: "it is a FIFO, not a regular file",
    _endless: "it is a link, not a regular file",
    _huge: "it is larger than 51",
    _elsewhere: "journal is a link, not a folder",
    _nonsense: "does not hold what it should",
}


@pytest.mark.parametrize(("put", "reason"), UNREADABLE.items())
def test_a_journal_that_is_no_file_makes_its_run_unreadable_and_no_other(
    put: Callable[[RunFolder], None], reason: str, odd: RunFolder, good: RunFolder
) -> None:
    put(odd)
    summaries = {summary.id: summary for summary in list_runs(good.root.parent)}
    assert summaries[good.id].state == "finished"
    assert (summaries[odd.id].state, reason in summaries[odd.id].reason) == ("unreadable", True), summaries[odd.id]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("plan", ["{}", "[]", '{"backend": 3}', "[" * 100_000, '{"backend": "moon"}', None])
def test_a_plan_that_names_no_back_end_hides_no_other_run(plan: str | None, odd: RunFolder, good: RunFolder) -> None:
    odd.plan.unlink()
    if plan is None:
        os.mkfifo(odd.plan)
    else:
        odd.plan.write_text(plan)
    done = _cordee(good.root.parent, "runs", "--json")
    assert {row["id"]: row["state"] for row in json.loads(done.stdout)["runs"]} | {good.id: "finished"} == {
        row["id"]: row["state"] for row in json.loads(done.stdout)["runs"]
    }, done.stderr
    assert _cordee(good.root.parent, "show", odd.id).returncode == 0


@pytest.mark.usefixtures("real")
def test_a_fifo_in_any_place_of_a_run_holds_no_command(odd: RunFolder, good: RunFolder) -> None:
    odd.plan.unlink()
    for place in (
        odd.plan, odd.provenance, odd.logs / "n1-1.log", odd.telemetry / "blocks-1-1.log", odd.submit / "script.sh",
        odd.control / "supervisor.log", odd.telemetry / "sealed.zarr",
    ):  # fmt: skip
        os.mkfifo(place)
    _event(odd, event="ended", state="failed", exit_code=1, reason="because")
    for command in ("show", "logs", "report"):
        done = _cordee(good.root.parent, command, odd.id)
        assert done.returncode == 0, done.stderr
    assert "a FIFO" in (odd.report / "report.txt").read_text()


def test_a_report_is_not_written_through_a_link(odd: RunFolder, good: RunFolder, tmp_path: Path) -> None:
    odd.report.rmdir()
    odd.report.symlink_to(tmp_path)
    done = _cordee(good.root.parent, "report", odd.id)
    assert done.returncode == 5
    assert "report is a link, not a folder" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_command_appends_to_no_file_that_a_journal_is_a_link_to(odd: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine\n")
    (odd.journal / "client.jsonl").unlink()
    (odd.journal / "client.jsonl").symlink_to(tmp_path / "mine")
    with pytest.raises(RunFolderError, match="it is a link"):
        client_journal(odd.journal)
    writer = JournalWriter(odd.journal, "client", 0)
    writer.append("cancel_requested")
    assert writer.pending == 1
    assert (tmp_path / "mine").read_text() == "mine\n"


def test_telemetry_that_leads_elsewhere_is_neither_read_nor_sealed(
    good: RunFolder, odd: RunFolder, tmp_path: Path
) -> None:
    odd.telemetry.rmdir()
    odd.telemetry.symlink_to(good.telemetry)
    before = sorted(path.name for path in good.telemetry.rglob("*"))
    with pytest.raises(RunFolderError, match="telemetry is a link, not a folder"):
        Run(odd).seal()
    with pytest.raises(RunFolderError, match="telemetry is a link, not a folder"):
        Run(odd).groups()
    assert sorted(path.name for path in good.telemetry.rglob("*")) == before


def test_a_link_that_another_user_made_is_no_run_and_ones_own_is(
    good: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link-20261122T100000Z-aaaa"
    link.symlink_to(good.root)
    assert list_runs(tmp_path)[0].state == "finished"
    assert find_run(link.name, tmp_path).root == link
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert list_runs(tmp_path)[0].state == "unreadable"
    with pytest.raises(RunFolderError, match="a link that another user made"):
        find_run(link.name, tmp_path)


def test_a_cache_that_another_user_left_says_nothing(
    good: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, MadeRun(4, 20))
    list_runs(tmp_path)
    cache = tmp_path / CACHE
    cache.write_text(cache.read_text().replace('"finished"', '"failed"'))
    assert list_runs(tmp_path)[0].state == "failed"
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert list_runs(tmp_path)[0].state == "finished"
