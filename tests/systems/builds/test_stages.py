"""Stages of a site: an image comes into one only if it is what the stage asks for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import Kitchen


def site(kitchen: Kitchen, production: str = "") -> None:
    folder = kitchen.folder / "clusters"
    folder.mkdir(exist_ok=True)
    (folder / "local.toml").write_text(
        f'[environment.stages.test]\nstore = "{kitchen.folder}/test"\n'
        f'[environment.stages.production]\nstore = "{kitchen.folder}/production"\nafter = "test"\n{production}\n'
    )


def refused(kitchen: Kitchen, stage: str, code: int = 1) -> str:
    done = kitchen.call("promote", "env.toml", stage, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return str(json.loads(done.stdout)["error"]["text"])


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_an_image_goes_through_the_stages_in_their_order(kitchen: Kitchen):
    site(kitchen)
    made = kitchen.build()
    assert "no such stage" in refused(kitchen, "prod", 2)
    assert "not in the stage test" in refused(kitchen, "production")
    for stage in ("test", "production"):
        done = kitchen.call("promote", "env.toml", stage, "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["stage"], said["digest"]) == (stage, made["digest"])
    assert Path(said["path"]).is_file()
    profile = kitchen.folder / "clusters/local.toml"
    profile.write_text(profile.read_text().replace('after = "test"', 'after = "tets"'))
    assert "comes after one that the site does not have" in refused(kitchen, "production", 2)
    there = {"EDF_IMAGESTORE": str(kitchen.folder / "production")}
    done = kitchen.call("run", "env.toml", "--", "cat", "/etc/two", env=there)
    assert (done.returncode, done.stdout) == (0, "two\n"), done.stderr


@pytest.mark.usefixtures("real")
def test_a_stage_takes_only_what_is_signed_by_one_of_its_keys(kitchen: Kitchen):
    site(kitchen, f'require = ["signed"]\nkeys = "{kitchen.folder}/allowed"')
    kitchen.build()
    assert kitchen.call("promote", "env.toml", "test").returncode == 0
    assert "is not signed" in refused(kitchen, "production")
    for name in ("ada", "eve"):
        key = str(kitchen.folder / name)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = (kitchen.folder / "ada.pub").read_text().split()
    (kitchen.folder / "allowed").write_text(f"ada@site {public[0]} {public[1]}\n")
    for name, code in (("eve", 1), ("ada", 0)):
        signed = kitchen.call("sign", "env.toml", "--key", str(kitchen.folder / name))
        assert signed.returncode == 0, signed.stderr
        done = kitchen.call("promote", "env.toml", "production")
        assert done.returncode == code, done.stderr
    assert "signed by ada@site" in done.stdout
    (kitchen.folder / "allowed").write_text(f'ada@site valid-before="20200101" {public[0]} {public[1]}\n')
    done = kitchen.call("promote", "env.toml", "production")
    assert done.returncode == 1
    assert "key has expired" in done.stderr
    (kitchen.folder / "allowed").unlink()
    assert "the keys of the stage cannot be read" in refused(kitchen, "production")


@pytest.mark.usefixtures("real")
def test_an_image_that_was_changed_after_it_was_built_comes_into_no_stage(kitchen: Kitchen):
    site(kitchen)
    image = Path(kitchen.build()["path"])
    with image.open("r+b") as file:
        file.seek(image.stat().st_size // 2)
        file.write(b"changed")
    assert "the image has been damaged" in refused(kitchen, "test", 2)
    assert list((kitchen.folder / "test/images").glob("*")) == []


@pytest.mark.usefixtures("real")
def test_a_stage_that_the_person_cannot_write_is_named(user_kitchen: Kitchen):
    site(user_kitchen)
    user_kitchen.build()
    (user_kitchen.folder / "test/locks").mkdir(parents=True)
    done = user_kitchen.call("promote", "env.toml", "test", "--json")
    error = json.loads(done.stdout)["error"]
    assert "Permission denied" in error["text"]
    assert f"{user_kitchen.folder}/test made writable" in error["next"]


@pytest.mark.usefixtures("real")
def test_a_stage_that_asks_for_a_scan_refuses_an_image_with_findings(kitchen: Kitchen):
    site(kitchen, 'require = ["scanned"]')
    kitchen.change("rm /etc/group", "echo 'token = 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' > /etc/token")
    findings = kitchen.build()["findings"]
    assert any("/etc/token" in each["text"] for each in findings), findings
    assert kitchen.call("promote", "env.toml", "test").returncode == 0
    assert "the scan of the image has" in refused(kitchen, "production")


@pytest.mark.usefixtures("real")
def test_a_store_that_is_full_refuses_and_names_what_takes_the_most(kitchen: Kitchen):
    site(kitchen)
    text = (kitchen.folder / "clusters/local.toml").read_text()
    (kitchen.folder / "clusters/local.toml").write_text(text.replace("after", 'quota = "1kB"\nafter'))
    kitchen.build()
    assert kitchen.call("promote", "env.toml", "test").returncode == 0
    assert "the store may hold" in refused(kitchen, "production", 5)


@pytest.mark.usefixtures("real")
def test_what_was_built_and_has_lost_a_file_is_said_and_made_whole_by_a_build(kitchen: Kitchen):
    site(kitchen)
    layout = Path(kitchen.build()["layout"])
    for damaged in (
        layout / "index.json",
        min((layout / "blobs/sha256").iterdir(), key=lambda file: file.stat().st_size),
    ):
        damaged.unlink()
        assert "what was built cannot be read any more" in refused(kitchen, "test")
        kitchen.build()
        assert kitchen.call("promote", "env.toml", "test").returncode == 0


def test_an_edf_that_cannot_be_written_is_no_run_that_could_go_on(kitchen: Kitchen):
    done = kitchen.call("export", "env.toml", "-o", "nowhere/plain.toml")
    assert done.returncode == 2
    assert "the EDF cannot be written: No such file or directory" in done.stderr
    assert "resume" not in done.stderr


@pytest.mark.usefixtures("real")
def test_an_image_that_is_older_than_its_recipe_is_not_passed_on(kitchen: Kitchen):
    site(kitchen)
    kitchen.build()
    kitchen.change("echo two", "echo 2")
    assert "the recipe has changed" in refused(kitchen, "test")
