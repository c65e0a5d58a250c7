"""Runs that a real HTCondor begins in a container of a real engine: its docker is Podman."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.testing.htcondor import DisposablePool
from cordee.testing.programs import COUNTING
from support.podman import docker_by_podman, import_image, python_root

pytestmark = pytest.mark.usefixtures("real")
IMAGE = "localhost/cordee-test-condor:1"
EDF = f"""
image = "docker://{IMAGE}"
[env]
FROM_EDF = "edf"
[startup]
commands = ["export FROM_STARTUP=$FROM_EDF-up"]
"""
SEEING = """
import os, pathlib, cordee
print("in", open("/in-the-image").read(), os.path.exists(os.environ["SUBMITTER"]))
print("has", os.environ["FROM_EDF"], os.environ["FROM_STARTUP"], os.environ["PATH"].startswith("/usr/local/sbin"))
pathlib.Path("made.txt").write_text("made")
cordee.log(step=1, loss=0.5)
"""


@pytest.fixture(scope="module")
def image(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image with a Python and a file that is nowhere else."""
    root = python_root(tmp_path_factory.mktemp("image") / "root")
    (root / "in-the-image").write_text("the image")
    import_image(root, IMAGE)
    yield IMAGE
    subprocess.run(["podman", "rmi", "--force", IMAGE], check=True, capture_output=True)


@pytest.fixture
def htcondor(
    image: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[DisposablePool]:
    """A pool of one machine that has containers."""
    settings = {"DOCKER_PERFORM_TEST": "False", "DOCKER_RUN_UNDER_INIT": "False"}
    with tempfile.TemporaryDirectory(prefix="cordee-htcondor-") as name:
        folder, hidden = Path(name), [tmp_path_factory.getbasetemp()]
        with docker_by_podman(folder, request.param) as program:
            settings["DOCKER"] = str(program)
            with DisposablePool(folder / "pool", machines=1, hidden=hidden, settings=settings) as pool:
                for key, value in pool.env.items():
                    monkeypatch.setenv(key, value)
                yield pool


@pytest.mark.parametrize("htcondor", [()], ids=["bridge"], indirect=True)
def test_a_run_in_an_image_sees_that_alone_and_comes_home_also_where_chirp_is_out_of_reach(
    job, start, tmp_path, htcondor
):
    folder = job("python train.py", f'environment = "env.toml"\n[env]\nSUBMITTER = "{tmp_path}"', SEEING)
    (folder / "env.toml").write_text(EDF)
    run = start(folder)
    state = run.wait_end()
    assert (state.state, state.exit_code) == ("finished", 0), state.text
    assert b"in the image False\nhas edf edf-up True\n" in run.output()
    assert (run.folder.code / "made.txt").read_text() == "made"


@pytest.mark.parametrize("htcondor", [("--network=host",)], ids=["host"], indirect=True)
def test_a_run_in_an_image_is_seen_evicted_and_goes_on(job, start, htcondor):
    folder = job("python train.py 60 0.1", 'environment = "env.toml"', COUNTING)
    (folder / "env.toml").write_text(EDF)
    run = start(folder)
    run.wait_step(5)
    htcondor.command("condor_vacate_job", run.job)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert state.chain[0]["reason"] == "preempted"
    assert b"from 0" in run.output()
