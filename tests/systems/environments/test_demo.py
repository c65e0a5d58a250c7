"""The demo's image, made from this machine's own files: the training is the same inside, and sees nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cordee
from cordee.systems.environments.node.document import ContainerRoot, Environment
from cordee.systems.environments.node.engines import ENGINES, find_engine
from support.data.corpora import pack_corpus
from support.runs.real_run import LocalRun

EXAMPLE = Path(__file__).parents[3] / "examples" / "char-gpt"
SOURCE = Path(cordee.__file__).parents[1]
TRAIN = ["python", "-B", "train.py", "--steps", "6"]


@pytest.fixture(scope="module")
def cache(real, tmp_path_factory):
    """The folder in which env.toml finds the image."""
    folder = tmp_path_factory.mktemp("cache")
    made = [sys.executable, EXAMPLE / "make_image.py"]
    subprocess.run(made, env={**os.environ, "XDG_CACHE_HOME": str(folder)}, check=True)
    return folder


def copied(parent: Path) -> Path:
    """Return a copy of the example with a corpus of its own."""
    copy = parent / "char-gpt"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("runs", "checkpoints", "corpus", "__pycache__"))
    pack_corpus(copy / "corpus")
    return copy


@pytest.fixture
def folder(tmp_path, monkeypatch, cache):
    """A copy of the example, with an EDF beside it that mounts Cordée's source as well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin:{os.environ['PATH']}")
    copy = copied(tmp_path)
    (copy / "with-source.toml").write_text(f'base_environment = "./env.toml"\nmounts = ["{SOURCE}"]\n')
    return copy


def said(argv, folder) -> str:
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def inside(engine, *argv) -> list[str]:
    return [sys.executable, "-m", "cordee.faces.cli", "env", "run", "--engine", engine, "with-source.toml", "--", *argv]


def result(text: str) -> list[str]:
    """Return the losses and the digest of the weights, without the speed."""
    return re.findall(r"loss [\d.]+|weights \w+", text)


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """What the training ends with on the machine itself."""
    copy = copied(tmp_path_factory.mktemp("outside"))
    alone = [sys.executable, *TRAIN[1:]]
    done = subprocess.run(
        alone, cwd=copy, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, check=True
    )
    found = result(done.stdout.decode())
    assert [word.split()[0] for word in found] == ["loss", "loss", "weights"]
    return found


def runnable() -> list[str]:
    anything = Environment("any", image="/", root=ContainerRoot("folder", "/"))
    return [name for name in ENGINES if name != "step" and not find_engine(name).missing(anything)]


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_the_demo_trains_alike_in_every_engine_that_runs_here(folder, outside):
    engines = runnable()
    assert "namespace" in engines
    assert {engine: result(said(inside(engine, *TRAIN), folder)) for engine in engines} == dict.fromkeys(
        engines, outside
    )


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.gate
def test_a_run_in_the_image_ends_with_the_weights_of_the_script_alone(folder, outside, tmp_path):
    more = {"need__nodes": 1, "environment": "env.toml", "vet__max_load": 1000.0, "vet__deadline": "30min"}
    with LocalRun(folder, tmp_path / "runs", run=TRAIN, **more) as run:
        state = run.wait_end()
        assert state.state == "finished", state.text
        assert result(run.output(0).decode()) == outside


def test_nothing_of_the_machine_is_seen_but_what_is_mounted(folder):
    secret = folder.parent / "secret"
    secret.write_text("of the host")
    code = "import os, ssl; print(os.path.exists(__import__('sys').argv[1]), ssl.create_default_context().get_ca_certs() != [])"
    seen = said(inside("namespace", "python", "-c", code, str(secret)), folder)
    assert seen.split() == ["False", str(Path("/etc/ssl/certs/ca-certificates.crt").exists())]
    programs = said(inside("namespace", "ls", "/usr/bin"), folder).split()
    assert "ls" in programs
    assert len(programs) < 100


def test_an_image_that_is_newer_than_what_it_was_made_from_is_kept(cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    image = cache / "cordee" / "char-gpt.sqsh"
    before = image.stat().st_ino
    again = subprocess.check_output([sys.executable, EXAMPLE / "make_image.py"], text=True)
    assert again == f"{image} is there\n"
    assert image.stat().st_ino == before


@pytest.mark.parametrize(
    ("image", "check", "called", "told"),
    [
        (0, 0, "run examples/char-gpt --set environment=env.toml --set restart.retries=0", ""),
        (1, 0, "run examples/char-gpt --set restart.retries=0", "without a container"),
        (0, 2, "run examples/char-gpt --set restart.retries=0", "no user namespaces"),
    ],
)
def test_make_demo_trains_without_a_container_where_there_can_be_none(tmp_path, image, check, called, told):
    (tmp_path / "bin").mkdir()
    refuses = f"[ $1 = check ] && {{ echo 'no user namespaces' >&2; exit {check}; }}; echo called $@"
    makes = f"case $1 in *make_image.py) exit {image};; esac"
    for name, text in {"python": makes, "cordee": refuses}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    script = ["bash", EXAMPLE.parents[1] / "scripts" / "demo.sh", tmp_path]
    done = subprocess.run(script, cwd=EXAMPLE.parents[1], capture_output=True, text=True, check=True)
    assert done.stdout == f"called {called}\n"
    assert told in done.stderr
