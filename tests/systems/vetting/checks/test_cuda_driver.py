"""Computing with the CUDA driver alone, through a library that stands in for it: the same calls, no GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.checks import run_checks
from support.cuda import build
from support.hosts.interpreters import write_interpreter

UUIDS = [f"GPU-f{index}000000-0000-0000-0000-000000000000" for index in range(3)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "root" / "dev").mkdir(parents=True)
    (tmp_path / "root" / "dev" / "nvidia0").touch()
    return str(tmp_path / "root")


def one(root: str, library: Path, fake: str = "", python: Path | None = None, **parameters: Any) -> dict[str, Any]:
    path = f"{python}{os.pathsep}{os.environ['PATH']}" if python else os.environ["PATH"]
    env = {**os.environ, "PATH": path, "LD_LIBRARY_PATH": str(library), "FAKE_CUDA": fake}
    entry = {"check": "gpu.cuda", "parameters": {"engine": "driver", "count": 5000, **parameters}}
    return run_checks({"checks": [entry], "deadline_s": 30, "root": root, "env": env})[0]


def test_every_gpu_computes_and_is_named(root: str, library: Path) -> None:
    result = one(root, library, "count=3")
    assert result["status"] == "pass", result
    assert [lane["uuid"] for lane in result["facts"]["devices"]] == UUIDS
    assert result["evidence"].startswith(f"5000 elements right on GPU 0 ({UUIDS[0]}), GPU 1 ({UUIDS[1]})")


def test_a_gpu_that_computes_wrongly_fails_by_name(root: str, library: Path) -> None:
    result = one(root, library, "count=2 wrong=1")
    assert (result["status"], result["value"]) == ("fail", 1)
    assert result["evidence"] == f"GPU 1 ({UUIDS[1]}): 1 of 5000 elements are wrong"


def test_a_gpu_that_gives_an_error_fails_with_the_words_of_the_driver(root: str, library: Path) -> None:
    result = one(root, library, "count=2 launch_error=214")
    assert result["status"] == "fail"
    words = f"cuLaunchKernel: CUDA error 214: uncorrectable ECC error encountered while at GPU 0 ({UUIDS[0]})"
    assert result["evidence"] == words
    assert one(root, library, "error=100")["evidence"].startswith("cuInit: CUDA error 100")
    assert one(root, library, "count=0")["evidence"] == "the CUDA driver sees no GPU"


def test_without_torch_the_driver_computes(root: str, library: Path, tmp_path: Path) -> None:
    python = write_interpreter(tmp_path / "bin", "no_torch")
    assert one(root, library, "count=2", python, engine="auto")["status"] == "pass"
    missing = one(root, library, "count=2", python, engine="torch")
    assert (missing["status"], missing["cause"]) == ("unknown", "absent")


def test_without_torch_and_driver_both_are_named(root: str, tmp_path: Path) -> None:
    result = one(root, tmp_path, "", write_interpreter(tmp_path / "bin", "no_torch"), engine="auto")
    assert (result["status"], result["cause"]) == ("unknown", "absent")
    assert "the CUDA driver's library cannot be loaded" in result["evidence"]
    assert "torch cannot be imported" in result["evidence"]
