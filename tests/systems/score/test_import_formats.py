from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest

from cordee.core.errors import CordeeError, DocumentError, UsageError
from cordee.runs.folder import RunFolder
from cordee.systems.score.exchange.import_formats import import_files
from cordee.systems.score.exchange.write import onto_grid
from cordee.systems.score.load import load
from cordee.systems.score.score import score
from cordee.telemetry.node.recording import read_recorders
from cordee.telemetry.store.reader import Run, open_run

T0 = 1_790_000_000
H100 = "NVIDIA H100 80GB HBM3"
INT64_BLANK = 9223372036854775794


def gssr_json(path: Path, rank: int = 0, node: str = "nid001", gpus: dict[str, dict] | None = None, **more) -> Path:
    """One process' document as gssr 0.4 dumps it: GPU ids as text, samples without moments."""
    gpus = gpus or {
        str(rank): {
            "gpu_utilization": [100] * 20,
            "fb_total": [97871] * 20,
            "fb_used": [48000] * 20,
            "sm_active": [0.5 + at / 100 for at in range(20)],
            "tensor_active": [0.25] * 20,
            "dram_active": [0.125] * 20,
            "nvlink_tx_bytes": [5e9] * 20,
            "made_up_field": [1] * 20,
        }
    }
    metadata = {
        "job_id": 4242,
        "step_id": 0,
        "label": "llm_job_4242_step_0",
        "hostname": node,
        "proc_id": rank,
        "n_gpus": len(gpus),
        "gpu_ids": [int(gpu) for gpu in gpus],
        "start_time": float(T0),
        "end_time": T0 + 10.4,
        "elapsed": 10.4,
        "sampling_time": 500,
        "n_samples": 20,
        "cmd": "python train.py",
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"metadata": metadata, "data": gpus}))
    return path


FIELDS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_POWER_USAGE",
)
META = """{
    "gssr-record-version": "2.0",
    "date": "2026-09-21T14:13:20+0000",
    "cluster": "clariden",
    "jobid": "77",
    "jobname": "train",
    "nnodes": "2",
    "ntasks": "8",
    "ngpus": "4",
    "step_nnodes": "2",
    "step_ntasks": "8",
    "executable": "python",
    "arguments": "%s"
}

"""


def gssr_record_folder(root: Path, arguments: str = "'train.py' ", seconds: int = 30) -> Path:
    """What gssr-record 2 leaves: a table per node, the metadata of the first process beside it."""
    step = root / "clariden_77" / "step_0"
    step.mkdir(parents=True)
    (step / "proc_0.meta.txt").write_text(META % arguments)
    header = ["timestamp", "gpuId", *(f"{field}_{kind}" for field in FIELDS for kind in ("min", "avg", "max"))]
    for rank in (0, 4):
        lines = [",".join(header)]
        for second in range(1, seconds + 1):
            for gpu in range(2):
                nvlink = "0,0,0" if gpu == 0 else "900000000,1000000000,1200000000"
                cells = ["90,95,100", "40000,40000,40000", "50000,50000,50000", "600,600,600", "0.70,0.75,0.80"]
                cells += ["1000,2000,3000", nvlink, "0,450000,0", "440.00,445.00,460.00"]
                lines.append(f"{second},{gpu}," + ",".join(cells))
        (step / f"proc_{rank}.csv").write_text("\n".join(lines) + "\n")
    return root


def series(name: str, uuid: str, values, step: int = 15, **labels) -> dict:
    about = {"__name__": name, "UUID": uuid, "gpu": "0", "Hostname": "gpu-a", "modelName": H100, **labels}
    return {"metric": about, "values": [[T0 + step * at, str(value)] for at, value in enumerate(values)]}


def answer(path: Path, *result: dict) -> Path:
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(result)}}))
    return path


def imported(name: str, paths: list[Path], out: Path) -> Run:
    import_files(name, paths, out)
    return open_run(out)


def column(run: Run, group: str, metric: str) -> np.ndarray:
    return run.grid(group, [metric]).values[0]


def test_documents_of_gssr_become_a_recording_with_ranks_commands_and_what_was_left_out(tmp_path):
    for rank in (0, 1):
        gssr_json(tmp_path / "in" / f"llm_proc_{rank}.json", rank)
    run = imported("gssr", [tmp_path / "in"], tmp_path / "out")
    assert run.groups() == ["gpu-0.5s"]
    grid = run.grid("gpu-0.5s")
    assert grid.devices == ["nid001/gpu0", "nid001/gpu1"]
    assert np.isfinite(grid.values).all()
    assert column(run, "gpu-0.5s", "gpu_utilization_ratio").max() == 1
    assert column(run, "gpu-0.5s", "gpu_memory_total_bytes")[0, 0] == pytest.approx(97871 * 2**20)
    assert column(run, "gpu-0.5s", "gpu_sm_ratio").mean() == pytest.approx(0.595, abs=0.01)
    recorders, faults = read_recorders(RunFolder(tmp_path / "out"))
    assert faults == []
    assert (recorders[0].job, recorders[0].world_size, recorders[0].ranks[1].devices) == ("4242", 2, ["nid001/gpu1"])
    assert recorders[0].ranks[0].argv == ["python train.py"]
    assert any("made_up_field (40 values)" in remark for remark in recorders[0].remarks)
    facts = run.facts("gpu")["nid001"]
    assert facts["devices"]["nid001/gpu1"] == {"index": 1, "ranks": [1]}
    assert facts["missing"]["gpu_graphics_ratio"] == "gssr 0.4 (Python) did not record it"


def test_samples_of_gssr_that_came_late_leave_no_holes_and_uneven_lists_end_together(tmp_path):
    uneven = {"0": {"sm_active": [0.1] * 12 + [0.9] * 4, "dram_active": [0.3] * 12, "fp64_active": [None] * 16}}
    path = gssr_json(tmp_path / "a.json", gpus=uneven, end_time=T0 + 9.6)
    run = imported("gssr", [path], tmp_path / "out")
    assert np.isfinite(column(run, "gpu-0.5s", "gpu_sm_ratio")).all()
    dram = column(run, "gpu-0.5s", "gpu_dram_ratio")[:, 0]
    assert math.isnan(dram[0])
    assert dram[-1] == pytest.approx(0.3)
    assert np.isnan(column(run, "gpu-0.5s", "gpu_fp64_ratio")).all()
    assert any("aligned at their end" in remark for remark in run.facts("gpu")["nid001"]["remarks"])


def test_tables_of_gssr_record_keep_energy_and_never_take_a_cut_off_rate_for_zero(tmp_path):
    run = imported("gssr", [gssr_record_folder(tmp_path / "in")], tmp_path / "out")
    grid = run.grid("gpu")
    assert grid.devices == ["proc-0/gpu0", "proc-0/gpu1", "proc-4/gpu0", "proc-4/gpu1"]
    assert grid.times[0] == T0 + 1
    assert (column(run, "gpu", "gpu_power_watts") == 450).all()
    nvlink = column(run, "gpu", "gpu_nvlink_transmit_bytes_per_second")
    assert np.isnan(nvlink[:, 0]).all()
    assert (nvlink[:, 1] == 1e9).all()
    assert column(run, "gpu", "gpu_memory_total_bytes")[0, 0] == pytest.approx(90600 * 2**20)
    recorder = read_recorders(RunFolder(tmp_path / "out"))[0][0]
    assert (recorder.job, recorder.world_size) == ("77", 8)
    assert any(remark.startswith("60 byte rates of 0") for remark in recorder.remarks)


def test_nodes_whose_files_are_absent_are_told(tmp_path):
    folder = gssr_record_folder(tmp_path / "in")
    (folder / "clariden_77" / "step_0" / "proc_4.csv").unlink()
    import_files("gssr", [folder], tmp_path / "out")
    assert "there are files of 1 of the step's 2 nodes" in read_recorders(RunFolder(tmp_path / "out"))[0][0].remarks


def test_metadata_of_gssr_record_that_quote_badly_lose_no_sample(tmp_path):
    run = imported("gssr", [gssr_record_folder(tmp_path / "in", arguments="'-c' 'print(\"x\")' ")], tmp_path / "out")
    recorder = read_recorders(RunFolder(tmp_path / "out"))[0][0]
    assert recorder.job == "77"
    assert run.grid("gpu").times[0] == T0 + 1
    assert any("not whole JSON" in remark for remark in recorder.remarks)


def test_ranges_of_prometheus_become_gpus_by_uuid_with_units_and_counters_as_rates(tmp_path):
    path = answer(
        tmp_path / "range.json",
        series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU-a", [0.5] * 8),
        series("DCGM_FI_PROF_SM_ACTIVE", "GPU-a", [0.4] * 8),
        series("DCGM_FI_DEV_SM_CLOCK", "GPU-a", [1980] * 8),
        series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "GPU-a", [7e9 + 6e6 * at for at in range(8)]),
        series("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "GPU-a", [0, 0x20, 0x4, 0x24] * 2),
        series("DCGM_FI_DEV_GPU_TEMP", "GPU-a", [INT64_BLANK, *[60] * 7]),
        series("DCGM_FI_DEV_XID_ERRORS", "GPU-a", [0] * 8),
        series("up", "", [1] * 8),
        series("DCGM_FI_PROF_SM_ACTIVE", "GPU-b", [0.2] * 4, Hostname="gpu-b:9400", pod="train-0"),
    )
    run = imported("prometheus", [path], tmp_path / "out")
    assert run.groups() == ["gpu-15s"]
    grid = run.grid("gpu-15s")
    assert grid.devices == ["GPU-a", "GPU-b"]
    assert column(run, "gpu-15s", "gpu_clock_sm_hertz")[0, 0] == pytest.approx(1.98e9)
    assert column(run, "gpu-15s", "gpu_power_watts")[1:, 0] == pytest.approx(400)
    assert column(run, "gpu-15s", "gpu_throttle_thermal_ratio")[:4, 0].tolist() == [0, 1, 0, 1]
    assert column(run, "gpu-15s", "gpu_throttle_power_ratio")[:4, 0].tolist() == [0, 0, 1, 1]
    assert math.isnan(column(run, "gpu-15s", "gpu_temperature_celsius")[0, 0])
    assert np.isnan(column(run, "gpu-15s", "gpu_sm_ratio")[4:, 1]).all()
    assert run.facts("gpu")["gpu-a"]["devices"]["GPU-a"] == {"index": 0, "model": H100}
    assert list(run.facts("gpu")) == ["gpu-a", "gpu-b"]
    remarks = " ".join(run.facts("gpu")["gpu-a"]["remarks"])
    assert "DCGM_FI_DEV_XID_ERRORS (8 values), up (8 values)" in remarks


def test_instances_of_a_gpu_are_devices_of_their_own_and_the_whole_is_left_out(tmp_path):
    path = answer(
        tmp_path / "range.json",
        series("DCGM_FI_DEV_POWER_USAGE", "GPU-a", [300] * 4),
        *(
            series("DCGM_FI_PROF_SM_ACTIVE", "GPU-a", [0.5] * 4, GPU_I_ID=str(at), GPU_I_PROFILE="3g.40gb")
            for at in (1, 2)
        ),
        series("DCGM_FI_PROF_SM_ACTIVE", "GPU-b", [0.5] * 4, exported_pod="one"),
        series("DCGM_FI_PROF_DRAM_ACTIVE", "GPU-b", [0.5] * 4, exported_pod="two"),
    )
    run = imported("prometheus", [path], tmp_path / "out")
    assert run.grid("gpu-15s").devices == ["GPU-a/gi1", "GPU-a/gi2", "GPU-b"]
    devices = run.facts("gpu")["gpu-a"]["devices"]
    assert devices["GPU-a/gi1"]["parent"] == "GPU-a"
    assert devices["GPU-a/gi1"]["share"] == pytest.approx(3 / 7)
    assert devices["GPU-b"]["shared"] == "used by 2 pods or jobs in this time"
    assert any("as a whole" in remark for remark in run.facts("gpu")["gpu-a"]["remarks"])


def scrape_lines(at: int, timestamps: bool) -> list[str]:
    behind = f" {(T0 + at) * 1000}" if timestamps else ""
    labels = f'gpu="0",UUID="GPU-a",pci_bus_id="00000000:04:00.0",device="nvidia0",modelName="{H100}",Hostname="n\\"1"'
    return [
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).",
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
        f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {40 + at}{behind}",
        f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.5{behind}",
        f"DCGM_FI_PROF_DRAM_ACTIVE{{{labels}}} NaN{behind}",
        f"go_goroutines 12{behind}",
        "",
    ]


@pytest.mark.parametrize("timestamps", [True, False])
def test_scrapes_take_their_moments_from_the_values_or_from_a_line_before(tmp_path, timestamps):
    lines: list[str] = []
    for at in range(0, 20, 5):
        lines += [] if timestamps else [f"# time {T0 + at}.25"]
        lines += scrape_lines(at, timestamps)
    (tmp_path / "scrapes.txt").write_text("\n".join(lines))
    run = imported("dcgm-exporter", [tmp_path / "scrapes.txt"], tmp_path / "out")
    grid = run.grid("gpu-5s", ["gpu_utilization_ratio"])
    assert grid.times.tolist() == [T0, T0 + 5, T0 + 10, T0 + 15]
    assert grid.values[0, :, 0] == pytest.approx([0.4, 0.45, 0.5, 0.55])
    assert list(run.facts("gpu")) == ['n"1']
    assert np.isnan(column(run, "gpu-5s", "gpu_dram_ratio")).all()


def broken(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Files that are not what they should be, by name: the format, and what must be said."""
    whole = gssr_json(tmp_path / "whole.json").read_text()
    (tmp_path / "torn.json").write_text(whole[: len(whole) // 2])
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "pickle.json").write_bytes(b"\x80\x04pickle\xff")
    (tmp_path / "binary.json").write_bytes(b"text \xff")
    (tmp_path / "base.json").write_bytes(b"SQLite format 3\0 and more")
    (tmp_path / "torn.json.gz").write_bytes(gzip.compress(whole.encode())[:-9])
    (tmp_path / "other.json").write_text('{"loss": [1, 2]}')
    gssr_json(tmp_path / "old.json").write_text('{"metadata": {"slurm_job_id": 3}, "data": {}}')
    gssr_json(tmp_path / "words.json", gpus={"0": {"sm_active": [0.1, "high"]}})
    gssr_json(tmp_path / "none.json", gpus={"0": {"sm_active": []}})
    gssr_json(tmp_path / "nothing.json", gpus={"0": {"sm_active": [None]}})
    table = gssr_record_folder(tmp_path / "records") / "clariden_77" / "step_0" / "proc_0.csv"
    (tmp_path / "lonely.csv").write_text(table.read_text())
    (tmp_path / "records" / "clariden_77" / "step_0" / "proc_4.csv").write_text(table.read_text()[:-20])
    answer(tmp_path / "nobody.json", series("up", "", [1]))
    answer(tmp_path / "homeless.json", {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL"}, "values": [[1, "2"]]})
    answer(tmp_path / "nameless.json", {"metric": {"UUID": "GPU-a"}, "values": [[1, "2"]]})
    answer(tmp_path / "shapeless.json", {"metric": {"UUID": "GPU-a"}, "value": [1, "2"]})
    (tmp_path / "refused.json").write_text('{"status": "error", "errorType": "bad_data", "error": "exceeded 11,000"}')
    (tmp_path / "vector.json").write_text('{"status": "success", "data": {"resultType": "vector", "result": []}}')
    (tmp_path / "timeless.txt").write_text("\n".join(scrape_lines(0, timestamps=False)))
    (tmp_path / "prose.txt").write_text("# time 1790000000\nnot a sample at all {\n")
    (tmp_path / "local.txt").write_text("# time 2026-02-11T10:00:00\n")
    return {
        "torn.json": ("gssr", "torn.json:1: the JSON ends too early: the file is torn"),
        "empty.json": ("gssr", "the file is empty"),
        "pickle.json": ("gssr", "never opened"),
        "binary.json": ("gssr", "binary.json:1: is not UTF-8"),
        "base.json": ("gssr", "a data base"),
        "torn.json.gz": ("gssr", "the file is torn"),
        "other.json": ("gssr", "this is no recording of gssr"),
        "old.json": ("gssr", "of another version of gssr"),
        "words.json": ("gssr", "a sample of sm_active is no number"),
        "none.json": ("gssr", "not one sample"),
        "nothing.json": ("gssr", "not one sample"),
        "lonely.csv": ("gssr", "nothing says when this recording began"),
        "records": ("gssr", "proc_4.csv:61: this row has another number of columns"),
        "nobody.json": ("prometheus", "no series in these files is of a GPU"),
        "homeless.json": ("prometheus", "names no GPU"),
        "nameless.json": ("prometheus", "without rate()"),
        "shapeless.json": ("prometheus", "a series has another shape"),
        "refused.json": ("prometheus", "exceeded 11,000"),
        "vector.json": ("prometheus", "query_range"),
        "whole.json": ("prometheus", "this is no answer of Prometheus"),
        "timeless.txt": ("dcgm-exporter", "timeless.txt:3: nothing says when this was scraped"),
        "prose.txt": ("dcgm-exporter", "prose.txt:2: this line is no sample"),
        "local.txt": ("dcgm-exporter", "local.txt:1: this is no moment"),
        "absent": ("gssr", "there is no such file"),
    }


def test_what_is_none_of_these_is_refused_with_its_line_and_leaves_nothing(tmp_path):
    for name, (of_format, words) in broken(tmp_path).items():
        before = sorted(tmp_path.iterdir())
        with pytest.raises(CordeeError) as raised:
            import_files(of_format, [tmp_path / name], tmp_path / "out")
        assert words in str(raised.value), name
        assert raised.value.exit_code == 2
        assert sorted(tmp_path.iterdir()) == before, name


def test_values_that_cannot_be_are_missing_and_counted(tmp_path):
    path = answer(
        tmp_path / "range.json",
        series("DCGM_FI_PROF_SM_ACTIVE", "GPU-a", [0.5, 1.01, 55, -1, "NaN", "+Inf"]),
        series("DCGM_FI_DEV_POWER_USAGE", "GPU-a", [300, "Inf", -5, 300, 300, 300]),
    )
    run = imported("prometheus", [path], tmp_path / "out")
    sm = column(run, "gpu-15s", "gpu_sm_ratio")[:, 0]
    assert sm[:2].tolist() == [0.5, 1.0]
    assert np.isnan(sm[2:]).all()
    assert np.isnan(column(run, "gpu-15s", "gpu_power_watts")[1:3, 0]).all()
    remarks = run.facts("gpu")["gpu-a"]["remarks"]
    assert "2 values of gpu_sm_ratio were left out: no ratio can be that" in remarks


def test_moments_in_milliseconds_or_years_apart_are_refused(tmp_path):
    apart = series("DCGM_FI_PROF_SM_ACTIVE", "GPU-a", [0.5, 0.5], step=500 * 86400)
    late = {"metric": apart["metric"], "values": [[T0 * 1000, "0.5"], [T0 * 1000 + 15, "0.5"]]}
    for name, result in (("apart", apart), ("late", late)):
        with pytest.raises(DocumentError, match="moments of these samples"):
            import_files("prometheus", [answer(tmp_path / f"{name}.json", result)], tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(CordeeError, match="could not be written"):
        import_files("gssr", [gssr_json(tmp_path / "a.json")], tmp_path / "file" / "out")


def test_a_compressed_file_is_unpacked(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(gssr_json(tmp_path / "a.json").read_bytes()))
    assert imported("gssr", [tmp_path / "a.json.gz"], tmp_path / "out").groups() == ["gpu-0.5s"]


def test_files_of_two_jobs_or_two_generations_are_refused(tmp_path):
    gssr_json(tmp_path / "in" / "a.json")
    gssr_json(tmp_path / "in" / "b.json", rank=1, job_id=4243)
    with pytest.raises(DocumentError, match="several jobs"):
        import_files("gssr", [tmp_path / "in"], tmp_path / "out")
    gssr_record_folder(tmp_path / "in" / "c")
    with pytest.raises(DocumentError, match="both generations"):
        import_files("gssr", [tmp_path / "in"], tmp_path / "out")


def test_a_recording_that_is_there_is_never_written_over(tmp_path):
    path = gssr_json(tmp_path / "a.json")
    import_files("gssr", [path], tmp_path / "out")
    with pytest.raises(UsageError, match="already"):
        import_files("gssr", [path], tmp_path / "out")


def test_only_what_came_a_little_late_is_bridged():
    times, values = np.array([10.0, 11.2, 12.9, 17.0]), np.array([1.0, 2.0, 3.0, 4.0])
    found = onto_grid(times, values, 1.0, 9, 20).tolist()
    assert found[1:5] == [1.0, 2.0, 2.0, 3.0]
    assert [math.isnan(value) for value in found] == [True, *[False] * 4, *[True] * 3, False, True, True]


def test_what_was_imported_is_scored_and_diagnosed(tmp_path):
    shares = {"GR_ENGINE": 0.98, "SM": 0.95, "PIPE_TENSOR": 0.8, "DRAM": 0.3}
    shares |= {"PIPE_FP64": 0.0, "PIPE_FP32": 0.1, "PIPE_FP16": 0.0}
    wanted = [series(f"DCGM_FI_PROF_{field}_ACTIVE", "GPU-a", [share] * 40) for field, share in shares.items()]
    import_files("prometheus", [answer(tmp_path / "range.json", *wanted)], tmp_path / "out")
    found = score(load(tmp_path / "out"))
    assert (found.shares.time, found.source) == (pytest.approx(0.98), "dcgm")
    assert found.shares.breadth == pytest.approx(0.95 / 0.98)
    assert found.diagnosis[0].name == "compute"
