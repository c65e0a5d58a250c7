"""Tar archives as they are made, and as nobody should make them."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from cordee.machine.images.tar_stream import TarFault, TarReader
from cordee.testing.oci import LayerEntry, folder, hard_link, link, tar_of

ENTRIES = [
    folder("d"),
    LayerEntry("d/a", b"1" * 700, mode=0o4755, more={"mtime": 1_700_000_000}),
    link("l", "t" * 200),
    hard_link("h", "d/a"),
    LayerEntry("p" * 120 + "/" + "q" * 120, b"long"),
    LayerEntry("pipe", kind=tarfile.FIFOTYPE),
    LayerEntry("empty"),
]


def members(data: bytes) -> list[tuple[str, bytes, int, int, str, bytes]]:
    reader, found = TarReader(io.BytesIO(data)), []
    while (member := reader.next()) is not None:
        out = io.BytesIO()
        reader.copy(member, out)
        found.append((member.name.rstrip("/"), member.kind, member.mode, member.mtime, member.link, out.getvalue()))
    return found


def expected(data: bytes) -> list[tuple[str, bytes, int, int, str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        return [
            (
                each.name,
                b"0" if each.isreg() else each.type,
                each.mode,
                int(each.mtime),
                each.linkname,
                archive.extractfile(each).read() if each.isreg() else b"",  # type: ignore[union-attr]
            )
            for each in archive
        ]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_entries_are_read_as_tarfile_reads_them(form: int) -> None:
    data = tar_of(ENTRIES, form)
    assert members(data) == expected(data)
    assert len(members(data)) == len(ENTRIES)


@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_what_gnu_tar_writes_is_read(form: str, tmp_path: Path) -> None:
    (tmp_path / "in" / "some" / "folder").mkdir(parents=True)
    (tmp_path / "in" / "some" / "file").write_bytes(os.urandom(5000))
    (tmp_path / "in" / "some" / "link").symlink_to("file")
    os.link(tmp_path / "in" / "some" / "file", tmp_path / "in" / "some" / "hard")
    command = ["tar", "-C", tmp_path / "in", f"--format={form}", "-c", "."]
    data = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    assert members(data) == expected(data)


@pytest.mark.parametrize(
    "form", [["gnu"], ["posix"], ["posix", "--sparse-version=0.0"], ["posix", "--sparse-version=0.1"]]
)
def test_sparse_files_of_every_form_are_read(form: list[str], tmp_path: Path) -> None:
    content = bytearray(6_000_000)
    for at in range(0, 6_000_000, 131072):
        content[at : at + 5] = b"piece"
    path = tmp_path / "holes"
    with path.open("wb") as file:
        for at in range(0, 6_000_000, 131072):
            file.seek(at)
            file.write(b"piece")
        file.truncate(len(content))
    command = ["tar", "-C", tmp_path, f"--format={form[0]}", *form[1:], "-Sc", "holes"]
    data = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    assert len(data) < 1_000_000
    [(name, kind, *_, found)] = members(data)
    assert (name, kind) == ("holes", b"0")
    assert found == content


def test_numbers_that_need_more_than_octal_are_read() -> None:
    data = tar_of([LayerEntry("a", b"1", more={"mtime": -5, "uid": 3_000_000_000})], tarfile.GNU_FORMAT)
    assert [member[3] for member in members(data)] == [-5]


def test_an_archive_without_its_end_marker_is_whole_when_its_files_are() -> None:
    data = tar_of([LayerEntry("a", b"1")])[:1024]
    assert [member[0] for member in members(data)] == ["a"]


def test_global_headers_hold_for_all_that_follow() -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"mtime": "7"}) as archive:
        archive.addfile(tarfile.TarInfo("a"))
    assert [(member[0], member[3]) for member in members(raw.getvalue())] == [("a", 7)]


@pytest.mark.parametrize(
    "headers",
    [
        {"size": "-1"},
        {"size": "1e9"},
        {"size": "9" * 30},
        {"mtime": "inf"},
        {"mtime": "soon"},
        {"GNU.sparse.map": "0,5,3,5", "GNU.sparse.size": "100"},
        {"GNU.sparse.map": "0,500000", "GNU.sparse.size": "100"},
        {"GNU.sparse.major": "7", "GNU.sparse.minor": "0"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "5"},
    ],
)
def test_extended_headers_that_lie_are_faults(headers: dict[str, str]) -> None:
    with pytest.raises(TarFault):
        members(tar_of([LayerEntry("a", b"x" * 600, more={"pax_headers": headers}), LayerEntry("b", b"2")]))


def test_any_damage_is_a_fault_or_other_entries_and_never_anything_else() -> None:
    chance = random.Random(5)
    archives = [tar_of(ENTRIES, form) for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)]
    faults = 0
    for number in range(1500):
        data = bytearray(chance.choice(archives))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if number % 3 == 0:
            data = data[: chance.randrange(len(data))]
        fix_checksums(data)
        try:
            members(bytes(data))
        except TarFault:
            faults += 1
    assert faults > 300


def fix_checksums(data: bytearray) -> None:
    """Make every block that was a header one again, so that what is in it is looked at."""
    for at in range(0, len(data) - 511, 512):
        if data[at + 257 : at + 262] == b"ustar":
            data[at + 148 : at + 156] = b" " * 8
            data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
