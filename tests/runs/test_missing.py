from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from cordee.core.errors import RunFolderError
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events, list_parts
from cordee.telemetry.store.reader import open_run
from cordee.telemetry.store.seal import drop_sealed_parts, seal
from cordee.telemetry.store.views import bands, heat

T0 = 1_700_000_000.0
NAME = "metric_0_ratio"


@pytest.fixture
def sealed(known):
    known.write()
    seal(known.folder.root, final=True)
    known.journal.append("sealed", until=T0 + known.seconds)
    known.journal.append("ended", state="finished", exit_code=0)
    drop_sealed_parts(known.folder.root)
    return known


def test_a_whole_run_misses_nothing(sealed):
    run = open_run(sealed.folder.root)
    run.grid("rank")
    assert run.missing() == []


@pytest.mark.parametrize("every", [None, 5, 60])
def test_shards_that_were_not_copied_are_gaps_and_named(sealed, every):
    store = sealed.telemetry / "sealed.zarr"
    gone = store / "rank" / ("values" if every is None else f"values_{every}s") / "c"
    shutil.rmtree(gone)
    run = open_run(sealed.folder.root)
    assert np.isnan(run.grid("rank", every=every).values).all()
    (named,) = run.missing()
    assert str(gone.relative_to(store)) in named.what
    assert "copy" in named.next


def test_a_shard_cut_short_is_a_gap_and_named_once_read(sealed):
    path = next((sealed.telemetry / "sealed.zarr" / "rank" / "values" / "c").rglob("0"))
    path = next(
        file for file in (sealed.telemetry / "sealed.zarr" / "rank" / "values" / "c").rglob("*") if file.is_file()
    )
    path.write_bytes(path.read_bytes()[:-50])
    run = open_run(sealed.folder.root)
    assert np.isnan(heat(run, "rank", NAME).values).all()
    assert run.missing()[0].why == "its index is missing or damaged"


def test_arrays_events_and_facts_that_are_not_there_do_not_end_the_reader(sealed):
    store = sealed.telemetry / "sealed.zarr"
    shutil.rmtree(store / "events")
    (store / "rank" / "values" / "zarr.json").unlink()
    run = open_run(sealed.folder.root)
    assert run.events() == {}
    assert run.facts("rank") == {}
    assert np.isnan(bands(run, "rank", NAME).mean).all()
    assert any("values" in found.what for found in run.missing())


def test_events_whose_file_was_not_copied_are_left_out(sealed):
    shutil.rmtree(sealed.telemetry / "sealed.zarr" / "events" / "table" / "c")
    shutil.rmtree(sealed.telemetry / "sealed.zarr" / "events" / "steps" / "c")
    run = open_run(sealed.folder.root)
    assert run.events() == {}


def test_a_store_without_its_commit_is_named(sealed):
    (sealed.telemetry / "sealed.zarr" / "zarr.json").unlink()
    run = open_run(sealed.folder.root)
    assert run.groups() == []
    assert run.missing()[0].what == "everything that was sealed"


def test_a_store_of_the_first_version_is_read_and_sealed_on(known):
    known.write(1, 0, 70)
    seal(known.folder.root, final=True)
    path = known.telemetry / "sealed.zarr" / "zarr.json"
    document = json.loads(path.read_text())
    commit = document["attributes"]["cordee"]
    commit["schema"] = "cordee.sealed/1"
    for new in ("shards", "step_rows", "capped_values"):
        del commit[new]
    path.write_text(json.dumps(document))
    shutil.rmtree(known.telemetry / "sealed.zarr" / "events" / "steps")
    known.write(2, 70)
    for _ in range(2):
        run = open_run(known.folder.root)
        np.testing.assert_array_equal(run.grid("rank").values, known.want)
        assert run.series("loss").steps.tolist() == list(range(known.seconds))
        assert (run.series("loss").ranks == 4).all()
        seal(known.folder.root, final=True)


def test_a_newer_version_is_refused_by_name(sealed):
    path = sealed.telemetry / "sealed.zarr" / "zarr.json"
    path.write_text(path.read_text().replace("cordee.sealed/2", "cordee.sealed/3"))
    with pytest.raises(RunFolderError, match="newer") as refused:
        open_run(sealed.folder.root).missing()
    assert refused.value.given == "cordee.sealed/3"


def test_damage_to_the_log_and_events_that_were_dropped_are_named(known):
    known.write(max_bytes=10**9)
    writer = BlockLogWriter(known.telemetry, 2)
    writer.append(encode_events("local-0", 0, 1, 7, []))
    writer.close()
    path = list_parts(known.telemetry)[0][2]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    run = open_run(known.folder.root)
    for _ in range(2):
        found = [missing.what for missing in run.missing()]
        assert any("bytes of the block log" in what for what in found)
        assert "7 events of ranks" in found
        seal(known.folder.root, final=True)


def test_a_run_without_a_sample_has_nothing_and_misses_nothing(known):
    run = open_run(known.folder.root)
    assert (run.groups(), run.logged(), run.missing()) == ([], [], [])
    seal(known.folder.root, final=True)
    assert open_run(known.folder.root).missing() == []
