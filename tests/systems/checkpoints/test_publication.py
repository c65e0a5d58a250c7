"""`cordee checkpoint publish`: whole, read-only, described, and in the catalogue of the site, or nothing at all."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import cordee
from cordee.systems.checkpoints.cli import command
from cordee.systems.data.catalogue import locate as found_by_name


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    (folder / "deep").mkdir(parents=True)
    for number in range(3):
        (folder / "deep" / f"{number} ü.bin").write_bytes(os.urandom(700 * number))
    return folder


def publish(target, place, *more, licence="MIT"):
    arguments = ["publish", str(target), "--to", str(place), "--licence", licence, *map(str, more)]
    return CliRunner().invoke(command, arguments)


def left(folder):
    return [name for name in os.listdir(folder) if ".tmp-" in name]


def test_weights_of_a_run_are_published_read_only_with_card_and_sums_that_agree(tmp_path):
    import torch
    from safetensors.torch import load_file

    model = torch.nn.Linear(8, 4)
    cordee.checkpointer(model, folder=tmp_path / "saved").save(12)
    done = publish(tmp_path / "saved", tmp_path / "out", "--about", "eight | four", "--json", licence="Apache-2.0")
    document = json.loads(done.stdout)
    place = tmp_path / "out"
    assert torch.equal(load_file(place / "model.safetensors")["weight"], model.weight)
    manifest = json.loads((place / "manifest.json").read_text())
    assert (manifest["licence"], manifest["step"], manifest["source"]) == ("Apache-2.0", 12, "step-000000012")
    assert document["sha256"] == hashlib.sha256((place / "manifest.json").read_bytes()).hexdigest()
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=place, check=False).returncode == 0
    assert (place / "README.md").read_text().startswith('---\nlicense: "Apache-2.0"\n---\n\n# out\n\neight | four\n')
    assert {path.stat().st_mode & 0o222 for path in [place, *place.iterdir()]} == {0}


def test_an_archive_is_one_tar_whose_index_says_where_each_file_begins(tmp_path, results):
    place = tmp_path / "out.tar"
    assert publish(results, place, "--archive").exit_code == 0
    with tarfile.open(place) as opened, place.open("rb") as file:
        assert opened.getnames()[0] == "index.json"
        for name, (begin, size) in json.load(opened.extractfile("index.json"))["files"].items():
            file.seek(begin)
            assert file.read(size) == opened.extractfile(name).read()
            if name.startswith("deep"):
                assert opened.extractfile(name).read() == (results / name).read_bytes()
    assert (place.stat().st_mode & 0o777, left(tmp_path)) == (0o444, [])


def test_it_is_found_by_its_name_in_the_catalogue_that_it_was_added_to(tmp_path, results):
    from cordee.job.profile import ClusterProfile

    profile = tmp_path / "alps.toml"
    profile.write_text('name = "alps"\nscheduler = "local"\n[datasets.older]\npath = "/store/older"\n')
    place = tmp_path / "out"
    assert publish(results, place, "--catalogue", profile, "--name", "my.set", "--about", 'a "set"').exit_code == 0
    import tomllib

    cluster = ClusterProfile.model_validate(tomllib.loads(profile.read_text()))
    assert found_by_name("my.set", cluster).place == str(place)
    assert cluster.datasets["my.set"].about == 'a "set"'
    again = publish(results, tmp_path / "other", "--catalogue", profile, "--name", "my.set")
    assert again.exit_code != 0
    assert "has a data set of this name" in str(again.exception)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("what", ["link", "name", "empty", "there", "full"])
def test_what_cannot_be_published_leaves_nothing(tmp_path, results, monkeypatch, what):
    place = tmp_path / "out"
    if what == "link":
        (results / "link").symlink_to("/etc")
    elif what == "name":
        (results / "manifest.json").touch()
    elif what == "empty":
        results = tmp_path / "nothing"
        results.mkdir()
    elif what == "there":
        place.write_text("mine")
    else:
        place = Path("/dev/full/out")
    done = publish(results, place)
    words = {
        "link": "only regular files",
        "name": "has the name of what publishing adds",
        "empty": "nothing in it",
        "there": "something already",
        "full": "cannot be written: Not a directory",
    }
    assert words[what] in str(done.exception)
    assert left(tmp_path) == []
    assert not place.is_dir()
