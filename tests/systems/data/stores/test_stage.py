"""Data sets brought to a node: whole, once for all who use it, and gone when nobody does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.core.errors import DataError
from cordee.job.profile import ClusterProfile
from cordee.machine.node_tiers import Tier
from cordee.systems.data.cli import command
from cordee.systems.data.node.stage.claims import IDLE_S, StagedSets
from cordee.systems.data.node.stage.tier import decide
from cordee.systems.data.stage import stage

HERE = os.getpid()


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Return a folder that is the disk of this node."""
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("SLURM_TMPDIR", str(disk))
    return disk


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    (folder / "a").mkdir(parents=True)
    for number in range(5):
        (folder / "a" / f"{number}.bin").write_bytes(os.urandom(1000 * number))
    (folder / "empty").touch()
    return folder


def contents(folder: Path):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def to_node(path, **more):
    return stage(str(path), ClusterProfile(name="local", scheduler="local"), to="node", **{"claim": HERE, **more})


def left(disk: Path):
    return sorted(
        path.name for path in disk.glob("cordee-*/staged/*") if path.is_dir() and not path.name.endswith(".claims")
    )


def test_a_folder_is_staged_once_for_all(node, corpus):
    first, second = to_node(corpus), to_node(corpus)
    assert (first.tier, first.bytes, first.source_bytes) == ("node", 10_000, 10_000)
    assert (second.path, second.source_bytes) == (first.path, 0)
    assert first.path.startswith(f"{node}/cordee-{os.geteuid()}/staged/")
    assert contents(Path(first.path)) == contents(corpus)


def test_two_that_stage_the_same_at_once_read_it_once(node, corpus):
    done = []
    both = [threading.Thread(target=lambda: done.append(to_node(corpus))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sorted(one.source_bytes for one in done) == [0, 10_000]
    assert len({one.path for one in done}) == 1


@pytest.mark.parametrize("ending", [".tar", ".tgz", ".zip"])
def test_an_archive_is_unpacked_on_the_node(node, corpus, tmp_path, ending):
    path = tmp_path / f"packed{ending}"
    if ending == ".zip":
        with zipfile.ZipFile(path, "w") as opened:
            for name in contents(corpus):
                opened.write(corpus / name, name)
    else:
        with tarfile.open(path, "w:gz" if ending == ".tgz" else "w") as opened_tar:
            opened_tar.add(corpus, ".")
    done = to_node(path)
    assert contents(Path(done.path)) == contents(corpus)
    assert Path(done.path).name == "packed"
    assert Path(to_node(path, unpacked=False).path).read_bytes() == path.read_bytes()


def test_an_archive_that_leads_out_or_is_cut_off_leaves_nothing(node, corpus, tmp_path):
    with tarfile.open(tmp_path / "evil.tar", "w") as opened:
        opened.add(corpus / "empty", "../../evil")
    whole = tmp_path / "whole.tar"
    with tarfile.open(whole, "w:gz") as opened:
        opened.add(corpus, "corpus")
    (tmp_path / "cut.tgz").write_bytes(whole.read_bytes()[:3000])
    for name in ("evil.tar", "cut.tgz"):
        with pytest.raises(DataError, match="cannot be unpacked"):
            to_node(tmp_path / name)
    assert left(node) == []


def test_a_source_that_changes_meanwhile_is_refused_and_a_changed_one_is_staged_anew(node, corpus):
    with pytest.raises(DataError, match="changed while it was staged"):
        to_node(corpus, tell=lambda _objects, _bytes: (corpus / "late").write_bytes(b"late"))
    assert left(node) == []
    first = to_node(corpus)
    (corpus / "late").write_bytes(b"later")
    second = to_node(corpus)
    assert second.path != first.path
    assert contents(Path(second.path)) == contents(corpus)


@pytest.mark.parametrize("command", ["cat a.txt b.txt > both", "true && rm a.txt", "cat a.txt | wc"])
def test_a_command_that_prepares_and_is_meant_for_a_shell_is_refused(node, corpus, command):
    with pytest.raises(DataError, match="no shell runs the command"):
        to_node(corpus, prepare=command)


def test_it_is_prepared_once_before_anyone_sees_it(node, corpus, tmp_path):
    prepare = f"{sys.executable} -c \"open('made', 'a').write('x'); open('{tmp_path}/times', 'a').write('x')\""
    done = [to_node(corpus, prepare=prepare) for _ in range(2)]
    assert (Path(done[0].path) / "made").read_text() == (tmp_path / "times").read_text() == "x"
    with pytest.raises(DataError, match="ended with code 3"):
        to_node(corpus, prepare=f"{sys.executable} -c 'raise SystemExit(3)'")
    assert len(left(node)) == 1


def test_what_a_living_process_has_claimed_stays_and_what_a_dead_one_had_goes(node, corpus, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    key = Path(to_node(corpus, claim=child.pid).path).parent.name
    sets = StagedSets(node)
    assert sets.make_room(1 << 60, "") == []
    child.communicate(b"\n")
    assert sets.unused_bytes() == 10_000
    assert sets.make_room(0, "") == []
    assert sets.make_room(1 << 60, "") == [key]
    assert left(node) == []
    key = Path(to_node(corpus, claim=HERE).path).parent.name
    for claim in (sets.root / f"{key}.claims").iterdir():
        claim.rename(claim.with_name(f"{HERE}-1"))  # another process had this pid
    long_ago = os.stat(sets.root).st_mtime - 2 * IDLE_S
    sets.claimed(key)
    os.utime(sets.root / f"{key}.claims", (long_ago, long_ago))
    assert sets.make_room(0, "") == [key]


def test_auto_takes_memory_then_disk_and_else_reads_in_place(tmp_path):
    memory, disk = Tier("memory", tmp_path / "m", 5_000_000_000), Tier("node", tmp_path / "d", 50_000_000_000)
    assert decide("auto", 10**9, [memory, disk], {}).tier == memory
    chosen, reason = decide("auto", 6 * 10**9, [memory, disk], {})
    assert chosen == disk
    assert "not memory, as 6 GB do not fit: 5 GB may be used there" in reason
    assert decide("auto", 6 * 10**9, [memory, disk], {memory.folder: 10**9}).tier == memory
    assert decide("auto", 10**12, [memory, disk], {}).tier is None
    assert decide("memory", 6 * 10**9, [memory, disk], {}).tier is None
    assert "no such place" in decide("memory", 1, [disk], {}).reason


def test_the_command_prints_the_path_and_says_why_there(node, corpus):
    done = CliRunner().invoke(command, ["stage", str(corpus), "--to", "node", "--json"], catch_exceptions=False)
    document = json.loads(done.stdout)
    assert (document["tier"], document["bytes"], document["source_bytes"]) == ("node", 10_000, 10_000)
    done = CliRunner().invoke(command, ["stage", str(corpus), "--to", "node"], catch_exceptions=False)
    assert done.stdout == f"{document['path']}\n"
    assert "it is there already" in done.stderr


def test_an_object_store_is_staged_like_a_folder(node, corpus, s3):
    for name, content in contents(corpus).items():
        from cordee.wire.stores import open_store

        open_store(f"{s3}/corpus").write(name, [content])
    done = to_node(f"{s3}/corpus")
    assert contents(Path(done.path)) == contents(corpus)
    with pytest.raises(DataError, match="nothing is there"):
        to_node(f"{s3}/other")
