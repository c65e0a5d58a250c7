"""`EDF_IMAGESTORE=void`, as at CSCS: no image is kept, and no folder of that name is made."""

from __future__ import annotations

import pytest

from cordee.testing.oci import LayerEntry, OciLayout


@pytest.fixture(autouse=True)
def _no_store(env, monkeypatch, tmp_path):
    monkeypatch.setenv("EDF_IMAGESTORE", "void")
    OciLayout(tmp_path / "layout").add([[LayerEntry("opt/file", b"x")]])
    (tmp_path / "root").mkdir()


def test_files_and_folders_are_used_where_they_lie(env, tmp_path):
    (tmp_path / "env.toml").write_text('image = "./root"\n')
    assert env("resolve", "env.toml", "--json").json["root"] == {"kind": "folder", "path": f"{tmp_path}/root"}


@pytest.mark.parametrize("image", ["oci:./layout", "nowhere.io/x:1"])
@pytest.mark.parametrize("words", [["run", "env.toml", "--", "true"], ["check", "env.toml"], ["pull", "env.toml"]])
def test_what_would_have_to_be_kept_is_refused_and_nothing_is_made(image, words, env, tmp_path):
    (tmp_path / "env.toml").write_text(f'image = "{image}"\n')
    done = env(*words)
    assert done.code == {"run": 125, "check": 1, "pull": 2}[words[0]]
    assert "there is no store that the image could be kept in" in done.err
    assert "EDF_IMAGESTORE=void" in done.err
    assert not (tmp_path / "void").exists()


@pytest.mark.parametrize("words", [["images"], ["gc"], ["rm", "x"]])
def test_commands_about_the_store_say_that_there_is_none(words, env):
    done = env(*words)
    assert done.code == 2
    assert "there is no store" in done.err


def test_a_relative_path_is_refused(env, tmp_path, monkeypatch):
    monkeypatch.setenv("EDF_IMAGESTORE", "images")
    (tmp_path / "env.toml").write_text('image = "./root"\n')
    done = env("check", "env.toml")
    assert done.code == 2
    assert "EDF_IMAGESTORE is a relative path" in done.err
