"""Speed and correctness of devices, measured for real on this machine's CPU; faults come from interpreters that have one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cordee.job.submit.bundle import write_node_zip
from cordee.machine.gpus.presence import gpus_told_by
from cordee.systems.vetting.node.checks import run_checks
from cordee.systems.vetting.node.checks._base import CannotTest, Context
from cordee.systems.vetting.node.checks.compute import label, wants_gpu
from cordee.systems.vetting.node.checks.gpu.gemm import GemmCheck
from support.hosts.interpreters import write_interpreter
from support.nvml import FakeGpus

RUNNER = "from cordee.systems.vetting.node.checks.__main__ import main; main()"
QUICK: dict[str, dict[str, Any]] = {
    "gpu.gemm": {"device": "cpu", "seconds": 0.05, "size": 256},
    "gpu.memory_bandwidth": {"device": "cpu", "seconds": 0.05, "size": 1 << 22},
    "gpu.allreduce": {"device": "cpu", "seconds": 0.05, "payload": 1 << 18},
    "gpu.cuda": {"device": "cpu", "count": 1000},
}


def one(check: str, parameters: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    (result,) = run_checks({"checks": [{"check": check, "parameters": parameters or {}}], "deadline_s": 60, **request})
    assert json.loads(json.dumps(result)) == result
    return result


def with_this_python() -> dict[str, str]:
    """Return an environment whose `python3` is the one that runs the tests: it has torch."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def with_fault(folder: Path, fault: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{write_interpreter(folder / 'bin', fault)}{os.pathsep}{os.environ['PATH']}"}


def has(command_line: bytes) -> list[str]:
    """Return the living processes whose command line holds this."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and command_line in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("check", ["gpu.gemm", "gpu.memory_bandwidth", "gpu.allreduce"])
def test_the_cpu_is_measured_and_held_against_the_peers(check: str) -> None:
    result = one(check, QUICK[check])
    assert result["status"] == "pass", result
    assert result["value"] > 0
    assert result["compare"][0]["kind"] == "low"
    assert result["facts"]["cpu"]["wrong"] == 0
    assert result["facts"]["cpu"]["windows"] >= 3
    assert "devices" not in result["facts"]
    assert result["facts"]["python"].endswith("python3")


@pytest.mark.parametrize(
    ("check", "limit", "unit"),
    [
        ("gpu.gemm", {"min_tflops": 1e9}, "TFLOP/s"),
        ("gpu.memory_bandwidth", {"min_bandwidth": 1e18}, "bytes/s"),
        ("gpu.allreduce", {"min_bandwidth": 1e18}, "bytes/s"),
    ],
)
def test_a_speed_below_an_absolute_limit_fails_with_both_numbers(check: str, limit: dict[str, Any], unit: str) -> None:
    result = one(check, {**QUICK[check], **limit})
    assert (result["status"], result["unit"]) == ("fail", unit)
    assert result["value"] < result["threshold"] == result["reference"]["value"] == next(iter(limit.values()))
    assert "CPU: " in result["evidence"]
    assert "are asked for" in result["evidence"]
    assert result["compare"] == [] or result["compare"][0]["kind"] == "same"


def test_every_engine_gets_the_same_product_to_the_bit() -> None:
    by_engine = {
        engine: one("gpu.gemm", {"device": "cpu", "engine": engine, "size": 40, "seconds": 0.02})
        for engine in ("numpy", "python")
    }
    assert {result["status"] for result in by_engine.values()} == {"pass"}
    assert by_engine["numpy"]["facts"]["checksum_40"] == by_engine["python"]["facts"]["checksum_40"]
    assert by_engine["python"]["facts"]["source"] == "python"


def test_a_device_with_wrong_bits_fails_without_peers_and_shows_its_checksum_to_them(tmp_path: Path) -> None:
    right = one("gpu.gemm", QUICK["gpu.gemm"])
    result = one("gpu.gemm", QUICK["gpu.gemm"], env=with_fault(tmp_path, "wrong_bits"))
    assert result["status"] == "fail"
    facts = result["facts"]["cpu"]
    assert 0 < facts["wrong"] < facts["products"]
    assert f"{facts['wrong']} of {facts['products']} products have wrong bits" in result["evidence"]
    (same,) = [compare for compare in result["compare"] if compare["kind"] == "same"]
    assert result["facts"][same["of"]] != right["facts"][same["of"]]


def test_without_numpy_plain_python_multiplies_and_says_so(tmp_path: Path) -> None:
    result = one("gpu.gemm", {"device": "cpu", "seconds": 0.02}, env=with_fault(tmp_path, "no_numpy"))
    assert (result["status"], result["facts"]["source"]) == ("pass", "python")
    asked = one("gpu.gemm", {"device": "cpu", "engine": "numpy"}, env=with_fault(tmp_path, "no_numpy"))
    assert (asked["status"], asked["cause"]) == ("unknown", "absent")
    assert "numpy cannot be imported" in asked["evidence"]


def test_a_missing_torch_is_unknown_with_the_interpreter_and_what_to_do(tmp_path: Path) -> None:
    result = one("gpu.gemm", {"device": "cpu", "engine": "torch"}, env=with_fault(tmp_path, "no_torch"))
    assert (result["status"], result["cause"]) == ("unknown", "absent")
    assert f"torch cannot be imported by {sys.executable}: ModuleNotFoundError" in result["evidence"]
    assert "`cordee vet prepare`" in result["evidence"]


def test_a_node_without_gpus_is_unknown_when_gpus_are_asked_for_and_skipped_when_only_gpus_matter() -> None:
    for check in ("gpu.gemm", "gpu.memory_bandwidth", "gpu.copy", "gpu.allreduce", "gpu.cuda"):
        result = one(check, {"device": "gpu"})
        assert (result["status"], result["cause"]) == ("unknown", "absent"), check
        assert "no GPU that the ranks may see" in result["evidence"]
    assert one("gpu.cuda")["status"] == "unknown"
    assert one("gpu.cuda", {"device": "auto"})["status"] == "skip"
    assert one("gpu.copy")["status"] == "skip"


def test_a_small_computation_is_compared_element_by_element(tmp_path: Path) -> None:
    result = one("gpu.cuda", QUICK["gpu.cuda"])
    assert (result["status"], result["value"], result["threshold"]) == ("pass", 0, 0)
    missing = one("gpu.cuda", {**QUICK["gpu.cuda"], "cuda_home": str(tmp_path)})
    assert (missing["status"], missing["cause"]) == ("unknown", "absent")
    assert "holds neither libcudart nor libnvrtc" in missing["evidence"]
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libcudart.so.12").write_text("no library")
    broken = one("gpu.cuda", {**QUICK["gpu.cuda"], "cuda_home": str(tmp_path)})
    assert (broken["status"], broken["cause"]) == ("unknown", "error")
    assert "libcudart.so.12 cannot be loaded" in broken["evidence"]


@pytest.mark.parametrize("name", ["nvidia0", "nvidia15", "kfd"])
def test_gpus_are_told_by_their_device_files(name: str, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert gpus_told_by(str(tmp_path), {}) is None
    (tmp_path / "dev" / name).touch()
    assert gpus_told_by(str(tmp_path), {}) == f"/dev/{name}"
    assert gpus_told_by(str(tmp_path), {"CUDA_VISIBLE_DEVICES": "0,1"}) == f"/dev/{name}"
    assert wants_gpu("auto", Context(root=str(tmp_path)))
    assert not wants_gpu("cpu", Context(root=str(tmp_path)))
    hidden = Context(root=str(tmp_path), env={"CUDA_VISIBLE_DEVICES": ""})
    assert not wants_gpu("auto", hidden)
    with pytest.raises(CannotTest):
        wants_gpu("gpu", hidden)


def test_of_many_gpus_the_slowest_counts_and_the_faulty_ones_are_named() -> None:
    def lane(index: int, tflops: float, wrong: int = 0) -> dict[str, Any]:
        rates = {"median": tflops * 1e12, "best": tflops * 1e12, "worst": tflops * 1e12, "windows": 9}
        checks = {"products": 10, "wrong": wrong, "checksum": "aa" if wrong else "bb"}
        return {"device": index, "uuid": f"GPU-{index}", "model": "H200", **rates, **checks}

    done = {"engine": "torch", "dtype": "bf16", "size": 8192, "checked_size": 4096, "expected": "bb"}
    judge = GemmCheck().judge
    good = judge({**done, "lanes": [lane(0, 700.0), lane(1, 650.0)]}, {}, True)
    assert (good.status, good.value) == ("pass", 650.0)
    assert good.evidence == "GPU 0 (GPU-0) 700 TFLOP/s, GPU 1 (GPU-1) 650 TFLOP/s"
    assert [entry["uuid"] for entry in good.facts["devices"]] == ["GPU-0", "GPU-1"]
    assert good.compare[0]["ratio"] == 0.93
    bad = judge({**done, "lanes": [lane(0, 700.0), lane(1, 650.0, wrong=2)]}, {"min_tflops": 680.0}, True)
    assert bad.status == "fail"
    assert "GPU 1 (GPU-1): 2 of 10 products have wrong bits" in bad.evidence
    assert "GPU 1 (GPU-1): 650 TFLOP/s, at least 680 TFLOP/s are asked for" in bad.evidence
    assert "GPU 0" not in bad.evidence
    assert bad.facts["checksum_4096"] == "aa"


def test_a_device_is_named_by_index_and_uuid() -> None:
    assert label({"device": 3, "uuid": "GPU-ab", "model": "H200"}) == "GPU 3 (GPU-ab)"
    assert label({"device": 3, "uuid": None, "model": "MI300X"}) == "GPU 3 (MI300X)"


@pytest.mark.parametrize(
    ("fault", "status", "cause", "words"),
    [
        ("crash", "unknown", "error", "was ended by SIGSEGV"),
        ("killed", "unknown", "error", "was ended by SIGKILL"),
        ("exit", "unknown", "error", "ended with exit code 7 and no result: libfancy.so: version mismatch"),
    ],
)
def test_an_interpreter_that_dies_is_named_with_its_last_words(
    fault: str, status: str, cause: str | None, words: str, tmp_path: Path
) -> None:
    result = one("gpu.gemm", QUICK["gpu.gemm"], env=with_fault(tmp_path, fault))
    assert (result["status"], result["cause"]) == (status, cause)
    assert words in result["evidence"]
    assert str(tmp_path / "bin" / "python3") in result["evidence"]


def test_a_program_that_hangs_is_unknown_and_nothing_of_it_stays(tmp_path: Path) -> None:
    result = one("gpu.gemm", QUICK["gpu.gemm"], env=with_fault(tmp_path, "hang"), deadline_s=1.0)
    assert (result["status"], result["cause"]) == ("unknown", "timeout")
    assert "did not end within" in result["evidence"]
    _gone(str(tmp_path).encode())


def _gone(command_line: bytes) -> None:
    until = time.monotonic() + 60
    while has(command_line):
        assert time.monotonic() < until, has(command_line)
        time.sleep(0.01)


def test_a_program_that_is_stuck_says_where(tmp_path: Path) -> None:
    stuck = (
        "import array, time\ndef wait_for_ever(*words):\n    while True: time.sleep(600)\narray.array = wait_for_ever\n"
    )
    env = with_fault(tmp_path, stuck)
    for deadline_s in (5.0, 20.0, 80.0):  # it may take a busy machine a while to get there
        result = one("gpu.cuda", {"device": "cpu"}, env=env, deadline_s=deadline_s)
        assert (result["status"], result["cause"]) == ("unknown", "timeout")
        if "while at CPU" in result["evidence"]:
            break
    assert "while at CPU; it was at: File" in result["evidence"]
    assert any("wait_for_ever" in frame for frame in result["facts"]["stack"])


def test_a_program_dies_with_the_process_that_asked(tmp_path: Path) -> None:
    stuck = (
        f"import time\nprint({str(tmp_path)!r})\n"
        + "import array\ndef hold(*w):\n    while True: time.sleep(600)\narray.array = hold\n"
    )
    env = with_fault(tmp_path, stuck)
    asked = tmp_path / "asked"
    program = (
        "import sys, json; from cordee.systems.vetting.node.checks._base import Context; from cordee.systems.vetting.node.checks.gpu.cuda import CudaCheck\n"
        f"open({str(asked)!r}, 'w').close()\n"
        f"CudaCheck().run({{'device': 'cpu', 'count': 10}}, Context(env=json.loads(sys.argv[1]), deadline_s=500))"
    )
    marked = {**env, "CORDEE_TEST_MARK": str(tmp_path)}
    asker = subprocess.Popen([sys.executable, "-c", program, json.dumps(marked)])

    def programs() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                mine = (
                    entry.name.isdigit()
                    and f"CORDEE_TEST_MARK={tmp_path}\0".encode() in (entry / "environ").read_bytes()
                )
                if mine and "wait" not in (entry / "comm").read_text() and b"saxpy" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    until = time.monotonic() + 120
    while not (programs() and b"S" in _state(programs()[0])):
        assert time.monotonic() < until
        time.sleep(0.01)
    asker.kill()
    asker.wait()
    while programs():
        assert time.monotonic() < until
        time.sleep(0.01)


def _state(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return b""


def test_no_python_on_the_path_is_unknown(tmp_path: Path) -> None:
    result = one("gpu.gemm", QUICK["gpu.gemm"], env={"PATH": str(tmp_path)})
    assert (result["status"], result["cause"]) == ("unknown", "absent")
    gone = one("gpu.gemm", QUICK["gpu.gemm"], python=str(tmp_path / "python"))
    assert (gone["status"], gone["cause"]) == ("unknown", "absent")
    assert "`cordee vet prepare`" in gone["evidence"]


def test_modules_beside_the_ranks_do_not_hide_the_library(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit(9)\n")
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    assert one("gpu.gemm", QUICK["gpu.gemm"], workdir=str(tmp_path))["status"] == "pass"


@pytest.mark.usefixtures("real")
def test_torch_on_the_cpu_goes_the_way_of_the_gpus() -> None:
    numpy = one("gpu.gemm", {"device": "cpu", "size": 512, "seconds": 0.05})
    for dtype in ("fp32", "bf16"):
        result = one(
            "gpu.gemm",
            {"device": "cpu", "engine": "torch", "dtype": dtype, "size": 512, "seconds": 0.05},
            env=with_this_python(),
        )
        assert result["status"] == "pass", result
        assert (result["facts"]["source"], result["facts"]["dtype"]) == ("torch", dtype)
        assert result["facts"]["checksum_512"] == numpy["facts"]["checksum_512"]
    copied = one("gpu.copy", {"device": "cpu", "size": 1 << 20, "seconds": 0.05}, env=with_this_python())
    assert copied["status"] == "pass", copied
    assert copied["facts"]["cpu"]["wrong"] == 0


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_torch_sums_over_processes_with_gloo() -> None:
    result = one(
        "gpu.allreduce",
        {"engine": "gloo", "ranks": 3, "payload": 1 << 18, "seconds": 0.05, "device": "cpu"},
        env=with_this_python(),
    )
    assert result["status"] == "pass", result
    assert [lane["wrong"] for lane in result["facts"]["cpu"]] == [0, 0, 0]
    assert result["facts"]["source"] == "gloo"


@pytest.mark.usefixtures("real")
def test_a_rank_that_dies_in_a_sum_is_named_and_does_not_hold_up_the_others(tmp_path: Path) -> None:
    fault = "import sys, os\nif 'allreduce_rank' in ' '.join(sys.orig_argv):\n    os.set_inheritable(0, True)\n" + (
        "    import json\n    words = sys.stdin.read()\n    json.loads(words)['rank'] == 1 and os._exit(9)\n"
        "    import io\n    sys.stdin = io.StringIO(words)\n"
    )
    result = one("gpu.allreduce", {"engine": "gloo", "device": "cpu"}, env=with_fault(tmp_path, fault))
    assert result["status"] == "unknown"
    assert "the process of CPU process 1: ended with 9" in result["evidence"]


def test_a_program_is_started_from_the_zip_of_a_run_as_well(tmp_path: Path) -> None:
    bundle = tmp_path / "node.zip"
    write_node_zip(bundle)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(bundle)!r}); {RUNNER}"],
        input=json.dumps({"checks": [{"check": "gpu.gemm", "parameters": QUICK["gpu.gemm"]}], "deadline_s": 60}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["status"] == "pass", done.stdout


def test_an_interpreter_that_is_too_old_is_unknown_with_its_version(tmp_path: Path) -> None:
    old = "import sys\nsys.version_info = (3, 8, 18)\n"
    result = one("gpu.gemm", QUICK["gpu.gemm"], env=with_fault(tmp_path, old))
    assert (result["status"], result["cause"]) == ("unknown", "absent")
    assert "is Python 3.8; 3.9 or newer is needed" in result["evidence"]


def test_gpus_are_told_by_nvml_where_no_device_file_is_seen(tmp_path: Path) -> None:
    gpus = FakeGpus(tmp_path, count=2)
    program = "import sys; from cordee.machine.gpus.presence import gpus_told_by; print(gpus_told_by(sys.argv[1], {}))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, **gpus.env},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "NVML, which counts 2"
