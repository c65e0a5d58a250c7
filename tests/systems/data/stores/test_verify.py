"""`cordee data verify` of what lies in an object store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cordee.systems.data.cli.verify import command
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.wire.stores import open_store


@pytest.fixture
def tokens(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a folder with a token set."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "corpus.txt").write_text("\n".join(f"a line of {number} words" for number in range(5)))
    pack(plan_of(str(tmp_path / "corpus.txt")), str(tmp_path / "out"), PackOptions(name="corpus"), target="tokens")
    store = open_store(s3)
    for name in ("corpus.bin", "corpus.idx", "corpus.json"):
        store.write(name, [(tmp_path / "out" / name).read_bytes()])
    return s3


def verified(address: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(command, [address, "--json"])
    return done.exit_code, json.loads(done.stdout or "{}")


@pytest.mark.parametrize("named", ["", "/corpus", "/corpus.bin", "/corpus.idx"])
def test_a_token_set_is_compared_with_its_check_sum(tokens: str, named: str) -> None:
    code, said = verified(tokens + named)
    assert (code, said["ok"], said["contents_checked"], said["samples"]) == (0, True, True, 1)


def test_damaged_tokens_are_told_and_without_a_check_sum_that_is_said(tokens: str) -> None:
    store = open_store(tokens)
    data = store.read("corpus.bin")
    store.write("corpus.bin", [b"\xff" + data[1:]])
    code, said = verified(tokens)
    assert (code, said["ok"]) == (1, False)
    assert "not those that were packed" in said["damaged"][0]["reason"]
    store.delete("corpus.json")
    code, said = verified(tokens)
    assert (code, said["contents_checked"]) == (0, False)
    store.write("corpus.bin", [data[:-2]])
    code, said = verified(tokens)
    assert code == 1
    assert "cut off" in said["damaged"][0]["reason"]


def test_a_packed_data_set_is_verified_as_one(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    for number in range(9):
        (tmp_path / f"files/{number}.bin").write_bytes(bytes(3000))
    pack(plan_of(str(tmp_path / "files")), s3, PackOptions(name="x"))
    for address in (s3, f"{s3}/dataset.index"):
        code, said = verified(address)
        assert (code, said["ok"], said["samples"]) == (0, True, 9)


def test_where_nothing_is_the_error_says_so(s3: str) -> None:
    done = CliRunner().invoke(command, [s3])
    assert done.exit_code != 0
    assert "it is not there" in str(done.exception)
