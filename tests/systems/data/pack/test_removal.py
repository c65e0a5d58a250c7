"""`cordee data remove`: samples are gone, the others are as they were, and the same call gives the same bytes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.core.errors import DataError, UsageError
from cordee.faces.cli import cordee as main
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.systems.data.pack.removal import read_keys, remove
from cordee.systems.data.pack.shards.indexes import open_index_at
from cordee.systems.data.pack.verify import verify


@pytest.fixture
def packed(tmp_path):
    for kind in ("cat", "dog"):
        (tmp_path / "files" / kind).mkdir(parents=True)
        for at in range(20):
            (tmp_path / "files" / kind / f"{at:02}.jpg").write_bytes(f"{kind}{at}".encode() * 50)
            (tmp_path / "files" / kind / f"{at:02}.JSON").write_text(json.dumps({"at": at}))
    pack(plan_of(str(tmp_path / "files"), labels="folders"), str(tmp_path / "set"), PackOptions(shard_bytes=20_000))
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_samples_are_gone_and_the_others_are_as_they_were(packed):
    keys = {"cat/03": "withdrawn", "dog/19": "", "cat/99": ""}
    done = remove(str(packed / "set"), keys, str(packed / "new"))
    assert (list(done.removed), done.not_found) == (["cat/03", "dog/19"], ["cat/99"])
    index = open_index_at(str(packed / "new"))
    assert {index.key(at) for at in range(index.samples)} == {
        f"{kind}/{at:02}" for kind in ("cat", "dog") for at in range(20)
    } - {"cat/03", "dog/19"}
    assert index.classes == ("cat", "dog")
    assert verify(str(packed / "new")).damaged == []
    assert not any(b"cat3cat3" in content for content in contents(packed / "new").values())
    CliRunner().invoke(main, ["data", "unpack", str(packed / "new"), "--to", str(packed / "back")])
    assert (packed / "back" / "dog" / "07.JSON").read_bytes() == (packed / "files" / "dog" / "07.JSON").read_bytes()
    assert not (packed / "back" / "cat" / "03.jpg").exists()
    record = json.loads((packed / "new" / "removed.json").read_text())
    assert record["removed"] == {"cat/03": "withdrawn", "dog/19": ""}
    assert record["from"]["id"] == open_index_at(str(packed / "set")).id


def test_the_same_call_gives_the_same_bytes_and_repeated_it_does_nothing(packed):
    keys = {"cat/03": "withdrawn"}
    remove(str(packed / "set"), keys, str(packed / "a"), workers=1)
    remove(str(packed / "set"), keys, str(packed / "b"), workers=2)
    assert contents(packed / "a") == contents(packed / "b")
    assert remove(str(packed / "set"), keys, str(packed / "a")).packed.already


def test_what_cannot_be_done_is_refused(packed):
    with pytest.raises(UsageError, match="no sample has one"):
        remove(str(packed / "set"), {"nothing": ""}, str(packed / "new"))
    with pytest.raises(UsageError, match="in place"):
        remove(str(packed / "set"), {"cat/03": ""}, str(packed / "set"))
    every = {f"{kind}/{at:02}": "" for kind in ("cat", "dog") for at in range(20)}
    with pytest.raises(UsageError, match="nothing would be left"):
        remove(str(packed / "set"), every, str(packed / "new"))


def test_a_damaged_source_is_not_passed_on(packed):
    for shard in (packed / "set").glob("*.tar"):
        shard.write_bytes(shard.read_bytes().replace(b"dog7dog7", b"dog7dig7"))
    with pytest.raises(DataError):
        remove(str(packed / "set"), {"cat/03": ""}, str(packed / "new"))
    assert not (packed / "new" / "removed.json").exists()


def test_lists_of_keys(tmp_path):
    (tmp_path / "a.txt").write_text("cat/1\tconsent\r\n\ncat/2\n")
    assert read_keys(tmp_path / "a.txt", "why") == {"cat/1": "consent", "cat/2": "why"}
    (tmp_path / "a.jsonl").write_text('{"key": "x", "reason": "r"}\n')
    assert read_keys(tmp_path / "a.jsonl", "") == {"x": "r"}
    for name, text in (("b.txt", "\n"), ("b.jsonl", "[1]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError):
            read_keys(tmp_path / name, "")
