"""A service that lives for months: few runs, files and events stay, and nothing that is long ago ends it."""

from __future__ import annotations

import os
import shutil
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from tests.systems.services.test_accounts import kept_service
from tests.systems.services.test_deployment import until

import cordee
from cordee.runs import journal_follower
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.runs.journal_follower import FollowedStates
from cordee.systems.services.accounts import summed, used_days
from cordee.systems.services.retention import KEPT_RUNS, prune_runs
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid, encode_schema
from cordee.telemetry.store.seal import drop_sealed_parts, seal, thin

DAY_S, DAYS, CADENCE_S = 7200.0, 16, 1.0  # a day of two hours: what is kept is a matter of shards, of 20 minutes
KEEP_S = 4 * DAY_S
BEGAN = 1_790_000_000.0 // DAY_S * DAY_S


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    """Return the folders of two runs with the same samples, sealed day by day; of the second, old ones are thinned."""
    whole, thinned = (tmp_path_factory.mktemp(name) for name in ("whole", "thinned"))
    metric = {"name": "gpu_power_watts", "unit": "watts", "source": "synthetic"}
    schema, record = encode_schema("n-0", "gpu", CADENCE_S, ["n-0:0"], [metric])
    random = np.random.default_rng(7)
    for folder in (whole, thinned):
        RunFolder(folder).telemetry.mkdir()
        RunFolder(folder).journal.mkdir()
    for day in range(DAYS):
        watts = random.normal(300.0, 40.0, int(DAY_S / CADENCE_S)).astype(np.float32)
        for folder in (whole, thinned):
            writer = BlockLogWriter(RunFolder(folder).telemetry, day + 1)
            writer.append(record)
            for at, value in enumerate(watts):
                writer.append(encode_grid(schema, BEGAN + day * DAY_S + at * CADENCE_S, [float(value)]))
            assert writer.close()
            until = seal(folder, final=True)
            JournalWriter(RunFolder(folder).journal, f"supervisor-{day + 1}", day + 1).append("sealed", until=until)
            assert drop_sealed_parts(folder) >= 0
            if folder == thinned:
                thin(folder, KEEP_S)
    return whole, thinned


def files(folder: Path) -> tuple[int, int]:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


@pytest.mark.campaign
def test_of_old_samples_the_means_of_minutes_stay_and_nothing_is_missed(lives):
    whole, thinned = (cordee.open_run(folder) for folder in lives)
    name = "gpu"
    for statistic in ("mean", "min", "max", "count"):
        of_all, of_kept = (run.grid(name, every=60, statistic=statistic) for run in (whole, thinned))
        np.testing.assert_array_equal(of_kept.times, of_all.times)
        np.testing.assert_array_equal(of_kept.values, of_all.values)
    end = BEGAN + DAYS * DAY_S
    kept = thinned.grid(name, start=end - KEEP_S).values
    np.testing.assert_array_equal(kept, whole.grid(name, start=end - KEEP_S).values)
    assert np.isfinite(kept).all()
    assert np.isnan(thinned.grid(name, stop=end - KEEP_S - DAY_S).values).all()
    assert not thinned.missing(), "what was thinned is not missed"


def test_the_folder_grows_by_what_minutes_take(lives):
    (whole_files, whole_bytes), (thinned_files, thinned_bytes) = (
        files(folder / "telemetry" / "sealed.zarr" / "gpu") for folder in lives
    )
    assert thinned_bytes < 0.5 * whole_bytes
    assert thinned_files < 0.5 * whole_files


def test_thinning_that_breaks_off_leaves_nothing_that_is_missed_and_is_finished_by_the_next(
    lives, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    shutil.copytree(lives[1], folder)
    unlink = Path.unlink
    calls = []

    def breaks_off(path, missing_ok=False):
        if "values/c" in str(path):
            calls.append(path)
            if len(calls) > 3:
                raise OSError("no")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", breaks_off)
    with pytest.raises(OSError, match="no"):
        thin(folder, DAY_S)
    monkeypatch.undo()
    assert not cordee.open_run(folder).missing()
    assert thin(folder, DAY_S) > 0
    assert thin(folder, DAY_S) == 0
    assert not cordee.open_run(folder).missing()


def test_old_runs_go_once_what_they_used_is_written_down(services):
    folder, first = kept_service(services, "endpoint", "p-17")
    for at in range(KEPT_RUNS + 4):
        copy = folder.runs / f"made-{at:02}"
        shutil.copytree(first.root, copy)
        os.utime(copy / "plan.json", (at + 1e9, at + 1e9))
    goes_on = folder.runs / "made-02" / "journal"
    for path in goes_on.iterdir():
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line for line in lines if '"ended"' not in line) + "\n")
    before = summed(used_days(), "project")["p-17"]
    gone = prune_runs(folder)
    assert gone == ["made-00", "made-01", "made-03", "made-04"], "the newest, and one that goes on, stay"
    after = summed(used_days(), "project")["p-17"]
    assert after.energy_joules == pytest.approx(before.energy_joules)
    assert after.gpu_seconds == pytest.approx(before.gpu_seconds, rel=1e-3)
    assert prune_runs(folder) == []


def test_who_asks_often_reads_only_what_is_new_of_a_journal_of_months(tmp_path, monkeypatch):
    run = RunFolder(tmp_path)
    run.journal.mkdir()
    journal = JournalWriter(run.journal, "supervisor-1", 1)
    for hour in range(24 * 180):  # sealed once an hour
        journal.append("sealed", until=BEGAN + hour * 3600.0, durable=False)
    journal.flush()
    states = FollowedStates()
    assert states.of(run).sealed_until == BEGAN + (24 * 180 - 1) * 3600.0
    (path,) = run.journal.iterdir()
    assert path.stat().st_size < 2_000_000
    read: list[int] = []
    parse = journal_follower.parse_lines
    monkeypatch.setattr(
        journal_follower,
        "parse_lines",
        lambda data, *more, **named: read.append(len(data)) or parse(data, *more, **named),
    )
    journal.append("sealed", until=BEGAN)
    assert states.of(run).sealed_until == BEGAN
    assert sum(read) < 1000


@pytest.mark.usefixtures("real")
def test_a_service_that_was_ready_is_started_again_however_often_and_alike_it_crashes(services):
    code, now, said = services.call("deploy", str(services.blueprint), "--json")
    assert code == 0, said
    job = (services.root() / "revisions" / "1" / "job" / "cordee.toml").read_text()
    assert 'interval = "60s"' in job
    assert 'keep = "7d"' in job
    for times in range(2, 4):
        with pytest.raises(OSError):
            urllib.request.urlopen(until(services, "ready")["endpoints"][0]["url"] + "/leave", timeout=30)
        deadline = time.monotonic() + 60
        while (services.root() / "volumes" / "data" / "starts").read_text() != "x" * times:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert until(services, "ready")["run"] == now["run"]
    broken = services.root() / "volumes" / "data" / "broken"
    broken.touch()
    with pytest.raises(OSError):
        urllib.request.urlopen(until(services, "ready")["endpoints"][0]["url"] + "/leave", timeout=30)
    assert "ended with exit code 3 after" in until(services, "starting", said="exit code 3")["why"]
    broken.unlink()
    assert until(services, "ready")["endpoints"] == now["endpoints"], "its address is the same"
    assert "it is started again in 1 s" in services.call("logs", "echo")[2]
