"""Folders that are half copied, damaged, empty or of another version: what can be read is shown, the rest is named."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from support.made.runs import MadeRun, write_run
from support.servers.serving import ServedRuns

PATHS = (
    "", "?brief=true", "/groups", "/devices?group=gpu", "/heat?group=gpu&metric=gpu_power_watts", "/bands?group=rank&metric=cpu_cores_ratio",
    "/logged", "/logged/loss", "/logs", "/logs?rank=0", "/nodes/nid000000", "/ranks/0", "/findings",
)  # fmt: skip


def cut(path: Path, share: float = 0.5) -> None:
    """Leave the first part of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def remove_telemetry(folder: RunFolder) -> None:
    shutil.rmtree(folder.telemetry)


def remove_journal(folder: RunFolder) -> None:
    shutil.rmtree(folder.journal)


def empty_journal(folder: RunFolder) -> None:
    for path in folder.journal.iterdir():
        path.write_bytes(b"")


def cut_journal(folder: RunFolder) -> None:
    for path in folder.journal.iterdir():
        cut(path, 0.7)


def newer_journal(folder: RunFolder) -> None:
    for path in folder.journal.iterdir():
        path.write_bytes(path.read_bytes().replace(b"cordee.journal/1", b"cordee.journal/7"))


def remove_plan(folder: RunFolder) -> None:
    folder.plan.unlink()


def cut_plan(folder: RunFolder) -> None:
    cut(folder.plan)


def cut_blocks(folder: RunFolder) -> None:
    for path in folder.telemetry.glob("blocks-*"):
        cut(path)


def newer_sealed(folder: RunFolder) -> None:
    root = folder.telemetry / "sealed.zarr" / "zarr.json"
    root.write_text(re.sub(r"cordee\.sealed/\d+", "cordee.sealed/99", root.read_text()))


def remove_chunks(folder: RunFolder) -> None:
    for path in (folder.telemetry / "sealed.zarr").rglob("c/**/*"):
        if path.is_file():
            path.unlink()


def cut_chunks(folder: RunFolder) -> None:
    for path in (folder.telemetry / "sealed.zarr").rglob("c/**/*"):
        if path.is_file():
            cut(path)


def remove_arrays(folder: RunFolder) -> None:
    for path in (folder.telemetry / "sealed.zarr").iterdir():
        if path.is_dir():
            shutil.rmtree(path)


def damaged_facts(folder: RunFolder) -> None:
    (folder.telemetry / "sealed.zarr" / "facts.json").write_text("[1")


def cut_logs(folder: RunFolder) -> None:
    for path in folder.logs.glob("*.log"):
        cut(path, 0.6)


def noise_everywhere(folder: RunFolder) -> None:
    for path in (*folder.logs.glob("*.log"), *folder.telemetry.glob("blocks-*"), *folder.journal.iterdir()):
        path.write_bytes(bytes(range(256)) * 40)


SEALED = (remove_telemetry, remove_journal, empty_journal, cut_journal, newer_journal, remove_plan, cut_plan, newer_sealed,
          remove_chunks, cut_chunks, remove_arrays, damaged_facts, cut_logs, noise_everywhere)  # fmt: skip


FINDINGS: tuple[tuple[dict[str, Any], dict[str, Any] | None], ...] = (
    ({"text": "5 bytes of output on nid000000 could not be written", "rule": "log-dropped"}, {"page": "node", "query": {"node": "nid000000"}}),
    ({"text": "some bytes were lost", "rule": "log-dropped"}, {"page": "logs", "query": {}}),
    ({"text": "a rank", "evidence": {"ranks": [3, 4]}}, {"page": "rank", "query": {"rank": "3"}}),
    ({"text": "a metric", "evidence": {"group": "gpu", "metric": "x", "start": 1.5}}, {"page": "heat", "query": {"group": "gpu", "metric": "x", "start": "1.5"}}),
    ({"text": "nothing in particular"}, None),
)  # fmt: skip


@pytest.fixture(scope="module")
def faulty(made_folder: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedRuns]:
    """A server over copies of a run, one for each fault, and of one with blocks that are not sealed."""
    runs = tmp_path_factory.mktemp("faulty")
    for fault in SEALED:
        folder = RunFolder(shutil.copytree(made_folder.root, runs / fault.__name__))
        fault(folder)
    (runs / "an_empty_folder").mkdir()
    (runs / "only_a_journal" / "journal").mkdir(parents=True)
    (runs / "a_file").write_text("x")
    with ServedRuns(runs) as server:
        yield server


@pytest.fixture(scope="module")
def asking(faulty: ServedRuns) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=faulty.url, timeout=300.0) as client:
        yield client


@pytest.mark.parametrize("fault", [fault.__name__ for fault in SEALED] + ["only_a_journal"])
def test_no_damage_is_a_failure_of_the_server(asking: httpx.Client, fault: str) -> None:
    for path in PATHS:
        answer = asking.get(f"/api/runs/{fault}{path}")
        assert answer.status_code in (200, 400, 404, 409), f"{path}: {answer.text[:500]}"
        if answer.status_code != 200:
            assert answer.json()["error"]["text"]
    page = asking.get(f"/api/runs/{fault}")
    assert page.status_code == 200


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (remove_journal, "the journal"),
        (newer_journal, "the journal"),
        (remove_plan, "the plan"),
        (newer_sealed, "samples"),
        (damaged_facts, "samples"),
        (remove_telemetry, "samples"),
    ],
)
def test_what_cannot_be_read_is_named_with_why_and_what_to_do(
    asking: httpx.Client, fault: Callable[[RunFolder], None], what: str
) -> None:
    page = asking.get(f"/api/runs/{fault.__name__}").json()
    (named,) = [missing for missing in page["missing"] if missing["what"] == what]
    assert named["why"]


def test_sealed_files_that_were_not_copied_are_named(asking: httpx.Client) -> None:
    page = asking.get("/api/runs/remove_chunks").json()
    assert any("copy" in (missing["next"] or "") for missing in page["missing"])


def test_a_newer_version_is_refused_by_its_name(asking: httpx.Client) -> None:
    page = asking.get("/api/runs/newer_journal").json()
    assert page["state"] == "unreadable"
    assert "newer" in page["text"]
    answer = asking.get("/api/runs/newer_sealed/groups")
    assert answer.status_code == 409
    assert answer.json()["error"]["given"] == "cordee.sealed/99"


def test_what_can_be_read_is_shown_though_the_rest_cannot(asking: httpx.Client) -> None:
    assert asking.get("/api/runs/remove_journal/groups").json()["groups"]
    assert asking.get("/api/runs/newer_journal/logs").json()["lines"]
    assert asking.get("/api/runs/remove_telemetry").json()["state"] == "finished"
    assert asking.get("/api/runs/newer_sealed/findings").status_code == 200


def test_all_of_them_are_listed_and_what_is_no_run_is_not(asking: httpx.Client) -> None:
    listed = {run["id"]: run for run in asking.get("/api/runs").json()["runs"]}
    assert {fault.__name__ for fault in SEALED} <= set(listed)
    assert not {"an_empty_folder", "a_file"} & set(listed)
    assert listed["newer_journal"]["state"] == "unreadable"
    assert "newer" in listed["newer_journal"]["reason"]


def test_a_run_that_arrives_while_it_is_looked_at_becomes_whole(made_folder: RunFolder, runs: Path) -> None:
    half = runs / made_folder.id
    half.mkdir()
    shutil.copytree(made_folder.journal, half / "journal")
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url, timeout=300.0) as client:
        of_run = f"/api/runs/{made_folder.id}"
        assert "samples" in {missing["what"] for missing in client.get(of_run).json()["missing"]}
        assert client.get(f"{of_run}/groups").json() == {"groups": []}
        shutil.copytree(made_folder.telemetry, half / "telemetry")
        shutil.copy(made_folder.plan, half)
        assert client.get(f"{of_run}/groups").json()["groups"]
        assert not {"samples", "the plan"} & {missing["what"] for missing in client.get(of_run).json()["missing"]}


def test_a_run_without_samples_says_why_there_is_nothing(runs: Path) -> None:
    folder = RunFolder.create(runs, "waits-20261121T000000Z-abcd")
    folder.plan.write_text(json.dumps({"name": "waits", "backend": "local", "steps": [{}]}))
    JournalWriter(folder.journal, "client", 0).append("submitted", nodes=1)
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url) as client:
        page = client.get(f"/api/runs/{folder.id}").json()
        assert page["state"] == "queued"
        assert page["missing"][0]["why"] == "it waits for its nodes"
        for path in ("/groups", "/logged", "/logs", "/findings"):
            assert client.get(f"/api/runs/{folder.id}{path}").status_code == 200


def test_a_run_that_gives_no_sign_of_life_is_said_to(runs: Path) -> None:
    folder = write_run(runs, MadeRun(4, 20), seal=False)
    for path in folder.journal.iterdir():
        kept = [line for line in path.read_bytes().splitlines(keepends=True) if b'"ended"' not in line]
        path.write_bytes(b"".join(kept))
    for path in folder.root.rglob("*"):
        os.utime(path, (time.time() - 1000, time.time() - 1000))
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url) as client:
        page = client.get(f"/api/runs/{folder.id}").json()
        assert page["state"] == "running"
        assert "what happens now" in {missing["what"] for missing in page["missing"]}


def test_findings_lead_to_the_node_they_name_or_to_the_page_of_their_kind(runs: Path) -> None:
    folder = write_run(runs, MadeRun(4, 20), seal=False)
    journal = JournalWriter(folder.journal, "supervisor-2", 2)
    for finding, _ in FINDINGS:
        journal.append("finding", finding={"severity": "warn", **finding})
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url) as client:
        told = client.get(f"/api/runs/{folder.id}/findings").json()["findings"]
    found = {one["text"]: one["evidence"] for one in told}
    for finding, evidence in FINDINGS:
        assert found[finding["text"]] == evidence


def test_a_folder_of_runs_that_is_not_there_holds_none(tmp_path: Path) -> None:
    with ServedRuns(tmp_path / "nowhere") as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/api/runs").json()["runs"] == []
        assert client.get("/api/fleet").json()["nodes"] == []
