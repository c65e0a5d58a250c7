"""Commands take a data set by its path, its name in the job document here, or its name in the site's catalogue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.core.errors import DataError, DocumentError
from cordee.systems.data.cli import command
from cordee.systems.data.cli.named import place_of
from support.data.shards import packed


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job folder, which is the working directory, with `mine` of its own and `pictures` of the site."""
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    monkeypatch.delenv("CORDEE_ON", raising=False)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/alps.toml").write_text(
        f'scheduler = "slurm"\n[datasets.pictures]\npath = "{tmp_path}/site"\n[datasets.far]\npath = "s3://bucket/far"\n'
    )
    for name in ("site", "job/sets/own"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "job/cordee.toml").write_text(
        'name = "x"\nrun = "true"\n[data.mine]\nfrom = "sets/own"\n[data.theirs]\nfrom = "pictures"\n'
        '[on.local.data.theirs]\nfrom = "sets"\n'
    )
    monkeypatch.chdir(tmp_path / "job")
    return tmp_path / "job"


def test_names_mean_what_the_document_and_the_catalogue_say(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place_of("mine", "alps") == str(job / "sets/own")
    assert place_of("theirs", "alps") == place_of("pictures", "alps") == str(job.parent / "site")
    assert place_of("theirs", None) == str(job / "sets")
    assert place_of("far", "alps") == "s3://bucket/far"
    monkeypatch.setenv("CORDEE_DATA_MINE", "/inside/a/run")
    assert place_of("mine", "alps") == "/inside/a/run"


def test_a_path_that_is_there_and_an_address_go_before_a_name(job: Path) -> None:
    (job / "mine").mkdir()
    (job / "theirs.idx").touch()
    assert place_of("mine", "alps") == "mine"
    assert place_of("theirs", "alps") == "theirs"
    assert place_of("s3://bucket/mine", "alps") == "s3://bucket/mine"


def test_an_unknown_name_is_told_with_the_nearest_and_all_that_are_known(job: Path) -> None:
    for given, near in (("mien", "mine"), ("picture", "pictures")):
        with pytest.raises(DataError, match=f"no data set '{given}'") as caught:
            place_of(given, "alps")
        assert caught.value.next == f"did you mean {near}?"
        assert {"mine (of the job document)", "pictures (shared)"} <= set(caught.value.allowed)
    (job / "cordee.toml").write_text("name = 3")
    with pytest.raises(DocumentError):
        place_of("mine", "alps")
    with pytest.raises(DataError):
        place_of("no/such/path", "alps")


def test_every_command_takes_a_name(job: Path) -> None:
    (job / "files").mkdir()
    for number in range(3):
        (job / f"files/{number}.txt").write_text("text")
    packed(job / "files", job.parent / "site")

    def cordee(*arguments: str) -> dict:
        done = CliRunner().invoke(command, [*arguments, "--on", "alps", "--json"], catch_exceptions=False)
        assert done.exit_code == 0
        found: dict = json.loads(done.stdout)
        return found

    assert cordee("verify", "theirs")["samples"] == 3
    assert cordee("unpack", "pictures", "--to", "back")["files"] == 3
    assert cordee("pack", "pictures", "--index-only", "--to", "index")["samples"] == 3
    assert cordee("survey", "theirs")["path"] == str(job.parent / "site")
    found = cordee("bench", "theirs", "--seconds", "0.05", "--rounds", "1", "--no-keep", "--cache", "warm")
    assert found["target"] == str(job.parent / "site")
