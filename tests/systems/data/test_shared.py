"""`cordee data list`: the site's shared data sets as this user finds them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.systems.data.cli.list import command


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        (tmp_path / f"pictures/{number}.jpg").write_bytes(bytes(10))
    (tmp_path / "alps.toml").write_text(
        f'[datasets.pictures]\npath = "{tmp_path}/pictures"\nlicence = "research only"\ngroup = "no-such-group"\n'
        f'[datasets.gone]\npath = "{tmp_path}/gone"\n[datasets.far]\npath = "s3://bucket/far"\nsamples = 7\n'
        f'[storage.store]\npath = "{tmp_path}"\n'
    )
    return tmp_path


def test_every_shared_data_set_is_listed_with_what_is_known_of_it(clusters: Path) -> None:
    done = CliRunner().invoke(command, ["--on", "alps", "--json"])
    listed = {one["name"]: one for one in json.loads(done.stdout)["datasets"]}
    assert list(listed) == ["far", "gone", "pictures"]
    pictures = listed["pictures"]
    assert (pictures["kind"], pictures["bytes"], pictures["readable"], pictures["tier"]) == ("files", 30, True, "store")
    assert (pictures["member"], pictures["licence"]) == (False, "research only")
    assert (listed["gone"]["readable"], listed["gone"]["bytes"]) == (False, None)
    assert (listed["far"]["readable"], listed["far"]["samples"]) == (None, 7)


def test_one_that_this_user_may_not_read_names_the_group_to_ask_for(
    clusters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    done = CliRunner().invoke(command, ["--on", "alps"])
    assert "not readable: you may not read it; you are not in the group no-such-group" in done.stdout


def test_a_cluster_without_a_catalogue_says_so(clusters: Path) -> None:
    assert "no shared data sets" in CliRunner().invoke(command, ["--on", "local"]).stdout


@pytest.mark.parametrize("path", ["pictures", "./pictures", ""])
def test_a_shared_path_that_is_not_the_same_for_all_is_refused(clusters: Path, path: str) -> None:
    (clusters / "alps.toml").write_text(f'[datasets.pictures]\npath = "{path}"\n')
    done = CliRunner().invoke(command, ["--on", "alps"])
    assert "is not the path of a shared data set" in str(done.exception)
