"""System calls as strace wrote them, and what is made of them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from cordee.systems.data.bench.child import MARKER
from cordee.systems.data.bench.trace import front, read_trace

# Written by strace 6.1 (-f -y -qq -s 1) around a reader with threads.
MARK = f'886   newfstatat(AT_FDCWD</work>, "{MARKER}", 0x7ffc, 0) = -1 ENOENT (No such file or directory)\n'
CALLS = """\
886   openat(AT_FDCWD</work>, "/data/set/a.tar", O_RDONLY|O_CLOEXEC) = 3</data/set/a.tar>
887   pread64(3</data/set/a.tar>, "c"..., 50000, 512) = 50000
888   pread64(3</data/set/a.tar>,  <unfinished ...>
889   pread64(3</data/set/a.tar>, "x"..., 9000, 70000) = 8000
888   <... pread64 resumed>"c"..., 40000, 0) = 40000
886   newfstatat(AT_FDCWD</data/set>, "b/c", {st_mode=S_IFDIR|0755, st_size=4096, ...}, 0) = 0
886   openat(AT_FDCWD</data/set>, "b/1.bin", O_RDONLY|O_CLOEXEC) = 4</data/set/b/1.bin>
886   newfstatat(4</data/set/b/1.bin>, "", {st_mode=S_IFREG|0644, st_size=37178, ...}, AT_EMPTY_PATH) = 0
886   read(4</data/set/b/1.bin>, "{"..., 37179) = 37178
886   read(4</data/set/b/1.bin>, "", 1) = 0
886   read(5<pipe:[1234]>, "x"..., 100) = 100
886   openat(AT_FDCWD</work>, "/data/settings.json", O_RDONLY) = 6</data/settings.json>
886   read(6</data/settings.json>, "x"..., 100) = 100
886   openat(AT_FDCWD</work>, "/data/set/gone", O_RDONLY) = -1 ENOENT (No such file or directory)
886   pread64(3</data/set/a.tar>, 0x7f, 5, 0) = -1 EIO (Input/output error)
886   mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3</data/set/a.tar>, 0) = 0x7f0000000000
[pid 886] read(4</data/set/b/1.bin>, "{"..., 10) = 10
"""
LISTS = """\
887 io_submit(0x7f5a, 3, [{aio_data=0, aio_lio_opcode=IOCB_CMD_PREAD, aio_fildes=5</data/set/a.tar>, aio_buf=0x56, aio_nbytes=42380, aio_offset=512}, \
{aio_data=0x1, aio_lio_opcode=IOCB_CMD_PREAD, aio_fildes=6</data/other.tar>, aio_buf=0x57, aio_nbytes=7, aio_offset=1}, \
{aio_data=0x2, aio_lio_opcode=IOCB_CMD_PREAD, aio_fildes=5</data/set/a.tar>, aio_buf=0x58, aio_nbytes=9000, aio_offset=99}] <unfinished ...>
887 <... io_submit resumed>)          = 3
886 preadv2(5</data/set/a.tar>, [{iov_base="c", iov_len=1}], 1, 512, RWF_NOWAIT) = 1
"""


def test_requests_and_metadata_calls_of_the_data_set_alone_are_counted() -> None:
    outside = '886   read(4</data/set/b/1.bin>, "{"..., 10) = 10\n'
    found = read_trace([outside, MARK, *CALLS.splitlines(keepends=True), MARK, outside], ["/data/set"])
    assert sorted(found.sizes) == [10, 8000, 37178, 40000, 50000]
    assert found.metadata == {"openat": 3, "newfstatat": 2}
    assert found.mapped == 1


def test_the_reads_of_a_list_are_counted_one_by_one() -> None:
    found = read_trace([MARK, *LISTS.splitlines(keepends=True), MARK], ["/data/set"])
    assert found.sizes == [42380, 9000]


def test_a_real_trace_shows_the_lists_of_the_packed_reader(packed: Path, tmp_path: Path) -> None:
    command = front(tmp_path / "calls")
    assert command is not None
    read = f"import os, numpy; from cordee.systems.data.node.read.packed.source import PackedSource; s = PackedSource({str(packed)!r}, ahead='none')\n"
    read += (
        f"s.read(numpy.arange(2)); mark = lambda: os.path.exists({MARKER!r}); mark(); s.read(numpy.arange(40)); mark()"
    )
    subprocess.run([*command, sys.executable, "-c", read], check=True)
    with (tmp_path / "calls").open(errors="replace") as lines:
        found = read_trace(lines, [str(packed)])
    assert len(found.sizes) == 40


def test_a_data_set_is_known_by_its_place_and_by_where_that_leads(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    lines = [MARK, f'1 openat(AT_FDCWD</>, "{tmp_path}/link/a", O_RDONLY) = 3<{tmp_path}/real/a>\n']
    lines.append(f'1 read(3<{tmp_path}/real/a>, "x"..., 5) = 5\n')
    found = read_trace(lines, [str(tmp_path / "link")])
    assert (found.metadata.total(), found.sizes) == (1, [5])


def test_torn_and_strange_lines_cost_nothing() -> None:
    lines = [MARK, "", "garbage", "1 <... read resumed>", "1 +++ exited with 0 +++", "1 read(3</data/set/a>, "]
    found = read_trace(lines, ["/data/set"])
    assert (found.sizes, found.metadata.total()) == ([], 0)


def test_without_strace_there_is_no_front(monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert front(Path("out")) is None


# Writes what a trace of the command looked like, and runs the command: as strace does.
FAKE = """#!{python}
import os, sys
at = sys.argv.index("-o")
target = os.environ["BENCH_TARGET"]
mark = '1 newfstatat(AT_FDCWD</>, "{marker}", 0x7f, 0) = -1 ENOENT (No such file or directory)\\n'
calls = ['1 openat(AT_FDCWD</>, "%s/x", O_RDONLY) = 3<%s/x>\\n' % (target, target),
         '1 read(3<%s/x>, "a"..., 5000) = 5000\\n' % target] * 600
open(sys.argv[at + 1], "w").writelines([mark, *calls, mark])
os.execv(sys.argv[at + 2], sys.argv[at + 2:])
"""


def fake_strace(folder: Path, script: str) -> None:
    """Put a `strace` into a folder for PATH."""
    folder.mkdir()
    path = folder / "strace"
    path.write_text(script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_trace_counts_the_calls_of_a_loader(bench: Any, files: Path) -> None:
    fake_strace(bench.folder / "bin", FAKE.format(python=sys.executable, marker=MARKER))
    bench.env |= {"PATH": f"{bench.folder / 'bin'}:{os.environ['PATH']}", "BENCH_TARGET": str(files)}
    (bench.folder / "mine.py").write_text("def make():\n    return [[b'x' * 10] * 100] * 3\n")
    found = bench.json(str(files), "--loader", "mine:make", "--cache", "warm")
    assert found["metadata"]["calls"] == {"openat": 600}
    assert found["metadata"]["per_sample"] == 2
    assert found["requests"]["histogram"] == {"8192": 600}
    advised = {finding["rule"]: finding for finding in found["advice"]}
    assert "cordee data pack" in advised["data.metadata"]["next"]
    assert advised["data.small-requests"]["evidence"]["mean_bytes"] == 5000


def test_a_trace_that_is_not_permitted_is_said(bench: Any, files: Path) -> None:
    fake_strace(bench.folder / "bin", "#!/bin/sh\necho 'ptrace: Operation not permitted' >&2\nexit 1\n")
    bench.env["PATH"] = f"{bench.folder / 'bin'}:{os.environ['PATH']}"
    (bench.folder / "mine.py").write_text("def make():\n    return [[b'x' * 10] * 100] * 3\n")
    found = bench.json(str(files), "--loader", "mine:make", "--cache", "warm")
    assert found["metadata"]["per_sample"] is None
    assert "ended with exit code 1" in found["metadata"]["source"]
    assert found["requests"]["source"].startswith("/proc")
