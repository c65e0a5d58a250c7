"""The fake NVML answers as a driver's library would, through the very calls of nvidia-ml-py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from support.nvml import FakeGpus

ASK = """
import json, pynvml
answers = {}
def ask(name, call):
    try: answers[name] = call()
    except pynvml.NVMLError as error: answers[name] = f"{type(error).__name__}: {error}"
ask("init", pynvml.nvmlInit)
if answers["init"] is None:
    ask("count", pynvml.nvmlDeviceGetCount)
    ask("driver", pynvml.nvmlSystemGetDriverVersion)
    for index in range(answers["count"]):
        handles = {}
        ask(f"handle {index}", lambda: handles.update(gpu=pynvml.nvmlDeviceGetHandleByIndex(index)))
        if not handles: continue
        gpu = handles["gpu"]
        ask(f"uuid {index}", lambda: pynvml.nvmlDeviceGetUUID(gpu))
        ask(f"address {index}", lambda: pynvml.nvmlDeviceGetPciInfo(gpu).busId)
        ask(f"temperature {index}", lambda: pynvml.nvmlDeviceGetTemperature(gpu, 0))
        ask(f"used {index}", lambda: [pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2).used, pynvml.nvmlDeviceGetMemoryInfo(gpu).used])
        ask(f"uncorrectable {index}", lambda: pynvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0))
        ask(f"remapped {index}", lambda: pynvml.nvmlDeviceGetRemappedRows(gpu))
        ask(f"banks {index}", lambda: pynvml.nvmlDeviceGetRowRemapperHistogram(gpu).max)
        ask(f"processes {index}", lambda: [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)])
        ask(f"link {index}", lambda: [pynvml.nvmlDeviceGetNvLinkState(gpu, 0), *[pynvml.nvmlDeviceGetNvLinkErrorCounter(gpu, 0, 2) for _ in range(3)]])
        ask(f"field {index}", lambda: pynvml.nvmlDeviceGetFieldValues(gpu, [82])[0].value.ullVal)
        ask(f"retired {index}", lambda: pynvml.nvmlDeviceGetRetiredPages(gpu, 1))
print(json.dumps(answers))
"""


def ask(gpus: FakeGpus, **env: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", ASK], env={**os.environ, **gpus.env, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def gpus(tmp_path: Path, fake_nvml: Path) -> FakeGpus:
    return FakeGpus(tmp_path, library=fake_nvml)


def test_a_device_says_what_the_file_says(gpus):
    gpus.device(0, temperature=95, ecc_uncorrectable=1, retired_double_bit=2, memory_used=100, memory_reserved=7)
    gpus.process(0, 4711, 1 << 20).process(0, 4712).link(0, 0, active=1, crc_flit="10+5")
    answers = ask(gpus)
    assert answers["count"] == 1
    assert answers["driver"] == "550.54.15"
    assert answers["uuid 0"] == gpus.uuid(0)
    assert answers["address 0"] == "00000000:10:00.0"
    assert answers["temperature 0"] == 95
    assert answers["used 0"] == [100, 107]
    assert answers["uncorrectable 0"] == 1
    assert answers["remapped 0"] == [0, 0, 0, 0]
    assert answers["banks 0"] == 2560
    assert answers["processes 0"] == [[4711, 1 << 20], [4712, 0]]
    assert answers["link 0"] == [1, 10, 15, 20]
    assert answers["field 0"] == 45
    assert len(answers["retired 0"]) == 2


def test_what_is_not_there_is_not_supported(gpus):
    gpus.device(0, temperature=None)
    assert "NotSupported" in ask(gpus)["temperature 0"]


def test_a_function_fails_for_all_or_for_one_device_and_all_functions_of_a_lost_one(gpus):
    gpus.device(0).device(1).device(2)
    gpus.error("nvmlSystemGetDriverVersion", 999).error("nvmlDeviceGetTemperature", 4, device=0).error(
        "*", 15, device=2
    )
    answers = ask(gpus)
    assert "Unknown" in answers["driver"]
    assert "NoPermission" in answers["temperature 0"]
    assert answers["temperature 1"] == 35
    assert "GpuIsLost" in answers["handle 2"]


def test_the_library_itself_can_refuse(gpus):
    gpus.device(0).error("nvmlInitWithFlags", 18)
    assert "LibRmVersionMismatch" in ask(gpus)["init"]


def test_a_function_can_hang(gpus):
    gpus.device(0).hang("nvmlDeviceGetTemperature", device=0)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", ASK], env={**os.environ, **gpus.env}, timeout=1, check=False)


def test_each_node_has_its_own_devices(gpus):
    gpus.device(0)
    hot = gpus.on("node-2").device(0, temperature=99)
    assert ask(gpus)["temperature 0"] == 35
    assert ask(gpus, SLURMD_NODENAME="node-1")["temperature 0"] == 35
    answers = ask(gpus, SLURMD_NODENAME="node-2")
    assert answers["temperature 0"] == 99
    assert answers["uuid 0"] == hot.uuid(0) != gpus.uuid(0)


def test_a_mistyped_value_is_refused(gpus):
    with pytest.raises(UsageError, match="tempratur"):
        gpus.device(0, tempratur=3)
