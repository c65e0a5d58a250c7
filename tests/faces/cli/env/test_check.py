"""`cordee env check`: each path, image, device and capability that is missing, by its name and line."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from importlib import import_module

import pytest

from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.node.document import ContainerRoot
from cordee.systems.environments.node.engines import ENGINES
from cordee.systems.environments.node.engines._base import Engine, MissingCapability
from cordee.testing.oci import LayerEntry, OciLayout


class Ready(Engine):
    """An engine that can run everything."""

    def missing(self, environment):
        return []


class Lacking(Engine):
    """An engine that lacks user namespaces."""

    def missing(self, environment):
        return [MissingCapability("user-namespaces", "user namespaces are switched off", "use --engine podman")]


@pytest.fixture(autouse=True)
def _engines(monkeypatch):
    for name in list(ENGINES):
        monkeypatch.delitem(ENGINES, name)
    monkeypatch.setitem(ENGINES, "podman", f"{__name__}:Ready")
    monkeypatch.setattr(
        "cordee.systems.environments.node.engines.import_module",
        lambda name: __import__("types").SimpleNamespace(**globals()),
    )


def rules(done):
    return [(finding["rule"], finding["line"]) for finding in done.json["findings"] if finding["severity"] == "error"]


def test_what_can_run_is_exit_code_0_with_the_engine(env, tmp_path):
    (tmp_path / "root" / "work").mkdir(parents=True)
    (tmp_path / "env.toml").write_text(
        'image = "./root"\nworkdir = "/work"\nmounts = ["/tmp"]\ndevices = ["/dev/null"]\n'
    )
    done = env("check", "env.toml", "--json")
    assert done.code == 0
    assert (done.json["valid"], done.json["runnable"], done.json["engine"], done.json["findings"]) == (
        True,
        True,
        "podman",
        [],
    )
    assert env("check", "env.toml").out == "env.toml: can run here, by the engine podman\n"


def test_everything_that_is_missing_is_named_with_its_line(env, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "no.sqsh").write_text("not squashfs")
    (tmp_path / "env.toml").write_text(
        'image = "./root"\nworkdir = "/work"\nmounts = [\n"/nowhere/x:/x",\n"./no.sqsh:/y:sqsh"]\ndevices = ["/dev/none"]\n'
    )
    done = env("check", "env.toml", "--json")
    assert (done.code, done.json["valid"], done.json["runnable"]) == (1, True, False)
    assert rules(done) == [("missing-source", 4), ("bad-squashfs", 5), ("missing-device", 6), ("missing-workdir", 2)]
    text = env("check", "env.toml")
    assert (text.code, text.out) == (1, "env.toml: cannot run here\n")
    assert "the source of a mount is not there: /nowhere/x" in text.err


@pytest.mark.parametrize(
    ("image", "text"),
    [("./none.sqsh", "no such image"), ("./text.sqsh", "squashfs"), ("registry.local/team/x:1", "not in the store")],
)
def test_an_image_that_is_not_there_or_none_is_named_with_its_line(image, text, env, tmp_path):
    (tmp_path / "text.sqsh").write_text("text")
    (tmp_path / "env.toml").write_text(f'\nimage = "{image}"\n')
    done = env("check", "env.toml", "--json")
    assert rules(done) == [("missing-image", 2)]
    assert text in done.json["findings"][0]["text"]


def test_a_workdir_is_found_through_links_of_the_image_and_in_mounts(env, tmp_path):
    (tmp_path / "root" / "real" / "deep").mkdir(parents=True)
    (tmp_path / "root" / "link").symlink_to("/real")
    (tmp_path / "root" / "out").symlink_to("/tmp")
    (tmp_path / "data" / "in").mkdir(parents=True)
    found = {}
    for workdir in ("/link/deep", "/real/../link", "/data/in", "/data/none", "/out", "/none"):
        (tmp_path / "env.toml").write_text(f'image = "./root"\nworkdir = "{workdir}"\nmounts = ["./data:/data"]\n')
        found[workdir] = env("check", "env.toml", "--json").code
    assert found == {"/link/deep": 0, "/real/../link": 0, "/data/in": 0, "/data/none": 1, "/out": 1, "/none": 1}


def test_a_capability_that_is_missing_is_named_with_what_to_do(env, tmp_path, monkeypatch):
    monkeypatch.delitem(ENGINES, "podman")
    monkeypatch.setitem(ENGINES, "namespace", f"{__name__}:Lacking")
    (tmp_path / "env.toml").write_text("")
    done = env("check", "env.toml", "--json")
    assert (done.code, done.json["engine"]) == (1, None)
    finding = done.json["findings"][0]
    assert (finding["rule"], finding["text"]) == ("user-namespaces", "namespace: user namespaces are switched off")
    assert finding["next"] == "use --engine podman"
    monkeypatch.setitem(ENGINES, "podman", f"{__name__}:Ready")
    assert env("check", "env.toml", "--json").json["engine"] == "podman"
    assert env("check", "env.toml", "--engine", "namespace", "--json").code == 1


class WithoutGpu(Engine):
    """An engine on a machine without the device that is asked for."""

    def missing(self, environment):
        return [MissingCapability("gpu", "this machine has no NVIDIA GPU", "take the device out", "nvidia.com/gpu=all")]


def test_a_device_that_an_engine_misses_is_named_as_it_stands_in_the_edf_with_its_line(env, tmp_path, monkeypatch):
    monkeypatch.setitem(ENGINES, "namespace", f"{__name__}:WithoutGpu")
    monkeypatch.setitem(ENGINES, "podman", f"{__name__}:WithoutGpu")
    (tmp_path / "env.toml").write_text('image = ""\ndevices = ["nvidia.com/gpu=all"]\n')
    found = env("check", "env.toml", "--json").json["findings"][0]
    assert (found["rule"], found["line"], found["given"]) == ("gpu", 2, "nvidia.com/gpu=all")


def test_what_engines_lack_that_nobody_asked_for_is_no_error(env, tmp_path, monkeypatch):
    monkeypatch.setitem(ENGINES, "namespace", f"{__name__}:WithoutGpu")
    monkeypatch.setitem(ENGINES, "podman", f"{__name__}:Lacking")
    (tmp_path / "env.toml").write_text("")
    findings = env("check", "env.toml", "--json").json["findings"]
    assert [(each["severity"], each["text"].partition(":")[0]) for each in findings] == [
        ("error", "namespace"),
        ("info", "podman"),
    ]


def test_a_wrong_document_is_exit_code_2_with_its_findings(env, tmp_path):
    (tmp_path / "env.toml").write_text('image = "${NOWHERE}"\nmounts = ["x:/y"]\n')
    done = env("check", "env.toml", "--json")
    assert (done.code, done.json["valid"], done.json["runnable"]) == (2, False, False)
    assert rules(done) == [("undefined-variable", 1), ("bad-mount", 2)]


def test_an_image_for_another_architecture_is_named(env, tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")

    def located(environment, store, **options):
        return replace(
            environment,
            root=ContainerRoot("squashfs", str(tmp_path / "x.sqsh")),
            config=ImageConfig(architecture="arm64"),
        )

    monkeypatch.setattr(import_module("cordee.systems.environments.images.locate"), "locate", located)
    (tmp_path / "env.toml").write_text('image = "./x.sqsh"\n')
    done = env("check", "env.toml", "--json")
    assert rules(done) == [("wrong-architecture", 1)]
    assert "for arm64, and this machine is riscv64" in done.json["findings"][0]["text"]


def warnings(done):
    return [(finding["rule"], finding["line"]) for finding in done.json["findings"] if finding["severity"] == "warn"]


def test_what_will_not_happen_is_warned_of(env, tmp_path, monkeypatch):
    monkeypatch.delitem(ENGINES, "podman")
    monkeypatch.setitem(ENGINES, "namespace", f"{__name__}:Ready")
    (tmp_path / "root" / "x").mkdir(parents=True)
    (tmp_path / "env.toml").write_text(
        'image = "./root"\nentrypoint = true\nmounts = [\n"/tmp:/x",\n"/usr:/x"]\n'
        '[annotations]\ncom.hooks.cxi.enabled = "true"\ncom.hooks.ssh.enabled = "false"\n'
        'com.pyxis.container.writable = "true"\n'
    )
    done = env("check", "env.toml", "--json")
    assert done.code == 0
    assert warnings(done) == [
        ("hidden-mount", 5),
        ("no-entrypoint", 2),
        ("annotation-not-read", 9),
        ("hook-lacks", 7),
    ]


def test_an_annotation_that_is_almost_one_of_a_hook_is_warned_of(env, tmp_path):
    (tmp_path / "env.toml").write_text('[annotations]\ncom.hooks.cxi.enable = "true"\ncom.site.own = "x"\n')
    done = env("check", "env.toml", "--json")
    assert (done.code, warnings(done)) == (0, [("unknown-hook", 2)])
    assert done.json["findings"][0]["next"] == "did you mean com.hooks.cxi.enabled?"


def test_a_site_whose_engine_is_an_option_of_srun_is_said_to_be_one(env, tmp_path, monkeypatch):
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "alps.toml").write_text('[environment]\nengine = "step"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    (tmp_path / "env.toml").write_text("")
    done = env("check", "env.toml", "--on", "alps", "--json")
    assert (done.code, done.json["engine"]) == (0, "step")
    assert [finding["rule"] for finding in done.json["findings"]] == ["engine-of-the-site"]


def test_an_archive_that_is_not_imported_yet_is_said_and_nothing_is_imported(env, tmp_path):
    OciLayout(tmp_path / "layout").add([[LayerEntry("file", b"x")]])
    (tmp_path / "env.toml").write_text('image = "oci:./layout"\n')
    done = env("check", "env.toml", "--json")
    assert (done.code, [finding["rule"] for finding in done.json["findings"]]) == (0, ["image-not-imported"])
    assert not (tmp_path / "store").exists()
    OciLayout(tmp_path / "layout").add([[LayerEntry("file", b"x")]], architecture="s390x")
    done = env("check", "env.toml", "--json")
    assert (done.code, rules(done)) == (1, [("missing-image", 1)])
    assert "s390x" in json.dumps(done.json)


def test_a_workdir_that_cannot_be_looked_at_is_unknown_and_not_missing(env, tmp_path, monkeypatch):
    (tmp_path / "root").mkdir()
    subprocess.run(["mksquashfs", tmp_path / "root", tmp_path / "x.sqsh", "-quiet", "-no-progress"], check=True)
    (tmp_path / "env.toml").write_text('image = "./x.sqsh"\nworkdir = "/none"\n')
    assert rules(env("check", "env.toml", "--json")) == [("missing-workdir", 2)]
    monkeypatch.setenv("PATH", str(tmp_path))
    done = env("check", "env.toml", "--json")
    assert (done.code, warnings(done)) == (0, [("image-unknown", 1), ("workdir-unknown", 2)])


def test_an_engine_that_there_is_not_is_a_wrong_command(env, tmp_path):
    (tmp_path / "env.toml").write_text("")
    done = env("check", "env.toml", "--engine", "podmann")
    assert (done.code, "did you mean podman?" in done.err) == (2, True)


def test_an_empty_table_asks_for_nothing(env, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "env.toml").write_text('image = "./root"\n[stack]\n')
    assert env("check", "env.toml").code == 0
