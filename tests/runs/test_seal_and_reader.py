from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

import cordee.telemetry.store.seal as sealing
from cordee.core.errors import RunFolderError, RunNotFound, UsageError
from cordee.runs.turn import turn
from cordee.telemetry.node.blocklog import (
    BlockLogWriter,
    encode_events,
    encode_facts,
    encode_grid,
    encode_schema,
    list_parts,
)
from cordee.telemetry.store.reader import open_run
from cordee.telemetry.store.seal import drop_sealed_parts, seal
from cordee.telemetry.store.sealed import read_commit, write_commit
from support.clocks import give_clock

T0 = 1_700_000_000.0
METRICS = [f"metric_{i}_ratio" for i in range(3)]


def assert_all_there(known, run=None):
    run = run or open_run(known.folder.root)
    grid = run.grid("rank")
    assert grid.devices == [0, 1, 2, 3]
    assert grid.metrics == METRICS
    assert grid.times[0] == T0
    assert grid.times[-1] == T0 + known.seconds - 1
    np.testing.assert_array_equal(grid.values, known.want)
    series = run.series("loss")
    assert series.steps.tolist() == list(range(known.seconds))
    assert (series.ranks == 4).all()
    np.testing.assert_allclose(series.mean, 1.5 + 1.0 / (series.steps + 1))


def bins(values, length, function):
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % length), (0, 0)), constant_values=np.nan)
    return function(padded.reshape(len(values), -1, length, values.shape[2]), axis=2)


def assert_rollups(known):
    run = open_run(known.folder.root)
    # T0 is 20 s after a full minute
    shifted = np.pad(known.want, ((0, 0), (20, 0), (0, 0)), constant_values=np.nan)
    for level in (5, 60):
        start = 0 if level == 60 else 4
        for statistic, function in (("mean", np.nanmean), ("min", np.nanmin), ("max", np.nanmax)):
            with np.errstate(all="ignore"):
                want = bins(shifted[:, 5 * start :] if level == 5 else shifted, level, function)
            got = run.grid("rank", every=level, statistic=statistic)
            assert got.cadence == level
            assert got.times[0] == T0 - (20 if level == 60 else 0)
            np.testing.assert_allclose(got.values, want, rtol=1e-6)
    assert np.nansum(run.grid("rank", every=60, statistic="count").values) == np.count_nonzero(~np.isnan(known.want))


def test_an_unsealed_run_is_read_whole(known):
    known.write()
    assert_all_there(known)
    assert_rollups(known)


def test_sealed_and_tail_as_one_equal_the_original(known):
    known.write(1, 0, 70)
    known.write(2, 70)
    until = seal(known.folder.root)
    assert T0 + 70 < until < T0 + known.seconds
    assert 0 < len(read_commit(known.telemetry).parts) < len(list_parts(known.telemetry))
    assert_all_there(known)
    assert_rollups(known)


def test_a_final_seal_takes_everything_and_the_parts_may_go(known):
    known.write()
    assert seal(known.folder.root, final=True) == pytest.approx(T0 + known.seconds - 0.9)
    assert drop_sealed_parts(known.folder.root) == 0
    known.journal.append("sealed", until=T0 + known.seconds)
    known.journal.append("ended", state="finished", exit_code=0)
    assert drop_sealed_parts(known.folder.root) > 1
    assert list_parts(known.telemetry) == []
    assert_all_there(known)
    assert_rollups(known)


def test_only_what_the_journal_calls_sealed_is_dropped_and_never_the_part_in_use(known):
    known.write()
    seal(known.folder.root, final=True)
    known.journal.append("sealed", until=T0 + 60)
    assert drop_sealed_parts(known.folder.root) > 0
    assert_all_there(known)
    known.journal.append("sealed", until=T0 + 1000)
    drop_sealed_parts(known.folder.root)
    assert len(list_parts(known.telemetry)) == 1


def test_sealing_twice_changes_nothing(known):
    known.write()
    first = seal(known.folder.root, final=True)
    before = {path: path.read_bytes() for path in known.telemetry.rglob("*") if path.is_file()}
    assert seal(known.folder.root, final=True) == first
    assert {path: path.read_bytes() for path in known.telemetry.rglob("*") if path.is_file()} == before


def test_sealing_in_many_small_steps_equals_sealing_at_once(known, monkeypatch):
    monkeypatch.setattr(sealing, "_TURN_BYTES", 1)
    for start in range(0, known.seconds, 50):
        known.write(1 + start, start, min(start + 50, known.seconds), max_bytes=60_000)
        seal(known.folder.root)
    seal(known.folder.root, final=True)
    known.journal.append("sealed", until=T0 + known.seconds)
    known.journal.append("ended", state="finished", exit_code=0)
    drop_sealed_parts(known.folder.root)
    assert_all_there(known)
    assert_rollups(known)


@pytest.mark.parametrize("stop_at", ["write_commit", "_seal_events", "_make_durable"])
def test_a_seal_that_breaks_off_leaves_the_truth_and_the_next_one_finishes(known, monkeypatch, stop_at):
    known.write(1, 0, 70)
    seal(known.folder.root)
    known.write(2, 70)

    def broken(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(sealing, stop_at, broken)
        with pytest.raises(RunFolderError):
            seal(known.folder.root, final=True)
    assert_all_there(known)
    seal(known.folder.root, final=True)
    assert_all_there(known)
    assert_rollups(known)


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
@pytest.mark.usefixtures("real")
def test_a_seal_killed_at_any_moment_leaves_the_truth(known, fraction):
    known.write(max_bytes=3_000)
    command = [sys.executable, "-c", _SLOW_SEAL, str(known.folder.root)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    total = len(list_parts(known.telemetry))
    for _ in range(int(total * fraction)):
        child.stdout.readline()
    time.sleep(0.02 * fraction)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert 0 < len(read_commit(known.telemetry).parts) < total
    assert_all_there(known)
    assert seal(known.folder.root, final=True) is not None
    assert len(read_commit(known.telemetry).parts) == total
    assert not list(known.telemetry.rglob("*.partial"))
    assert_all_there(known)


_SLOW_SEAL = """
import sys
import cordee.telemetry.store.seal as sealing
sealing._TURN_BYTES = 1
write_commit = sealing.write_commit
def said(*arguments):
    write_commit(*arguments)
    print("turn", flush=True)
sealing.write_commit = said
sealing.seal(sys.argv[1], final=True)
"""


def test_two_sealers_do_not_meet(known):
    known.write()
    with turn(known.telemetry, ".sealing") as mine:
        assert mine is not None
        assert seal(known.folder.root, final=True) is None
    assert seal(known.folder.root, final=True) is not None
    assert len(list(known.telemetry.glob(".sealing*"))) == 1


def test_all_that_was_sealed_is_durable_before_the_commit_whatever_the_clock_says(known, monkeypatch):
    known.write()
    synced: set[str] = set()
    real = os.fsync

    def fsync(descriptor):
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    def commit(telemetry, document):
        shards = {str(path) for path in (telemetry / "sealed.zarr").rglob("*") if path.is_file()}
        assert shards
        assert shards <= synced
        write_commit(telemetry, document)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(sealing, "write_commit", commit)
    give_clock(monkeypatch, "cordee.runs", time=lambda: 4_000_000_000.0)  # the file server's clock is far behind
    seal(known.folder.root, final=True)


def test_the_module_prints_one_json_line(known):
    known.write()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "cordee.telemetry.store.seal", str(known.folder.root), "--final"]
    done = subprocess.run(command, env=env, capture_output=True, check=True)
    assert json.loads(done.stdout)["sealed_until"] == pytest.approx(T0 + known.seconds - 0.9)
    assert done.stderr == b""


def test_a_run_is_read_while_it_grows(known):
    run = open_run(known.folder.root)
    assert run.groups() == []
    assert run.events() == {}
    assert run.last_events() == []
    known.write(1, 0, 50)
    assert run.grid("rank").values.shape == (3, 50, 4)
    assert len(run.last_events()) == 200
    known.write(2, 50)
    assert_all_there(known, run)
    assert len(run.last_events()) == 4 * (known.seconds - 50)
    assert run.last_events() == []
    seal(known.folder.root)
    assert_all_there(known, run)


def test_events_that_were_sent_again_count_once_sealed_or_not(known):
    known.write(1, 0, 60)
    known.write(2, 40)
    assert_all_there(known)
    assert len(open_run(known.folder.root).last_events()) == 4 * known.seconds
    seal(known.folder.root)
    known.write(3, 100)
    assert_all_there(known)
    seal(known.folder.root, final=True)
    assert_all_there(known)
    assert read_commit(known.telemetry).event_rows == 4 * known.seconds


def test_a_time_window_and_some_metrics_can_be_asked_for(known):
    known.write()
    seal(known.folder.root)
    name = METRICS[2]
    grid = open_run(known.folder.root).grid("rank", [name], T0 + 10, T0 + 140)
    assert grid.metrics == [name]
    assert grid.units == {name: "ratio"}
    np.testing.assert_array_equal(grid.values, known.want[2:3, 10:140])
    assert open_run(known.folder.root).grid("rank", start=T0 + 10_000).values.shape == (3, 0, 4)


def test_what_is_not_there_is_refused_by_name(known):
    run = open_run(known.folder.root)
    with pytest.raises(UsageError, match="no samples of this group"):
        run.grid("node")
    known.write(1, 0, 5)
    for arguments, text in (({"metrics": ["x"]}, "no such metric"), ({"every": 7}, "no such bins")):
        with pytest.raises(UsageError, match=text):
            run.grid("rank", **arguments)
    with pytest.raises(UsageError, match="no rank logged this metric") as caught:
        run.series("los")
    assert caught.value.allowed == ["loss"]
    with pytest.raises(RunNotFound):
        open_run(known.folder.root.parent / "nothing")


def test_xarray_opens_a_group_and_the_sealed_store_itself(known):
    import xarray

    known.write()
    dataset = open_run(known.folder.root).to_xarray("rank")
    name = METRICS[0]
    assert dataset[name].dims == ("time", "device")
    assert dataset[name].attrs["units"] == "ratio"
    assert str(dataset.time.values[0]).startswith("2023-11-14T22:13:20")
    np.testing.assert_array_equal(dataset[name].sel(device=3).values, known.want[0, :, 3])
    seal(known.folder.root, final=True)
    raw = xarray.open_zarr(known.telemetry / "sealed.zarr", group="rank", consolidated=False)
    found = raw["values"].sel(metric=name, device=3, time=dataset.time)
    np.testing.assert_array_equal(found.values, known.want[0, :, 3])


def write_grids(known, epoch, node, devices, metrics, times, value):
    writer = BlockLogWriter(known.telemetry, epoch)
    schema, record = encode_schema(node, "rank", 1.0, devices, [{"name": m, "unit": "", "source": ""} for m in metrics])
    writer.append(record)
    for moment in times:
        writer.append(encode_grid(schema, moment, [value] * (len(devices) * len(metrics))))
    assert writer.close()


@pytest.mark.parametrize("sealed_between", [False, True])
def test_ranks_that_move_and_metrics_that_come_later_find_their_place(known, sealed_between):
    write_grids(known, 1, "local-0", [0, 1], ["a"], [T0, T0 + 1], 1.0)
    if sealed_between:
        seal(known.folder.root, final=True)
    write_grids(known, 2, "local-9", [10, 1, 2], ["b", "a"], [T0 + 3], 2.0)
    if sealed_between:
        seal(known.folder.root, final=True)
    grid = open_run(known.folder.root).grid("rank")
    nan = np.nan
    assert grid.devices == [0, 1, 2, 10]
    assert grid.metrics == ["a", "b"]
    want = [[[1, 1, nan, nan], [1, 1, nan, nan], [nan] * 4, [nan, 2, 2, 2]], [[nan] * 4] * 3 + [[nan, 2, 2, 2]]]
    np.testing.assert_array_equal(grid.values, want)


@pytest.mark.parametrize("sealed_between", [False, True])
def test_after_a_clock_jumped_back_the_later_sample_wins(known, sealed_between):
    write_grids(known, 1, "local-0", [0], ["a"], [T0 + 100, T0 + 101, T0 + 102], 1.0)
    if sealed_between:
        seal(known.folder.root, final=True)
    write_grids(known, 2, "local-0", [0], ["a"], [T0 + 101, T0 - 7000, T0 + 103], 2.0)
    if sealed_between:
        seal(known.folder.root, final=True)
    grid = open_run(known.folder.root).grid("rank")
    assert grid.times[0] == T0 - 7000
    assert grid.values[0, -4:, 0].tolist() == [1.0, 2.0, 1.0, 2.0]
    assert np.count_nonzero(~np.isnan(grid.values)) == 5


def test_within_one_part_the_later_sample_wins_and_a_missing_value_hides_nothing(known):
    writer = BlockLogWriter(known.telemetry, 1)
    metrics = [{"name": "a", "unit": "", "source": ""}, {"name": "b", "unit": "", "source": ""}]
    schema, record = encode_schema("local-0", "node", 1.0, ["local-0"], metrics)
    writer.append(record)
    for values in ([1.0, 1.0], [2.0, float("nan")], [3.0, 4.0]):
        writer.append(encode_grid(schema, T0 if values[0] < 3 else T0 + 1, values))
    writer.close()
    grid = open_run(known.folder.root).grid("node")
    assert grid.values[:, :, 0].tolist() == [[2.0, 3.0], [1.0, 4.0]]


def test_samples_of_a_clock_that_is_years_off_are_left_out_and_counted(known):
    write_grids(known, 1, "local-0", [0], ["a"], [5.0, T0, T0 + 1, T0 + 2, T0 + 2e9], 1.0)
    assert open_run(known.folder.root).grid("rank").values.shape == (1, 3, 1)
    assert seal(known.folder.root, final=True) == T0 + 2
    assert open_run(known.folder.root).grid("rank").values.shape == (1, 3, 1)
    assert read_commit(known.telemetry).groups["rank"].outside == 2


def test_groups_with_another_cadence_stand_apart(known):
    for cadence in (1.0, 10.0):
        writer = BlockLogWriter(known.telemetry, int(cadence))
        schema, record = encode_schema(
            "local-0", "node", cadence, ["local-0"], [{"name": "a", "unit": "", "source": ""}]
        )
        writer.append(record + b"".join(encode_grid(schema, T0 + at * cadence, [at]) for at in range(30)))
        writer.close()
    for _ in range(2):
        run = open_run(known.folder.root)
        assert run.groups() == ["node", "node-10s"]
        assert run.grid("node-10s").times[-1] - T0 == 290.0
        assert run.grid("node-10s", every=60).values.shape[1] == 6
        with pytest.raises(UsageError):
            run.grid("node-10s", every=5)
        seal(known.folder.root, final=True)


def test_events_without_steps_are_counted_per_rank_and_a_repeated_step_takes_the_newest_attempt(known):
    writer = BlockLogWriter(known.telemetry, 1)
    for rank in range(2):
        events = [(at, T0 + at, None, {"seen": float(at)}) for at in range(3)]
        writer.append(encode_events("local-0", rank, 1, 0, events))
    writer.append(encode_events("local-0", 0, 1, 2, [(10 + at, T0 + at, at, {"loss": 1.0}) for at in range(4)]))
    writer.append(encode_events("local-0", 0, 2, 0, [(at, T0 + 9 + at, at, {"loss": 2.0}) for at in range(2, 6)]))
    writer.close()
    for _ in range(2):
        run = open_run(known.folder.root)
        assert run.series("seen").steps.tolist() == [0, 1, 2]
        assert run.series("seen").ranks.tolist() == [2, 2, 2]
        assert run.series("loss").mean.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
        assert run.dropped_events == 2
        seal(known.folder.root, final=True)


def test_few_files_are_made(known):
    known.write()
    seal(known.folder.root, final=True)
    assert len([path for path in (known.telemetry / "sealed.zarr").rglob("*") if path.is_file()]) < 30


def test_a_torn_and_damaged_part_is_sealed_as_far_as_it_goes_and_the_damage_is_counted(known):
    known.write(max_bytes=10**9)
    path = list_parts(known.telemetry)[0][2]
    data = bytearray(path.read_bytes()[:-7])
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    tail = open_run(known.folder.root).grid("rank").values
    assert np.count_nonzero(~np.isnan(tail[0, :, 0])) == known.seconds - 2
    seal(known.folder.root, final=True)
    np.testing.assert_array_equal(open_run(known.folder.root).grid("rank").values, tail)
    assert read_commit(known.telemetry).skipped_bytes > 0


def test_a_newer_or_damaged_store_is_refused(known):
    known.write()
    seal(known.folder.root, final=True)
    path = known.telemetry / "sealed.zarr" / "zarr.json"
    text = path.read_text()
    path.write_text(text.replace("cordee.sealed/2", "cordee.sealed/9"))
    with pytest.raises(RunFolderError, match="newer"):
        open_run(known.folder.root).groups()
    path.write_text(text[:100])
    with pytest.raises(RunFolderError, match="cannot be read"):
        open_run(known.folder.root).groups()


def test_logs_of_a_run_are_read_from_the_nodes_where_a_rank_was(known):
    from cordee.runs.logframes import LogWriter

    known.journal.append("attempt_started", attempt=1, world_size=1, nodes=[{"node": "local-0", "ranks": [0]}])
    for node in ("local-0", "local-1"):
        writer = LogWriter(known.folder.logs / f"{node}-1.log")
        writer.write(0, 0, 1, node.encode() + b"\n", T0)
        writer.close()
    assert [line.data for line in open_run(known.folder.root).logs.tail(0, 5)] == [b"local-0"]


def test_importing_the_reader_loads_neither_numpy_nor_zarr():
    code = "import sys, cordee.telemetry.store.reader; sys.exit(any(name in sys.modules for name in ('numpy', 'zarr', 'xarray')))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0


def test_a_part_that_grew_after_it_was_sealed_is_read_and_sealed_again(known):
    writer = BlockLogWriter(known.telemetry, 1)
    for second in range(known.seconds):
        writer.append(known.record(second))
        writer.flush()
        if second == 80:
            seal(known.folder.root, final=True)
    writer.close()
    assert_all_there(known)
    seal(known.folder.root, final=True)
    assert len(list_parts(known.telemetry)) == 1
    assert_all_there(known)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (1, b"{"),
        (1, b"[]"),
        (1, b'{"id": 1, "group": "../x", "cadence": 1.0, "devices": [0], "metrics": [{"name": "a"}]}'),
        (1, b'{"id": 1, "group": "events", "cadence": 1.0, "devices": [0], "metrics": [{"name": "a"}]}'),
        (1, b'{"id": 1, "group": "rank", "cadence": 0, "devices": [0], "metrics": [{"name": "a"}]}'),
        (1, b'{"id": 1, "group": "rank", "cadence": 1.0, "devices": [0], "metrics": []}'),
        (2, b"abc"),
        (3, b'{"attempt": 1, "rank": 0, "dropped": 0, "events": [[1, 2]]}'),
        (3, b'{"attempt": 1, "rank": 0, "dropped": 0, "events": [[1, 2.0, 3, {"loss": "low"}]]}'),
    ],
)
def test_a_record_that_makes_no_sense_is_passed_over_and_counted(known, kind, body):
    writer = BlockLogWriter(known.telemetry, 9)
    writer.append(struct.pack("<IB", len(body), kind) + body + struct.pack("<IB", 3, 77) + b"new")
    writer.close()
    known.write()
    assert_all_there(known)
    seal(known.folder.root, final=True)
    assert_all_there(known)
    # a schema is there twice: at the beginning of the part and where it came
    assert read_commit(known.telemetry).malformed_records == (2 if kind == 1 else 1)


def test_facts_are_merged_key_by_key_and_survive_sealing(known):
    known.write()
    writer = BlockLogWriter(known.telemetry, 2)
    writer.append(encode_facts("n1", "gpu", T0, {"GPU-a": {"model": "H200"}}, {"gpu_dram_ratio": "no GPM"}, ["shared"]))
    writer.append(encode_facts("n1", "gpu", T0 + 1, {"GPU-a": {"ranks": [3]}}, {"gpu_dram_ratio": ""}, ["shared"]))
    writer.append(encode_facts("n2", "gpu", T0 + 1, {}, {"gpu_power_watts": "closed"}))
    assert writer.close()
    before = open_run(known.folder.root).facts("gpu")
    assert before["n1"]["devices"] == {"GPU-a": {"model": "H200", "ranks": [3]}}
    assert before["n1"]["missing"] == {}
    assert before["n1"]["remarks"] == ["shared"]
    assert before["n2"]["missing"] == {"gpu_power_watts": "closed"}
    seal(known.folder.root, final=True)
    assert open_run(known.folder.root).facts("gpu") == before
    assert open_run(known.folder.root).facts("node") == {}


def test_facts_that_make_no_sense_are_passed_over(known):
    writer = BlockLogWriter(known.telemetry, 2)
    writer.append(encode_facts("n1", "gpu", T0, {"GPU-a": 7}, {}))
    writer.append(known.record(0))
    assert writer.close()
    assert open_run(known.folder.root).facts("gpu") == {}
