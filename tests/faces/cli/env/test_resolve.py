"""`cordee env resolve`: one document, or an EDF that resolves to the same."""

from __future__ import annotations

KEYS = {"schema", "name", "image", "workdir", "entrypoint", "writable", "mounts", "devices", "env", "annotations"}
OWN_KEYS = {"startup", "startup_s", "overlay", "patches", "accounts"}


def test_the_document_has_the_keys_of_the_contract(env, tmp_path):
    (tmp_path / "base.toml").write_text('image = "ubuntu:24.04"\nmounts = ["/data:/in:ro+private"]\n')
    (tmp_path / "env.toml").write_text(
        'base_environment = "./base.toml"\n[env]\nX = "two\\nlines"\n[annotations.a]\nb = true\n'
    )
    done = env("resolve", "env.toml", "--json")
    assert (done.code, done.err) == (0, "")
    assert KEYS | OWN_KEYS | {"root", "config", "additions"} == set(done.json)
    assert done.json["mounts"] == [{"source": "/data", "target": "/in", "flags": ["ro", "private"]}]
    assert (done.json["image"], done.json["workdir"], done.json["entrypoint"]) == ("ubuntu:24.04", None, False)
    assert (done.json["env"], done.json["annotations"]) == ({"X": "two\nlines"}, {"a.b": "true"})


def test_the_text_is_an_edf_that_resolves_to_the_same(env, tmp_path):
    (tmp_path / "base.toml").write_text('image = "./root"\nworkdir = "./x"\n')
    (tmp_path / "env.toml").write_text(
        'base_environment = "./base.toml"\nmounts = ["${HOME}", "./d:/d:ro"]\ndevices = ["/dev/null"]\n'
        '[env]\nP = "${PATH}:$${X}"\nGONE = ""\n'
    )
    before = env("resolve", "env.toml", "--json").json
    text = env("resolve", "env.toml").out
    assert "base_environment" not in text
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "env.toml").write_text(text)
    assert env("resolve", "./elsewhere/env.toml", "--json").json == before


def test_root_and_config_are_there_where_the_image_is_on_this_machine(env, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "env.toml").write_text('image = "./root"\n')
    assert env("resolve", "env.toml", "--json").json["root"] == {"kind": "folder", "path": str(tmp_path / "root")}
    (tmp_path / "env.toml").write_text('image = "nowhere.io/x:1"\n')
    assert env("resolve", "env.toml", "--json").json["root"] is None


def test_a_wrong_document_is_exit_code_2_with_every_fault(env, tmp_path):
    (tmp_path / "env.toml").write_text('imgae = "x"\nworkdir = 3\n')
    done = env("resolve", "env.toml")
    assert done.code == 2
    assert f"{tmp_path}/env.toml:1: error: an EDF has no key imgae" in done.err
    assert f"{tmp_path}/env.toml:2: error: workdir is not a text in quotes" in done.err
    document = env("resolve", "env.toml", "--json").json
    assert [finding["line"] for finding in document["findings"]] == [1, 2]
    error = document["error"]
    assert (error["kind"], error["line"], error["next"]) == ("document", 1, "did you mean image?")


def test_a_lenient_reading_warns_on_standard_error_alone(env, tmp_path):
    (tmp_path / "env.toml").write_text('image = "x"\nsite = 1\n')
    assert env("resolve", "env.toml", "--json").code == 2
    done = env("resolve", "env.toml", "--lenient", "--json")
    assert (done.code, done.json["image"]) == (0, "x")
    assert "it is kept and not used" in done.err


def test_the_search_path_of_a_profile_comes_after_the_persons(env, tmp_path, monkeypatch):
    for folder, image in (("mine", "mine"), ("site", "site")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "both.toml").write_text(f'image = "{image}"\n')
    (tmp_path / "site" / "only.toml").write_text('image = "site"\n')
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "alps.toml").write_text(f'[environment]\nsearch_path = ["{tmp_path}/site"]\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    monkeypatch.setenv("EDF_PATH", str(tmp_path / "mine"))
    assert env("resolve", "both", "--on", "alps", "--json").json["image"] == "mine"
    assert env("resolve", "only", "--on", "alps", "--json").json["image"] == "site"
    assert env("resolve", "only", "--json").code == 2


def test_an_unknown_command_names_the_nearest(env):
    done = env("reslove", "env.toml")
    assert done.code == 2
    assert "did you mean 'resolve'?" in done.err


def test_tables_of_cordees_own_are_carried_as_they_are(env, tmp_path):
    (tmp_path / "env.toml").write_text(
        'image = "x"\n[build]\nfrom = "${NOT_LOOKED_AT}"\n"odd key" = [1, 2.5, true, { a = 1979-05-27 }]\n[stack]\n'
    )
    before = env("resolve", "env.toml", "--json").json["additions"]
    assert before["build"]["from"] == "${NOT_LOOKED_AT}"
    (tmp_path / "again.toml").write_text(env("resolve", "env.toml").out)
    assert env("resolve", "again.toml", "--json").json["additions"] == before
