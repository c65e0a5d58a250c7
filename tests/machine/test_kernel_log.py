"""The kernel log, from wherever it may be read, with the age of each line."""

from __future__ import annotations

import os
import re
import time

import pytest

from cordee.machine.kernel_log import KernelLogClosed, _parse, read_kernel_log
from support.hosts.kernel_log import write_kmsg, write_log_file


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("6,339,99000000,-;nvidia: loaded", "nvidia: loaded"),
        ("[   99.000000] nvidia: loaded", "nvidia: loaded"),
        ("<6>[   99.000000] nvidia: loaded", "nvidia: loaded"),
    ],
)
def test_time_since_the_start_becomes_an_age(line, text):
    found = _parse(line, 3699.0)
    assert found.text == text
    assert found.age_s == pytest.approx(3600)


def test_times_of_day_become_ages():
    written = time.time() - 7200
    zoned = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(written))
    lines = [
        f"{written:.6f} host kernel: nvidia: loaded",
        f"{zoned} host kernel: nvidia: loaded",
        time.strftime("%b %e %H:%M:%S", time.localtime(written)) + " host kernel: nvidia: loaded",
    ]
    for line in lines:
        found = _parse(line, None)
        assert found.text == "kernel: nvidia: loaded"
        assert found.age_s == pytest.approx(7200, abs=30)


def test_a_line_of_an_unknown_form_is_kept_without_an_age():
    assert _parse("something else", 100.0) == ("something else", None)


def test_the_kernel_s_own_log_comes_before_files(tmp_path):
    write_log_file(tmp_path, [(1, "from the file")])
    assert read_kernel_log(str(tmp_path)).source.endswith("kern.log")
    write_kmsg(tmp_path, [(1, "from the kernel")])
    log = read_kernel_log(str(tmp_path))
    assert log.source.endswith("dev/kmsg")
    assert [line.text for line in log.lines] == ["Linux version 6.1.0", "from the kernel"]
    assert log.lines[1].age_s == pytest.approx(3600)


def test_continuation_lines_of_a_record_are_left_out(tmp_path):
    write_kmsg(tmp_path, [(1, "a record")])
    with open(tmp_path / "dev" / "kmsg", "a") as file:
        file.write(" SUBSYSTEM=pci\n DEVICE=+pci:0000:10:00.0\n")
    assert len(read_kernel_log(str(tmp_path)).lines) == 2


def test_an_empty_log_tells_nothing(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kmsg").touch()
    with pytest.raises(KernelLogClosed, match="dev/kmsg: is empty"):
        read_kernel_log(str(tmp_path))


def test_a_log_that_is_denied_is_named(tmp_path):
    os.makedirs(tmp_path / "dev" / "kmsg")
    with pytest.raises(KernelLogClosed, match="dev/kmsg: Is a directory"):
        read_kernel_log(str(tmp_path))


def read_this_machine() -> str:
    try:
        return f"{len(read_kernel_log().lines)} lines"
    except KernelLogClosed as closed:
        return str(closed)


def test_this_machine_s_log_is_read_or_said_to_be_closed():
    assert re.match(r"[1-9]\d* lines|the kernel log cannot be read: /dev/kmsg: .*; dmesg: ", read_this_machine())
