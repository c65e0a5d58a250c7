"""Checks of processors, software, clock, memory and processes, on fixture trees and on this machine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cordee.machine.clock import read_clock
from cordee.machine.machine import count_list
from cordee.systems.vetting.node import checks
from cordee.systems.vetting.node.checks import run_checks
from cordee.systems.vetting.node.checks.host import processes
from support.hosts.host_tree import HostTree

SOURCE = str(Path(checks.__file__).parents[5])


def one(
    check: str, root: Path | str = "/", deadline_s: float = 20, env: dict[str, str] | None = None, **parameters: Any
) -> Any:
    request = {"checks": [{"check": check, "parameters": parameters}], "deadline_s": deadline_s, "root": str(root)}
    (result,) = run_checks({**request, "env": env or {"PATH": os.environ["PATH"]}})
    assert result["evidence"]
    assert json.loads(json.dumps(result)) == result
    return result


def compared(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the peers are asked about, with this node's values."""
    return {entry["of"]: result["facts"][entry["of"]] for entry in result["compare"] if entry["kind"] == "same"}


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path / "host")


def test_the_inventory_counts_what_the_kernel_shows(host: HostTree) -> None:
    host.infiniband("mlx5_0")
    host.interface("hsn0")
    host.interface("enxb03af2b6059f")
    result = one("host.inventory", host.root)
    assert result["status"] == "pass"
    assert compared(result) == {
        "sockets": 2,
        "cores": 8,
        "threads": 8,
        "numa_nodes": 2,
        "cpu_model": "AMD EPYC 7713 64-Core Processor",
        "nics": "enx* hsn0 mlx5_0",
    }
    assert {"kind": "low", "of": "memory_gib", "ratio": 0.95, "margin": None, "status": "fail"} in result["compare"]


def test_an_inventory_that_is_not_as_expected_names_each_difference(host: HostTree) -> None:
    host.processors(sockets=1)
    result = one(
        "host.inventory",
        host.root,
        sockets=2,
        cores=4,
        cpu_model="Xeon",
        min_memory=1 << 40,
        nics=["mlx5_0"],
        numa_nodes=4,
    )
    assert result["status"] == "fail"
    for words in (
        "1 sockets, 2 expected",
        "2 numa nodes, 4 expected",
        "AMD EPYC 7713 64-Core Processor, Xeon expected",
        "269 GB memory, 1.1 TB expected",
        "no network device mlx5_0",
    ):
        assert words in result["evidence"]
    assert "cores" not in compared(result)
    assert "threads" in compared(result)


def test_a_host_that_shows_no_processor_is_unknown(tmp_path: Path) -> None:
    result = one("host.inventory", tmp_path)
    assert (result["status"], result["cause"]) == ("unknown", "closed")


def test_the_inventory_of_this_machine_has_as_many_threads_as_python_sees() -> None:
    result = one("host.inventory")
    assert (result["status"], result["value"]) == ("pass", os.cpu_count())
    assert result["facts"]["memory_gib"] > 0.1


@pytest.mark.parametrize(
    ("content", "numbers"), [("0-3,8", [0, 1, 2, 3, 8]), ("5", [5]), ("", []), ("a-b", []), ("0-", [0])]
)
def test_lists_of_the_kernel_are_read(content: str, numbers: list[int]) -> None:
    assert count_list(content) == numbers


def test_the_fingerprint_names_drivers_and_libraries_without_loading_them(host: HostTree, tmp_path: Path) -> None:
    host.write("usr/local/cuda/version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}')
    (host.root / "usr/lib64").mkdir(parents=True)
    (host.root / "usr/lib64/libnccl.so.2.21.5").touch()
    (host.root / "usr/lib64/libnccl.so.2").symlink_to("libnccl.so.2.21.5")
    ours = tmp_path / "lib"
    ours.mkdir()
    (ours / "libnccl-net-ofi.so").touch()
    host.write("sys/module/amdgpu/version", "6.7.0")
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(ours), "NCCL_DEBUG": "INFO"}
    (result,) = run_checks(
        {
            "checks": [{"check": "host.fingerprint", "parameters": {"env": ["NCCL_DEBUG", "NCCL_ALGO"]}}],
            "root": str(host.root),
            "env": env,
        }
    )
    facts = result["facts"]
    assert facts["kernel"] == "5.14.0-427.13.1.el9_4.x86_64"
    assert facts["system"] == "Rocky Linux 9.4 (Blue Onyx)"
    assert (facts["nvidia_driver"], facts["amd_driver"], facts["cuda"]) == ("550.54.15", "6.7.0", "12.4.1")
    assert (facts["nccl"], facts["net_plugin"], facts["libfabric"]) == ("2.21.5", "libnccl-net-ofi.so", "none")
    assert (facts["microcode"], facts["huge_pages"], facts["governor"]) == ("0xa0011d5", "always", "performance")
    assert (facts["env NCCL_DEBUG"], facts["env NCCL_ALGO"]) == ("INFO", "not set")
    assert compared(result) == {name: value for name, value in facts.items() if name != "python path"}
    assert {entry["of"]: entry["status"] for entry in result["compare"]}["governor"] == "warn"


def test_a_fact_can_be_demanded_or_left_out(host: HostTree) -> None:
    result = one(
        "host.fingerprint", host.root, expected={"nvidia_driver": "560.1", "cuda": "none"}, ignore=["governor"]
    )
    assert result["status"] == "fail"
    assert result["evidence"] == "nvidia_driver is 550.54.15, 560.1 expected"
    assert not {"nvidia_driver", "cuda", "governor"} & set(compared(result))


def test_the_fingerprint_has_the_packages_of_the_ranks_python(host: HostTree, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    for name in ("torch-2.7.0+cu126", "nvidia_nccl_cu12-2.26.2", "unrelated-1.0"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages)}
    facts = one("host.fingerprint", host.root, env=env)["facts"]
    assert (facts["python torch"], facts["python nvidia_nccl_cu12"]) == ("2.7.0+cu126", "2.26.2")
    assert "python unrelated" not in facts
    assert facts["python"].startswith(".".join(map(str, sys.version_info[:3])))


def test_the_same_python_at_another_path_on_each_node_is_the_same(host: HostTree, tmp_path: Path) -> None:
    found = []
    for node in ("n1", "n2"):
        venv = tmp_path / node / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(venv)], check=True)
        found.append(one("host.fingerprint", host.root, python=str(venv / "bin/python")))
    assert found[0]["facts"]["python path"] != found[1]["facts"]["python path"]
    assert compared(found[0]) == compared(found[1])
    assert all(found[0]["facts"][name] == found[1]["facts"][name] for name in compared(found[0]))


@pytest.mark.parametrize(("body", "words"), [("exit 3", "cannot be started"), ("exec sleep 60", "does not answer")])
def test_a_python_that_does_not_start_is_a_fact(host: HostTree, tmp_path: Path, body: str, words: str) -> None:
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    result = one("host.fingerprint", host.root, env=env, deadline_s=0.6 if "sleep" in body else 20)
    if result["status"] == "unknown":  # the check's own deadline came first
        assert result["cause"] == "timeout"
    else:
        assert result["facts"]["python"] == words
        assert result["facts"]["python path"] == str(python)


def test_the_fingerprint_of_this_machine_has_its_kernel() -> None:
    result = one("host.fingerprint")
    assert result["status"] == "pass"
    assert result["facts"]["kernel"] == os.uname().release
    assert result["facts"]["glibc"]


@pytest.mark.parametrize(
    ("leap", "said", "status", "words"),
    [
        ("Normal", "0.000012 seconds slow", "pass", "0.012 ms behind its time server, says chrony"),
        ("Normal", "0.400000 seconds fast", "fail", "400 ms ahead of its time server"),
        ("Not synchronised", "0.000000 seconds fast", "warn", "no time server keeps the clock right"),
    ],
)
def test_chrony_is_believed_where_it_answers(tmp_path: Path, leap: str, said: str, status: str, words: str) -> None:
    chronyc(tmp_path, f"echo 'System time     : {said} of NTP time'; echo 'Leap status     : {leap}'")
    result = one("host.clock", env={"PATH": str(tmp_path)})
    assert result["status"] == status
    assert words in result["evidence"]


def test_a_clock_that_nobody_keeps_can_be_made_a_failure(tmp_path: Path) -> None:
    chronyc(tmp_path, "echo 'Leap status : Not synchronised'")
    assert one("host.clock", env={"PATH": str(tmp_path)}, synchronized=True)["status"] == "fail"


def test_a_chrony_that_does_not_answer_leaves_the_word_to_the_kernel(tmp_path: Path) -> None:
    chronyc(tmp_path, "echo '506 Cannot talk to daemon'; exit 1")
    clock = read_clock(str(tmp_path))
    assert clock is not None
    assert clock.source == "the kernel"


def chronyc(folder: Path, body: str) -> None:
    script = folder / "chronyc"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def test_healthy_memory_modules_pass(host: HostTree) -> None:
    result = one("host.edac", host.root)
    assert (result["status"], result["value"]) == ("pass", 0)
    assert [module["place"] for module in result["facts"]["modules"]][:2] == [
        "mc0 dimm0 (P0_DIMM_A1)",
        "mc0 dimm1 (P0_DIMM_B1)",
    ]


def test_an_uncorrected_error_names_the_memory_module(host: HostTree) -> None:
    host.memory_module("mc1", 2, uncorrected=2)
    result = one("host.edac", host.root)
    assert (result["status"], result["value"]) == ("fail", 2)
    assert result["evidence"] == "mc1 dimm2 (P0_DIMM_C1): 2 uncorrected errors"


def test_errors_that_no_module_is_known_for_are_counted_once(host: HostTree) -> None:
    host.write("sys/devices/system/edac/mc/mc0/ue_count", "1")
    assert one("host.edac", host.root)["evidence"] == "mc0, module unknown: 1 uncorrected errors"


def test_many_corrected_errors_broken_pages_and_machine_checks_warn(host: HostTree) -> None:
    host.memory_module("mc0", 1, corrected=5000)
    host.memory(corrupted_kb=4)
    host.write("proc/interrupts", "           CPU0       CPU1\nMCE:          1          0   Machine check exceptions")
    result = one("host.edac", host.root)
    assert result["status"] == "warn"
    assert "mc0 dimm1 (P0_DIMM_B1): 5000 corrected errors" in result["evidence"]
    assert "4.1 kB of broken memory" in result["evidence"]
    assert "1 machine check exceptions" in result["evidence"]


def test_a_kernel_that_counts_no_memory_errors_is_unknown_not_healthy(tmp_path: Path) -> None:
    result = one("host.edac", tmp_path)
    assert (result["status"], result["cause"]) == ("unknown", "absent")


def test_a_process_in_state_d_is_named_with_where_it_waits(host: HostTree) -> None:
    host.process(4711, "my) rank", state="D", user=1234, place="nfs_wait_bit_killable")
    result = one("host.processes", host.root, stuck=0.3)
    assert (result["status"], result["value"]) == ("fail", 1)
    assert (
        "my) rank (pid 4711, user 1234) has been stuck in the kernel (state D) in nfs_wait_bit_killable"
        in result["evidence"]
    )
    assert one("host.processes", host.root, stuck=0.3, ignore=["my) rank"])["status"] == "pass"


def test_a_process_that_runs_between_two_waits_is_not_stuck(host: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    host.process(4711, "writer", state="D")
    monkeypatch.setattr(processes, "sleep", lambda seconds: host.process(4711, "writer", state="D", switches=6))
    assert one("host.processes", host.root)["status"] == "pass"


def test_busy_processes_of_other_people_warn(host: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seconds: float, ticks: int = 1000) -> None:
        host.process(4712, "mine", state="R", user=4000, ticks=ticks)
        host.process(4713, "systemd-journal", state="R", user=0, ticks=ticks)

    run(0.0, ticks=0)
    monkeypatch.setattr(processes, "sleep", run)
    result = one("host.processes", host.root)
    assert result["status"] == "warn"
    assert "mine (pid 4712, user 4000)" in result["evidence"]
    assert "journal" not in result["evidence"]


def test_dead_processes_that_nobody_collects_warn(host: HostTree) -> None:
    for pid in range(2, 6):
        host.process(pid, "gone", state="Z")
    assert one("host.processes", host.root, max_zombies=3)["status"] == "warn"
    assert one("host.processes", host.root, max_zombies=4)["status"] == "pass"


def test_processes_that_are_hidden_from_us_are_unknown(host: HostTree) -> None:
    for path in (host.root / "proc/1").iterdir():
        path.unlink()
    (host.root / "proc/1").rmdir()
    host.process(77, "ours")
    result = one("host.processes", host.root)
    assert (result["status"], result["cause"]) == ("unknown", "closed")
    host.process(78, "stuck", state="D")
    assert one("host.processes", host.root, stuck=0.2)["status"] == "fail"


def test_a_host_without_processes_is_unknown(tmp_path: Path) -> None:
    assert one("host.processes", tmp_path)["cause"] == "closed"


# A process whose child shares its memory waits in the kernel until that child ends: state D, as on a dead file server.
STUCK = """
#include <unistd.h>
int main(void) { if (vfork() == 0) { pause(); _exit(0); } return 0; }
"""


def test_a_process_that_is_really_stuck_in_the_kernel_is_found_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "stuck.c").write_text(STUCK)
    subprocess.run(["cc", "-o", tmp_path / "stuck-for-test", tmp_path / "stuck.c"], check=True)
    process = subprocess.Popen([tmp_path / "stuck-for-test"], start_new_session=True)
    try:
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "D":
            assert process.poll() is None
        # Our own runner's children are left out, so it is asked by a runner of its own.
        done = subprocess.run(
            [sys.executable, "-m", "cordee.systems.vetting.node.checks"],
            input=json.dumps({"checks": [{"check": "host.processes", "parameters": {"stuck": 0.3}}]}),
            env={**os.environ, "PYTHONPATH": SOURCE},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    result = json.loads(done.stdout)
    assert result["status"] == "fail"
    assert f"stuck-for-test (pid {process.pid}" in result["evidence"]


def test_no_process_of_the_runner_itself_is_called_stuck() -> None:
    result = one("host.processes", stuck=0.2, ignore=["stuck-for-test", "python", "python3", "pytest"])
    assert result["status"] in ("pass", "warn")


def test_memory_is_read_where_the_hosts_files_are(host: HostTree) -> None:
    host.memory(available_kb=1000)
    result = one("host.memory", host.root, min_bytes=2_000_000)
    assert (result["status"], result["value"]) == ("fail", 1_024_000)


def test_a_node_can_name_where_its_hosts_files_are(host: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORDEE_HOST_ROOT", str(host.root))
    (result,) = run_checks({"checks": [{"check": "host.inventory"}]})
    assert result["value"] == 8
