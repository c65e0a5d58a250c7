"""Text packed as tokens: what is in the set, who may be killed, and what is refused."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.faces.cli import cordee as command
from cordee.systems.data.node.read.tokens.source import TokenSource
from cordee.systems.data.node.read.tokens.store import open_token_index
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.systems.data.pack.tokens import target as tokens_module
from cordee.systems.data.pack.tokens.target import read_about
from cordee.systems.data.pack.tokens.verify import verify_tokens

TEXTS = {"b.txt": "zwei\n", "a.txt": "één", "deep/c.md": "", "deep/d": "x" * 300}
LINES = ['{"text": "first", "id": 1}', "", '{"text": ""}', '{"text": "línea 3"}']


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    (folder / "e.jsonl").write_text("\n".join(LINES))
    return folder


def packed(source, to, **options):
    return pack(plan_of(str(source)), str(to), PackOptions(**options), target="tokens")


def documents(to, name="out"):
    source = TokenSource(to / name, documents=True)
    return [sample["tokens"].tolist() for sample in source.read(np.arange(source.size))]


def test_the_key_of_lines_and_the_column_of_a_table_may_have_another_name(tmp_path):
    (tmp_path / "code.jsonl").write_text('{"content": "a b", "text": 7}\n{"content": "c"}\n')
    packed(tmp_path / "code.jsonl", tmp_path / "out", name="out", text="content")
    assert [bytes(one[:-1]) for one in documents(tmp_path / "out")] == [b"a b", b"c"]
    with pytest.raises(UsageError, match="another --text"):
        packed(tmp_path / "code.jsonl", tmp_path / "out", name="out", text="text")
    table = pyarrow.table({"body": ["one", "two"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    packed(tmp_path / "a.parquet", tmp_path / "table", name="out", text="body")
    assert [bytes(one[:-1]) for one in documents(tmp_path / "table")] == [b"one", b"two"]


def test_every_file_and_every_line_of_json_becomes_a_document_with_its_end(texts, tmp_path):
    result = packed(texts, tmp_path / "out")
    expected = ["één", "zwei\n", "first", "", "línea 3", "", "x" * 300]
    found = documents(tmp_path / "out")
    assert sorted(found) == sorted([*text.encode(), 256] for text in expected)
    assert found[:2] == [[*text.encode(), 256] for text in expected[:2]]
    assert (result.samples, result.shards, result.bytes) == (7, 1, 2 * sum(map(len, found)))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["out.bin", "out.idx", "out.json"]
    about = read_about(str(tmp_path / "out" / "out"))
    assert (about["tokenizer"], about["vocabulary"], about["end_of_document"]) == ("bytes", 257, 256)
    assert verify_tokens(str(tmp_path / "out"))["documents"] == 7


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_set_is_the_same_for_any_number_of_workers_and_parts(texts, tmp_path, monkeypatch):
    packed(texts, tmp_path / "one", name="set")
    monkeypatch.setattr(tokens_module, "_PART_BYTES", 4)
    packed(texts, tmp_path / "two", name="set", workers=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def doubling(text):
    return [2 * ord(letter) for letter in text]


doubling.vocabulary = 100_000
doubling.end_of_document = 99_999


def test_a_function_of_ones_own_makes_the_tokens(texts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    packed(texts, tmp_path / "out", tokenizer="mine:doubling")
    assert open_token_index(tmp_path / "out").dtype == "<i4"
    assert documents(tmp_path / "out")[1] == [*doubling("zwei\n"), 99_999]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("words", "no such tokenizer"),
        ("no_such_module:f", "cannot be loaded"),
        ("os:no_such", "cannot be loaded"),
        ("os:name", "no function"),
        ("nothing.json", "tokenizers|cannot be read"),
    ],
)
def test_a_tokenizer_that_is_none_is_refused(texts, tmp_path, given, said):
    with pytest.raises((UsageError, DataError), match=said):
        packed(texts, tmp_path / "out", tokenizer=given)


@pytest.mark.parametrize(("made", "said"), [([1 << 40], "beyond its vocabulary"), ([0.5], "whole numbers")])
def test_a_function_that_makes_no_tokens_is_refused(texts, tmp_path, monkeypatch, made, said):
    monkeypatch.setattr(sys.modules[__name__], "broken", lambda text: made, raising=False)
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    with pytest.raises(DataError, match=said):
        packed(texts, tmp_path / "out", tokenizer="mine:broken")


def test_what_is_no_text_is_named_or_left_out_as_asked(texts, tmp_path):
    (texts / "picture.png").write_bytes(b"\x89PNG\xff")
    (texts / "bad.jsonl").write_text('{"text": "good"}\n{"txt": 1}\n')
    with pytest.raises(DataError, match=r"cannot be read") as error:
        packed(texts, tmp_path / "out")
    assert "no JSON object" in str(error.value)
    result = packed(texts, tmp_path / "out", skip_unreadable=True, restart=True)
    left_out = " ".join(result.left_out["unreadable"])
    assert "picture.png: no text in UTF-8 (byte 0)" in left_out
    assert (
        "bad.jsonl: line 2 is no JSON object with a text in `text`; --text names another key, its first 1 documents are kept"
        in left_out
    )
    assert result.samples == 8


def test_a_set_that_is_there_is_not_written_over_by_chance(texts, tmp_path):
    made = packed(texts, tmp_path / "out")
    again = packed(texts, tmp_path / "out")
    assert (made.already, again.already) == (False, True)
    assert (again.id, again.samples, again.bytes) == (made.id, made.samples, made.bytes)
    (texts / "more.txt").write_text("more")
    with pytest.raises(UsageError, match=r"there already.*another source, or it has changed"):
        packed(texts, tmp_path / "out")
    assert packed(texts, tmp_path / "out", restart=True).samples == 8


def harmed(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_verify_finds_a_changed_token_and_says_where_nothing_can_be_compared(texts, tmp_path):
    packed(texts, tmp_path / "out")
    harmed(tmp_path / "out" / "out.bin", 3)
    with pytest.raises(CorruptDataError, match="not those that were packed"):
        verify_tokens(str(tmp_path / "out"))
    (tmp_path / "out" / "out.json").unlink()
    assert not verify_tokens(str(tmp_path / "out"))["checked"]


def slowly(text):
    time.sleep(0.004)
    return [ord(letter) for letter in text]


slowly.vocabulary, slowly.end_of_document = 1 << 16, 0


def test_a_packing_that_is_killed_again_and_again_ends_with_the_same_set(tmp_path, monkeypatch):
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(60):
        (folder / f"{number}.txt").write_text(f"text {number} " * 5)
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    monkeypatch.setattr(tokens_module, "_PART_BYTES", 200)
    packed(folder, tmp_path / "whole", name="set", tokenizer="mine:slowly")
    kills, context = 0, multiprocessing.get_context("fork")
    for attempt in range(200):
        arguments = {"name": "set", "tokenizer": "mine:slowly", "workers": 1 + attempt % 2}
        process = context.Process(target=packed, args=(folder, tmp_path / "killed"), kwargs=arguments)
        process.start()
        process.join(0.03 + 0.01 * attempt)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            kills += 1
        if (tmp_path / "killed" / "set.idx").exists():
            break
    assert kills >= 2
    assert packed(folder, tmp_path / "killed", name="set", tokenizer="mine:slowly").already
    whole = contents(tmp_path / "whole")
    assert {name: (tmp_path / "killed" / name).read_bytes() for name in whole} == whole
    assert json.loads(whole["set.json"])["documents"] == 60


def test_the_commands_pack_and_verify_a_token_set(texts, tmp_path):
    def called(*words):
        done = CliRunner().invoke(command, ["data", *words, "--json"])
        return done.exit_code, json.loads(done.stdout)

    to = str(tmp_path / "set")
    code, made = called("pack", str(texts), "--as", "tokens", "--to", to)
    assert (code, made["samples"], made["format"]) == (0, 7, "tokens")
    code, found = called("verify", to)
    assert (code, found["ok"], found["contents_checked"], found["samples"]) == (0, True, True, 7)
    harmed(tmp_path / "set" / "set.bin", 0)
    code, found = called("verify", to)
    assert (code, found["ok"]) == (1, False)
    assert "not those that were packed" in found["damaged"][0]["reason"]


def test_of_a_table_only_its_column_of_text_is_documents(tmp_path):
    rows = pyarrow.table({"text": ["hello", "world!"], "id": [1, 2]})
    pyarrow.parquet.write_table(rows, tmp_path / "a.parquet")
    packed(tmp_path / "a.parquet", tmp_path / "out")
    assert documents(tmp_path / "out") == [[*text, 256] for text in (b"hello", b"world!")]
