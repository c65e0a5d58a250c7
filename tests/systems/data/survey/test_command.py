"""`cordee data survey`: one screen of words, or one document."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.systems.data.cli.survey import command


@pytest.fixture
def images(tree):
    for number in range(1200):
        folder = tree / f"class-{number % 3}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(b"\xff\xd8\xff" + bytes(100))
    return tree


@pytest.fixture
def profile(tmp_path, monkeypatch):
    folder = tmp_path / "clusters"
    folder.mkdir()
    (folder / "alps.toml").write_text(
        f"""
        scheduler = "local"
        memory = "64GB"
        [storage.scratch]
        path = "{tmp_path / "tree"}"
        opens_per_s = 100
        node_bandwidth = "1GB"
        quota_files = 1300
        purge = "30d"
        [datasets.pictures]
        path = "{tmp_path / "tree"}"
        """
    )
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(folder))


def run(*arguments: object):
    done = CliRunner().invoke(command, [str(each) for each in arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_the_document_has_what_was_promised(images, profile):
    os.utime(images / "class-0" / "0.jpg", (1, 1))
    found = json.loads(run(images, "--on", "alps", "--json").stdout)
    assert found["schema"] == "cordee.data-survey/1"
    assert (found["path"], found["files"], found["bytes"]) == (str(images), 1200, 1200 * 103)
    assert found["complete"]
    assert found["formats"][0]["name"] == "image"
    scratch = next(tier for tier in found["tiers"] if tier["name"] == "scratch")
    assert scratch["holds_data"]
    assert scratch["forecast"]["opens_basis"] == "profile"
    assert scratch["forecast"]["as_it_is"]["metadata_operations"] == 3600
    assert scratch["forecast"]["as_it_is"]["seconds"][0] == pytest.approx(12, abs=0.1)
    assert found["quotas"][0]["limit_files"] == 1300
    assert found["purge"]["soon_files"] == 1
    assert {each["rule"] for each in found["findings"]} == {"quota", "purge"}
    advice = found["advice"]
    assert (advice["tier"], advice["pack"]) == ("memory", True)
    assert advice["command"] == f"cordee data pack {images} --to {images}-packed"
    assert advice["reason"]


def test_the_words_fit_on_a_screen(images, profile):
    done = run(images, "--on", "alps")
    lines = done.stdout.replace(str(images.parent), "here").splitlines()
    assert len(lines) < 25
    assert max(map(len, lines)) < 160
    assert "do: cordee data pack here/tree --to here/tree-packed" in lines
    assert "warn" in done.stderr


def test_a_shared_data_set_goes_by_its_name(images, profile):
    assert json.loads(run("pictures", "--on", "alps", "--json").stdout)["files"] == 1200


def test_the_last_survey_is_shown_with_its_date(images):
    with pytest.raises(UsageError, match="no whole survey"):
        run(images, "--last")
    run(images)
    done = run(images, "--last")
    assert "as it was on 20" in done.stdout
    assert json.loads(run(images, "--last", "--json").stdout)["kept"]


def test_names_that_a_terminal_would_act_on_are_shown_harmlessly(tree):
    bad = tree / os.fsdecode(b"red\x1b[31m\n\xff")
    bad.mkdir()
    (bad / "x").write_bytes(b"x")
    done = run(bad)
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith(f"$'{tree}/red\\x1b[31m\\x0a\\xff': 1 file,")
    assert json.loads(run(bad, "--json").stdout)["path"] == str(bad)
