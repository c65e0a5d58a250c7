"""`cordee env explain`: who gave each value, and what would hold otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cordee.core.errors import UsageError
from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.edf import resolve
from cordee.systems.environments.edf.explain import explain, explain_key


def by_key(done):
    return {value["key"]: value for value in done.json["values"]}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "base.toml").write_text('image = "./base"\nmounts = ["/a"]\n[env]\nX = "base"\n')
    (tmp_path / "env.toml").write_text(
        'base_environment = "./base.toml"\nimage = "./root"\nmounts = [\n  "/a",\n  "/b"]\n'
        '[env]\nX = "own"\nPATH = "${PATH}:/custom"\n'
    )
    return tmp_path


def test_every_value_has_its_line_and_what_would_hold_otherwise(env, files):
    values = by_key(env("explain", "env.toml", "--json"))
    image = values["image"]
    assert (image["value"], image["kind"], image["given"]) == (f"{files}/root", "edf", "./root")
    assert (image["file"], image["line"]) == (f"{files}/env.toml", 2)
    assert image["otherwise"] == [
        {"kind": "edf", "file": f"{files}/base.toml", "line": 1, "value": "./base"},
        {"kind": "default", "file": None, "line": None, "value": ""},
    ]
    assert (values["mounts[0]"]["line"], values["mounts[0]"]["file"]) == (2, f"{files}/base.toml")
    assert [each["line"] for each in values["mounts[0]"]["otherwise"]] == [4]
    assert values["mounts[1]"]["line"] == 5
    assert values["writable"]["kind"] == "default"
    assert values["env.PATH"]["uses"] == [{"name": "PATH", "kind": "host", "value": "/usr/bin:/bin"}]
    assert values["env.PATH"]["otherwise"][-1]["kind"] == "host"


def test_people_read_file_line_and_value(env, files):
    out = env("explain", "env.toml", "env.X").out
    assert out == f"env.X = own\n    {files}/env.toml:7: own\n    otherwise {files}/base.toml:4: base\n"


def test_one_key_or_all_below_it_can_be_asked_for(env, files):
    assert set(by_key(env("explain", "env.toml", "mounts", "--json"))) == {"mounts[0]", "mounts[1]"}
    assert set(by_key(env("explain", "env.toml", "env", "--json"))) == {"env.X", "env.PATH"}
    home = by_key(env("explain", "env.toml", "env.HOME", "--json"))["env.HOME"]
    assert (home["kind"], home["value"]) == ("host", "/users/me")
    done = env("explain", "env.toml", "mount")
    assert (done.code, "did you mean mounts?" in done.err) == (2, True)


def test_what_only_the_host_says_is_not_listed(env, files, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    assert "hush" not in env("explain", "env.toml").out


def test_the_image_goes_before_the_host_and_behind_the_edf(files):
    config = ImageConfig(env={"PATH": "/opt/bin", "LANG": "C", "X": "image"}, workdir="/opt")
    host = {"PATH": "/usr/bin", "LANG": "de", "X": "host"}
    found = resolve("./env.toml", cwd=files, variables=host, config_of=lambda image: config)
    values = {each.key: each for each in explain(found, config, host)}
    assert [(each.kind, each.value) for each in values["env.X"].origin.all()] == [
        ("edf", "own"),
        ("edf", "base"),
        ("image", "image"),
        ("host", "host"),
    ]
    assert [(each.kind, each.value) for each in values["env.LANG"].origin.all()] == [("image", "C"), ("host", "de")]
    assert (values["workdir"].value, values["workdir"].origin.kind) == ("/opt", "image")
    assert values["env.PATH"].value == "/opt/bin:/custom"
    assert values["env.PATH"].uses == (("PATH", "image", "/opt/bin"),)


def test_an_empty_workdir_is_the_images(files):
    (files / "env.toml").write_text('image = "./root"\nworkdir = ""\n')
    config = ImageConfig(workdir="/opt")
    found = resolve("./env.toml", cwd=files, variables={})
    value = explain_key("workdir", found, config, {})[0]
    assert (value.value, value.origin.kind) == ("/opt", "image")


def test_what_the_image_runs_by_itself_is_said(files):
    config = ImageConfig(entrypoint=("/init", "--"), command=("bash",))
    found = resolve("./env.toml", cwd=files, variables={"PATH": "/bin"})
    values = {each.key: (each.value, each.origin.kind) for each in explain_key("image", found, config, {})}
    assert values["image.entrypoint"] == (["/init", "--"], "image")
    assert values["image.command"] == (["bash"], "image")


def test_the_environment_that_a_command_gets_is_the_one_that_is_explained(files):
    config = ImageConfig(env={"PATH": "/opt/bin", "X": "image", "Y": "image"})
    host = {"PATH": "/usr/bin", "HOME": "/users/me"}
    found = resolve("./env.toml", cwd=files, variables=host, config_of=lambda image: config)
    variables = replace(found.environment, config=config).variables(host)
    explained = {name: explain_key(f"env.{name}", found, config, host)[0].value for name in variables}
    assert explained == variables


def test_a_key_that_is_not_there_is_refused_with_the_nearest(files):
    found = resolve("./env.toml", cwd=files, variables={"PATH": "/bin"})
    with pytest.raises(UsageError) as caught:
        explain_key("env.PAHT", found, ImageConfig(), {})
    assert caught.value.next == "did you mean env.PATH?"
