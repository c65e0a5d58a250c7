"""`cordee env images`, `pull`, `rm` and `gc` as people call them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from cordee.faces.cli import main
from cordee.testing.oci import LayerEntry, OciLayout


class Here:
    """`cordee env` in this process, in one folder: the commands are the same, and start sooner."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Return what a command prints."""
        with pytest.raises(SystemExit) as ended:
            main(["env", *arguments])
        printed = self._capsys.readouterr()
        assert ended.value.code == code, printed
        return printed.out

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return the one JSON document that a command prints."""
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    monkeypatch.chdir(tmp_path)
    return Here(capsys)


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OciLayout:
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))
    layout = OciLayout(tmp_path / "layout")
    layout.add([[LayerEntry("a", b"1", mode=0o4755)]], config={"Env": ["A=1"]})
    return layout


@pytest.mark.usefixtures("real")
def test_an_archive_is_pulled_listed_and_removed(cordee, layout, tmp_path):
    digest = cordee.json("env", "pull", "oci:layout")["pulled"][0]["digest"]
    [image] = cordee.json("env", "images", "--verify")["images"]
    assert (image["digest"], image["names"], image["damage"]) == (digest, [f"oci:{layout.folder}"], None)
    assert image["contents"]["set_id"] == 1
    assert f"{digest[7:19]}    4.1 kB" in cordee("env", "images").stdout
    removed = cordee.json("env", "rm", "--force", "oci:layout")
    assert [each["size_bytes"] for each in removed["removed"]] == [4096]
    assert cordee.json("env", "images")["images"] == []


def test_a_pull_says_what_has_changed(env, layout):
    assert "new" in env("pull", "oci:layout")
    assert "as it was" in env("pull", "oci:layout")
    (layout.folder / "index.json").unlink()
    OciLayout(layout.folder).add([[LayerEntry("a", b"2")]])
    assert "changed: it was sha256:" in env("pull", "oci:layout")


def test_the_image_of_an_edf_is_pulled(env, layout, tmp_path):
    (tmp_path / "env.toml").write_text('image = "oci:layout"\n')
    assert env.json("pull", "./env.toml")["pulled"][0]["reference"] == f"oci:{layout.folder}"
    (tmp_path / "none.toml").write_text('workdir = "/"\n')
    assert "the environment has no image" in env.json("pull", "./none.toml", code=2)["error"]["text"]


def test_what_is_used_where_it_lies_is_not_pulled(env, layout, tmp_path):
    (tmp_path / "root").mkdir()
    error = env.json("pull", "./root", code=2)["error"]
    assert "used where it lies" in error["text"]
    assert "no such image" in env.json("pull", "./rot", code=2)["error"]["text"]


def test_what_an_import_has_left_is_cleared_away(env, layout, tmp_path):
    env.json("pull", "oci:layout")
    left = tmp_path / "store/tmp/elsewhere-0-0-1-1-abcdefgh"
    left.mkdir()
    os.utime(left, (0, 0))
    shown = env.json("gc", "--dry-run")
    assert ([each["path"] for each in shown["things"]], shown["removed"]) == ([str(left)], False)
    assert left.exists()
    assert "removed 1 things" in env("gc")
    assert not left.exists()
    assert len(env.json("images")["images"]) == 1


def test_an_image_that_was_not_used_for_long_goes_when_asked(env, layout, tmp_path):
    env.json("pull", "oci:layout")
    [sidecar] = (tmp_path / "store/images").glob("*/image.json")
    then = time.time() - 40 * 86400
    os.utime(sidecar, (then, then))
    assert env.json("gc")["things"] == []
    assert env.json("gc", "--older-than", "90d")["things"] == []
    assert len(env.json("gc", "--older-than", "30d")["things"]) == 1
    assert env.json("images")["images"] == []


def test_a_damaged_image_makes_the_code_1(env, layout, tmp_path):
    env.json("pull", "oci:layout")
    [image] = (tmp_path / "store/images").glob("*/root.squashfs")
    data = image.read_bytes()
    image.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "damaged" in env.json("images", "--verify", code=1)["images"][0]["damage"]


def test_the_store_is_the_flag_or_what_the_profile_says(env, layout, tmp_path, monkeypatch):
    monkeypatch.delenv("EDF_IMAGESTORE")
    monkeypatch.delenv("SCRATCH", raising=False)
    (tmp_path / "site.toml").write_text('name = "site"\n[environment]\nstore = "$HERE/site-store"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    monkeypatch.setenv("HERE", str(tmp_path))
    assert env.json("images", "--on", "site")["store"] == str(tmp_path / "site-store")
    assert env.json("images", "--store", "mine")["store"] == str(tmp_path / "mine")


def test_a_time_that_is_none_is_refused(env):
    assert env.json("gc", "--older-than", "soon", code=2)["error"]["given"] == "soon"
