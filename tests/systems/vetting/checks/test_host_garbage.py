"""Whatever a kernel, a driver or a broken firmware writes into these files, a check answers or says why it cannot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.checks import CannotTest, Context, load_check
from cordee.systems.vetting.node.checks._base import STATUSES
from support.hosts.host_tree import HostTree

# For each check what it is asked for, and which files of the tree it reads.
CHECKS: dict[str, tuple[dict[str, Any], str]] = {
    "host.inventory": ({}, ""),
    "host.fingerprint": ({"env": ["PATH"], "python": "no-python-here"}, ""),
    "host.edac": ({}, ""),
    "host.memory": ({}, "proc/meminfo"),
    "host.processes": ({"stuck": 0.01}, "proc/7/"),
    "link.state": ({"links": ["*"], "min_rate_gbit_per_s": 1.0}, "sys/class/"),
    "link.errors": ({"links": ["*"], "seconds": 0.0}, "sys/class/"),
    "storage.mount": ({"types": ["ext4"], "patience": 2.0}, "proc/self/mountinfo"),
}
GARBAGE = (
    b"",
    b"\n",
    b"-1\n",
    b"0x\n",
    b"9" * 400,
    b"\xff\xfe\x00\x01" * 50,
    b"a: b: c\n: \n::\n",
    b"1\n2 3\n(4) 5\n",
    b" - ",
)


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    tree = HostTree(tmp_path / "host")
    tree.infiniband("mlx5_0")
    tree.interface("hsn0")
    tree.process(7, "stuck", state="D")
    tree.mount(str(tmp_path), "lustre", "server")
    tree.write("proc/interrupts", "           CPU0\nMCE:          1   Machine check exceptions")
    return tree


def answer(check: str, root: Path, workdir: Path) -> str:
    kind = load_check(check)
    context = Context(env={"PATH": os.environ["PATH"]}, workdir=str(workdir), root=str(root), deadline_s=10)
    try:
        return kind.run({**kind.defaults(), **CHECKS[check][0]}, context).status
    except CannotTest:
        return "unknown"


def files(check: str, root: Path) -> list[Path]:
    found = [path for path in sorted(root.rglob("*")) if path.is_file()]
    found = [path for path in found if str(path.relative_to(root)).startswith(CHECKS[check][1])]
    assert found
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_no_content_of_a_file_breaks(check: str, host: HostTree, tmp_path: Path) -> None:
    for path in files(check, host.root):
        sound = path.read_bytes()
        for garbage in GARBAGE:
            path.write_bytes(garbage)
            assert answer(check, host.root, tmp_path) in STATUSES, (path, garbage)
        path.write_bytes(sound)


@pytest.mark.parametrize("check", CHECKS)
def test_no_folder_in_place_of_a_file_and_no_gap_breaks(check: str, host: HostTree, tmp_path: Path) -> None:
    for path in files(check, host.root):
        sound = path.read_bytes()
        path.unlink()
        assert answer(check, host.root, tmp_path) in STATUSES, path
        path.mkdir()
        assert answer(check, host.root, tmp_path) in STATUSES, path
        path.rmdir()
        path.write_bytes(sound)
