"""Darshan's counters, where there is no strace; the tool itself is faked, its text is in the form that darshan-parser prints."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from cordee.systems.data.bench.darshan import count, preload

LOG = """\
# darshan log version: 3.41
#<module>	<rank>	<record id>	<counter>	<value>	<file name>	<mount pt>	<fs type>
POSIX	0	945	POSIX_OPENS	3	{root}/a.tar	/	ext4
POSIX	0	945	POSIX_STATS	2	{root}/a.tar	/	ext4
POSIX	0	945	POSIX_READS	40	{root}/a.tar	/	ext4
POSIX	0	945	POSIX_BYTES_READ	2000000	{root}/a.tar	/	ext4
POSIX	0	945	POSIX_SIZE_READ_10K_100K	39	{root}/a.tar	/	ext4
POSIX	0	945	POSIX_SIZE_READ_1G_PLUS	1	{root}/a.tar	/	ext4
POSIX	0	945	POSIX_SIZE_READ_1M_4M	0	{root}/a.tar	/	ext4
POSIX	0	945	POSIX_F_READ_TIME	0.25	{root}/a.tar	/	ext4
STDIO	0	946	STDIO_OPENS	1	{root}/list.txt	/	ext4
POSIX	0	947	POSIX_OPENS	-1	{root}/b.tar	/	ext4
POSIX	0	948	POSIX_OPENS	99	{root}-other/c.tar	/	ext4
torn line
"""


def test_counters_of_the_data_set_alone_are_added() -> None:
    found = count(LOG.format(root="/data/set").splitlines(), ["/data/set"])
    assert found.metadata == {"open": 3, "stat": 2, "fopen": 1}
    assert (found.reads, found.bytes, found.files) == (40, 2_000_000, 3)
    assert found.histogram == {100 << 10: 39, 0: 1}


def test_without_darshan_nothing_is_preloaded(monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert preload(Path("log")) is None


def installed(folder: Path, text: str, code: int = 0) -> str:
    """Install a parser that prints a text, and a library that does nothing; return a PATH without strace."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "lib" / "libdarshan.so").touch()
    (folder / "log.txt").write_text(text)
    parser = folder / "bin" / "darshan-parser"
    parser.write_text(f"#!/bin/sh\n/bin/cat {folder / 'log.txt'}\nexit {code}\n")
    parser.chmod(parser.stat().st_mode | stat.S_IXUSR)
    return str(folder / "bin")


def test_a_preloaded_darshan_is_not_loaded_twice(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", installed(tmp_path / "darshan", ""))
    monkeypatch.setenv("LD_PRELOAD", "/opt/libother.so:/opt/darshan/lib/libdarshan.so")
    found = preload(Path("log"))
    assert found is not None
    assert found["LD_PRELOAD"] == "/opt/darshan/lib/libdarshan.so:/opt/libother.so"


def test_darshan_counts_where_there_is_no_strace(bench: Any, files: Path) -> None:
    bench.env["PATH"] = installed(bench.folder / "darshan", LOG.format(root=files))
    (bench.folder / "mine.py").write_text("def make():\n    return [[b'x' * 10] * 2] * 3\n")
    found = bench.json(str(files), "--loader", "mine:make", "--cache", "warm")
    assert found["metadata"] == {
        "source": "Darshan, 6 samples, 3 files, without worker processes",
        "per_sample": 1.0,
        "calls": {"open": 3, "stat": 2, "fopen": 1},
    }
    assert found["requests"]["histogram"] == {"102400": 39, "0": 1}
    assert found["requests"]["mean_bytes"] == 50_000


def test_a_darshan_that_fails_is_said(bench: Any, files: Path) -> None:
    bench.env["PATH"] = installed(bench.folder / "darshan", "", code=1)
    (bench.folder / "mine.py").write_text("def make():\n    return [[b'x' * 10] * 2] * 3\n")
    found = bench.json(str(files), "--loader", "mine:make", "--cache", "warm")
    assert found["metadata"]["per_sample"] is None
    assert "strace is not installed; under Darshan darshan-parser cannot read its log" in found["metadata"]["source"]
    assert os.listdir(bench.folder / "cache")
