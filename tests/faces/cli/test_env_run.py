"""`cordee env run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.systems.environments.node.engines._base import EXIT_ENGINE
from cordee.testing.images import busybox_root


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    return busybox_root(tmp_path_factory.mktemp("image") / "root")


@pytest.fixture
def edf(tmp_path, image):
    """Write an EDF with the test image; returns its path."""

    def write(text="", name="env.toml"):
        path = tmp_path / name
        path.write_text(f'image = "{image}"\n{text}')
        return path

    return write


@pytest.fixture
def cordee(tmp_path):
    """Run the command line to its end in the test's folder."""

    def run(*words, **options):
        command = [sys.executable, "-m", "cordee.faces.cli", "env", "run", *map(str, words)]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, **options
        )

    return run


@pytest.mark.parametrize("engine", ["namespace", "podman"])
@pytest.mark.usefixtures("real")
def test_the_exit_code_is_the_commands_own(cordee, edf, engine):
    done = cordee(edf(), "--engine", engine, "--", "sh", "-c", "echo $0; exit 7", "name")
    assert (done.returncode, done.stdout, done.stderr) == (7, "name\n", "")


def test_options_stand_before_or_behind_the_file_and_end_at_the_command(cordee, edf):
    edf()
    assert cordee("-v", "env.toml", "echo", "-v", "--engine").stdout == "-v --engine\n"
    done = cordee("./env.toml", "--workdir", "/opt", "-v", "sh", "-c", "pwd; exit 3")
    assert (done.returncode, done.stdout) == (3, "/opt\n")
    assert done.stderr.startswith("cordee: engine namespace\n")
    assert cordee("env.toml", "--", "echo", "--", "x").stdout == "-- x\n"


def test_what_the_edf_sets_goes_before_the_host_and_nothing_else_is_changed(cordee, edf, tmp_path):
    path = edf(
        f'mounts = ["{tmp_path}:/here"]\nworkdir = "/here"\n[env]\nLEVEL = "edf"\nGONE = ""\nODD = "a\\nb \\"c\\""\n'
    )
    host = {**os.environ, "LEVEL": "host", "GONE": "x", "KEPT": "a\tb\n"}
    done = cordee(path, "--", "sh", "-c", 'pwd; echo "$LEVEL,${GONE-unset},$KEPT,$ODD"', env=host)
    assert done.stdout == '/here\nedf,unset,a\tb\n,a\nb "c"\n', done.stderr


def test_our_own_failures_are_125_with_words(cordee, edf):
    for words in (
        ["no.toml", "--", "true"],
        [edf('workdir = "/no/such"', name="folder.toml"), "--", "true"],
        [edf(), "--engine", "docker", "true"],
    ):
        done = cordee(*words)
        assert done.returncode == EXIT_ENGINE, done.stderr
        assert done.stderr.startswith("cordee: ")
        assert done.stdout == ""
    done = cordee(edf("imagge = 3\n"), "--", "true")
    assert done.returncode == EXIT_ENGINE
    assert "imagge" in done.stderr
    assert cordee(edf(), "--").returncode == EXIT_ENGINE
    assert cordee(edf(), "--", "no-such-program").returncode == 127


def test_with_json_nothing_runs_and_what_would_is_shown(cordee, edf, tmp_path):
    done = cordee(edf(f'mounts = ["{tmp_path}:/here"]\n[env]\nTOKEN = "secret"'), "--json", "--", "touch", "/here/made")
    shown = json.loads(done.stdout)
    assert shown["schema"] == "cordee.env.run/1"
    assert shown["engine"] == "namespace"
    assert shown["argv"][-2:] == ["touch", "/here/made"]
    assert not any("secret" in word for word in shown["argv"])
    assert not (tmp_path / "made").exists()
    failed = cordee("no.toml", "--json", "--", "true")
    assert (failed.returncode, "error" in json.loads(failed.stdout)) == (EXIT_ENGINE, True)


def test_a_name_is_looked_up_and_the_profile_names_the_engine(cordee, edf, tmp_path):
    edf(name="named.toml")
    clusters = tmp_path / "clusters"
    clusters.mkdir()
    (clusters / "alps.toml").write_text(f'[environment]\nengine = "podman"\nsearch_path = ["{tmp_path}"]\n')
    env = {**os.environ, "CORDEE_CLUSTERS_PATH": str(clusters)}
    done = cordee("named", "-v", "--on", "alps", "--", "true", env=env)
    assert (done.returncode, done.stderr) == (0, "cordee: engine podman\n")
    assert cordee("named", "--on", "nowhere", "--", "true", env=env).returncode == EXIT_ENGINE


def test_its_start_imports_nothing_heavy(edf):
    program = (
        "import sys\nfrom cordee.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print([name for name in ('pydantic', 'numpy', 'asyncio', 'rich', 'yaml', 'xarray') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, "env", "run", str(edf()), "--json", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert Path(json.loads(done.stdout.rpartition("\n[")[0])["environment"]["image"]).is_dir()
