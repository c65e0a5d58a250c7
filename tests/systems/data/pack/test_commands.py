"""`cordee data pack`, `verify` and `unpack` as a person or a script calls them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.systems.data.cli import command


def cordee(*arguments: str):
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def test_a_data_set_goes_round(image_folder, tmp_path):
    out = str(tmp_path / "set")
    packed = json.loads(cordee("pack", str(image_folder), "--to", out, "--workers", "1", "--json").stdout)
    assert packed["schema"] == "cordee.systems.data.pack/1"
    assert (packed["shards"], packed["samples"], packed["files"], packed["classes"]) == (1, 40, 40, 4)
    assert packed["bytes"] > 0
    assert packed["seconds"] > 0
    verified = json.loads(cordee("verify", out, "--workers", "1", "--json").stdout)
    assert (verified["ok"], verified["id"], verified["damaged"]) == (True, packed["id"], [])
    back = json.loads(cordee("unpack", out, "--to", str(tmp_path / "back"), "--workers", "1", "--json").stdout)
    assert (back["files"], back["bytes"]) == (40, packed["bytes"])


def test_people_are_told_what_comes_next(image_folder, tmp_path):
    (image_folder / "n00" / "link.jpg").symlink_to("nowhere")
    done = cordee("pack", str(image_folder), "--to", str(tmp_path / "birds"), "--workers", "1")
    assert "birds: 40 samples, " in done.stdout
    assert "an epoch opens 1 file instead of 40" in done.stdout
    assert "[data.birds]" in done.stdout
    assert f"cordee data bench {tmp_path}/birds" in done.stdout
    assert "left out, link, not followed: 1 (n00/link.jpg)" in done.stderr
    assert "40 samples" in cordee("pack", str(tmp_path / "birds"), "--index-only", "--to", str(tmp_path / "i")).stdout


def test_a_repeated_command_says_that_nothing_was_left_to_do(image_folder, tmp_path):
    arguments = ["pack", str(image_folder), "--to", str(tmp_path / "birds"), "--workers", "1"]
    made = json.loads(cordee(*arguments, "--json").stdout)
    again = cordee(*arguments)
    assert again.exit_code == 0
    assert "birds: already packed at 20" in again.stdout
    assert "40 samples, " in again.stdout
    assert "nothing to do" in again.stdout
    told = json.loads(cordee(*arguments, "--json").stdout)
    assert (made["already"], told["already"], told["id"]) == (False, True, made["id"])


def test_files_are_only_counted_where_there_were_files(tmp_path):
    (tmp_path / "two.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    done = cordee("pack", str(tmp_path / "two.jsonl"), "--as", "tokens", "--to", str(tmp_path / "out"))
    assert "2 samples" in done.stdout
    assert "an epoch opens" not in done.stdout


def test_damage_is_told_and_is_exit_code_1(image_folder, tmp_path):
    out = tmp_path / "set"
    cordee("pack", str(image_folder), "--to", str(out), "--workers", "1")
    shard = next(out.glob("*.tar"))
    data = bytearray(shard.read_bytes())
    data[600] ^= 1
    shard.write_bytes(data)
    done = cordee("verify", str(out), "--workers", "1")
    assert done.exit_code == 1
    assert f"damaged: n00/img_0000 (jpg), byte 512 of {shard.name}: its bytes are damaged" in done.stdout
    assert "1 samples are damaged" in done.stdout
    done = cordee("unpack", str(out), "--to", str(tmp_path / "back"), "--workers", "1")
    assert done.exit_code == 1
    assert "damaged, not written: n00/img_0000.jpg" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "where to pack to is missing"),
        (["--to", "x", "--shard-size", "large"], "invalid --shard-size"),
        (["--to", "x", "--shard-size", "1kB"], "too small"),
        (["--to", "x", "--as", "rar"], "no such format"),
        (["--to", "x", "--split", "middle"], "no such way"),
        (["--to", "x", "--labels", "many"], "no such way"),
    ],
)
def test_wrong_options_are_told(image_folder, tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=text):
        cordee("pack", str(image_folder), *arguments)
    assert not (tmp_path / "x").exists()
