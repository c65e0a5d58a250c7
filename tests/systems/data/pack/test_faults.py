"""What can go wrong while packing is named, and loses nothing."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.pack import state
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.systems.data.pack.shards import writer
from cordee.systems.data.pack.unpack import unpack
from cordee.systems.data.pack.verify import verify
from support.data.shards import digests, fields_by_key, members, packed


def cordee(*arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    """Run `cordee data ...`, behind another program where one is given."""
    command = [*before, sys.executable, "-m", "cordee.faces.cli", "data", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def unreadable_tree(folder: Path) -> None:
    (folder / "n01" / "img_0001.jpg").chmod(0)
    (folder / "n03" / "img_0039.jpg").chmod(0)


# In a namespace of its own even root is nobody, and may not read what its owner may not.
POWERLESS = ("unshare", "--user")


def test_every_unreadable_file_is_named_at_once(image_folder, tmp_path):
    unreadable_tree(image_folder)
    (tmp_path / "work").mkdir(mode=0o777)
    done = cordee("pack", str(image_folder), "--to", str(tmp_path / "work" / "out"), "--json", before=POWERLESS)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["text"]) == (5, "2 files cannot be read")
    assert "n01/img_0001.jpg: Permission denied" in error["given"]
    assert "n03/img_0039.jpg: Permission denied" in error["given"]
    assert not (tmp_path / "work" / "out" / "dataset.index").exists()


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("kind", ["folder", "tar", "tar.gz", "zip", "csv", "parquet", "jsonl"])
def test_a_source_that_may_not_be_read_is_named(image_folder, tmp_path, kind):
    source = image_folder if kind == "folder" else tmp_path / f"source.{kind}"
    if kind != "folder":
        source.write_text("x")
    source.chmod(0)
    (tmp_path / "work").mkdir(mode=0o777)
    options = ["--as", "tokens"] if kind == "jsonl" else []
    done = cordee("pack", str(source), "--to", str(tmp_path / "work" / "out"), "--json", *options, before=POWERLESS)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["kind"]) == (5, "data")
    assert source.name in error["given"]
    assert "Permission denied" in error["text"] + error["given"]


def test_unreadable_files_are_left_out_counted_and_named_when_asked(image_folder, tmp_path):
    unreadable_tree(image_folder)
    (tmp_path / "work").mkdir(mode=0o777)
    out = tmp_path / "work" / "out"
    done = cordee("pack", str(image_folder), "--to", str(out), "--skip-unreadable", "--json", before=POWERLESS)
    assert done.returncode == 0, done.stdout
    said = json.loads(done.stdout)
    assert (said["samples"], said["left_out"]) == (38, {"unreadable": 2})
    named = json.loads((out / "left-out.json").read_text())["unreadable"]
    assert sorted(named) == ["n01/img_0001.jpg: Permission denied", "n03/img_0039.jpg: Permission denied"]
    assert "n01/img_0001" not in fields_by_key(out)
    assert verify(str(out)).damaged == []


def test_a_sample_is_left_out_as_a_whole(tmp_path, monkeypatch):
    folder = tmp_path / "pairs"
    folder.mkdir()
    for stem in ("a", "b", "c"):
        (folder / f"{stem}.jpg").write_bytes(stem.encode() * 700_000)
        (folder / f"{stem}.txt").write_text(stem)
    plan = plan_of(str(folder))
    (folder / "b.txt").unlink()
    made = pack(plan, str(tmp_path / "out"), PackOptions(skip_unreadable=True, durable=False))
    assert made.left_out == {"unreadable": ["b.txt: is gone"]}
    assert sorted(fields_by_key(tmp_path / "out")) == ["a", "c"]
    assert sorted(members(tmp_path / "out")) == ["a.jpg", "a.txt", "c.jpg", "c.txt"]
    assert verify(str(tmp_path / "out")).damaged == []


@pytest.mark.parametrize("size", [3000, 3_000_000])
def test_a_file_that_changed_since_it_was_listed_is_packed_as_it_is_now(image_folder, tmp_path, size):
    plan = plan_of(str(image_folder))
    (image_folder / "n01" / "img_0001.jpg").write_bytes(b"n" * size)
    pack(plan, str(tmp_path / "out"), PackOptions(durable=False))
    assert fields_by_key(tmp_path / "out")["n01/img_0001"]["jpg"] == b"n" * size
    assert verify(str(tmp_path / "out")).damaged == []


@pytest.mark.parametrize("skip", [False, True])
def test_a_file_that_keeps_changing_is_named(image_folder, tmp_path, monkeypatch, skip):
    changing = image_folder / "n01" / "img_0001.jpg"
    os.truncate(changing, 5_000_000)
    real = os.preadv

    def growing(descriptor, buffers, offset):
        if os.fstat(descriptor).st_ino == changing.stat().st_ino:
            with changing.open("ab") as file:
                file.write(b"more")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(writer.os, "preadv", growing)
    if not skip:
        with pytest.raises(DataError) as told:
            packed(image_folder, tmp_path / "out")
        assert "n01/img_0001.jpg: changes while it is read" in told.value.given
    else:
        made = packed(image_folder, tmp_path / "out", options={"skip_unreadable": True})
        assert made.left_out == {"unreadable": ["n01/img_0001.jpg: changes while it is read"]}
        monkeypatch.undo()
        assert verify(str(tmp_path / "out")).damaged == []
        assert len(fields_by_key(tmp_path / "out")) == 39


def test_links_and_what_is_no_file_are_counted_and_not_followed(image_folder, tmp_path):
    (image_folder / "n00" / "link.jpg").symlink_to(image_folder / "n01" / "img_0001.jpg")
    (image_folder / "n00" / "loop").symlink_to(image_folder)
    (image_folder / "n00" / "broken.jpg").symlink_to("nowhere")
    os.mkfifo(image_folder / "n00" / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(image_folder / "s"))
    made = packed(image_folder, tmp_path / "out")
    assert made.samples == 40
    assert {kind: sorted(names) for kind, names in made.left_out.items()} == {
        "link, not followed": ["n00/broken.jpg", "n00/link.jpg", "n00/loop"],
        "named pipe": ["n00/pipe.jpg"],
        "socket": ["s"],
    }
    assert json.loads((tmp_path / "out" / "left-out.json").read_text()).keys() == made.left_out.keys()


def test_links_are_followed_when_asked_and_loops_end(image_folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.jpg").write_bytes(b"outside")
    (image_folder / "n00" / "out").symlink_to(tmp_path / "elsewhere")
    (image_folder / "n00" / "loop").symlink_to(image_folder)
    (image_folder / "n00" / "broken.jpg").symlink_to("nowhere")
    made = packed(image_folder, tmp_path / "out", origin_options={"follow": True})
    assert made.samples == 41
    assert fields_by_key(tmp_path / "out")["n00/out/x"]["jpg"] == b"outside"
    assert made.left_out == {"broken link": ["n00/broken.jpg"], "loop of links": ["n00/loop"]}


def test_a_large_sparse_file_is_packed_with_its_holes(tmp_path):
    folder = tmp_path / "large"
    folder.mkdir()
    size = 9 << 30  # more than a ustar header can say
    with (folder / "scan.raw").open("wb") as file:
        file.write(b"begin")
        file.seek(5 << 30)
        file.write(b"middle")
        file.truncate(size)
    (folder / "after.txt").write_text("small")
    made = packed(folder, tmp_path / "out", options={"shard_bytes": 1 << 20})
    assert made.bytes == size + 5
    (large,) = [path for path in (tmp_path / "out").glob("*.tar") if path.stat().st_size > size]
    assert large.stat().st_blocks * 512 < 50 << 20
    with tarfile.open(large) as archive:
        (member,) = archive.getmembers()
        assert (member.name, member.size) == ("scan.raw", size)
        content = archive.extractfile(member)
        content.seek(5 << 30)
        assert content.read(8) == b"middle\0\0"


def test_a_full_disk_says_so_and_a_second_call_goes_on(image_folder, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    script = (
        f"mount -t tmpfs -o size=160k none {small} && "
        f"{{ {sys.executable} -m cordee.faces.cli data pack {image_folder} --to {small}/out --shard-size 64KiB --workers 1;"
        f" echo code $?; ls {small}/out; mount -o remount,size=2m {small};"
        f" {sys.executable} -m cordee.faces.cli data pack {image_folder} --to {small}/out --shard-size 64KiB --json;"
        f" cp -r {small}/out {tmp_path}/kept; }}"
    )
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, text=True, check=True)
    first, _, second = done.stdout.partition("{")
    assert "code 5" in first
    assert "the file system is full" in done.stderr or "not enough space" in done.stderr
    assert "dataset.index" not in first
    said = json.loads("{" + second)
    assert said["samples"] == 40
    packed(image_folder, tmp_path / "again" / "out", options={"shard_bytes": 65_536})
    assert digests(tmp_path / "kept") == digests(tmp_path / "again" / "out")


def test_a_disk_that_is_full_from_the_first_byte_is_told_of_tokens_too(image_folder, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state, "write_whole", full)
    with pytest.raises(DataError, match="the file system is full"):
        packed(image_folder, tmp_path / "out", target="tokens")


@pytest.mark.parametrize(
    ("code", "text"), [(errno.EDQUOT, "the quota is used up"), (errno.ENOSPC, "the file system is full")]
)
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_quota_that_is_used_up_is_told_and_a_second_call_goes_on(
    image_folder, tmp_path, monkeypatch, code, text, call
):
    left, real = [1], getattr(os, call)

    def refused(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(code, os.strerror(code))
        return real(*arguments)

    monkeypatch.setattr(os, call, refused)
    with pytest.raises(DataError, match=text):
        packed(image_folder, tmp_path / "out", options={"durable": True})
    monkeypatch.undo()
    assert not (tmp_path / "out" / "dataset.index").exists()
    assert packed(image_folder, tmp_path / "out").samples == 40
    packed(image_folder, tmp_path / "again" / "out")
    assert digests(tmp_path / "out") == digests(tmp_path / "again" / "out")


def test_a_place_that_cannot_be_written_to_is_told(image_folder, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match="the data set cannot be written: Not a directory"):
        packed(image_folder, tmp_path / "file" / "out")


def test_two_packings_for_one_folder_do_not_meet(image_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(state, "_LOCK_WAIT_S", 0.0)
    (tmp_path / "out").mkdir()
    first = state.PackState(tmp_path / "out" / ".packing", {"target": "webdataset"}, restart=False)
    with pytest.raises(DataError, match="another process is packing there"):
        packed(image_folder, tmp_path / "out")
    first.remove()
    assert packed(image_folder, tmp_path / "out").samples == 40


def test_a_name_that_is_a_path_is_refused(image_folder, tmp_path):
    with pytest.raises(UsageError, match="cannot be the name"):
        packed(image_folder, tmp_path / "out", options={"name": "../other"})


def test_another_source_is_not_mixed_into_what_was_begun(image_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(writer.ShardWriter, "finish", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        packed(image_folder, tmp_path / "out")
    monkeypatch.undo()
    (image_folder / "n00" / "new.jpg").write_bytes(b"new")
    with pytest.raises(UsageError, match="another source, or it has changed"):
        packed(image_folder, tmp_path / "out")
    assert packed(image_folder, tmp_path / "out", options={"restart": True}).samples == 41


def test_a_name_that_leads_outside_is_not_unpacked(image_folder, tmp_path):
    from cordee.systems.data.pack.shards.index_only import index_shards

    (tmp_path / "shards").mkdir()
    (tmp_path / "evil.txt").write_text("evil")
    with tarfile.open(tmp_path / "shards" / "x.tar", "w") as archive:
        archive.add(tmp_path / "evil.txt", "../../outside.txt")
        archive.add(tmp_path / "evil.txt", "/tmp/absolute-name.txt")
        archive.add(tmp_path / "evil.txt", "fine.txt")
    with tarfile.open(tmp_path / "shards" / "y.tar", "w") as archive:
        member = archive.gettarinfo(tmp_path / "evil.txt", "/tmp/absolute-name.txt")
        member.name = "/tmp/absolute-name.txt"
        with (tmp_path / "evil.txt").open("rb") as file:
            archive.addfile(member, file)
    index_shards(str(tmp_path / "shards"))
    found = unpack(str(tmp_path / "shards"), str(tmp_path / "deep" / "back"))
    assert "../../outside.txt" in found.refused
    assert "/tmp/absolute-name.txt" in found.refused
    assert not (tmp_path / "outside.txt").exists()
    assert (tmp_path / "deep" / "back" / "fine.txt").read_text() == "evil"
