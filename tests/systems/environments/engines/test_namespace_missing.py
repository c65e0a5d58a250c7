"""What the namespace engine says of a machine that cannot run an environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EXIT_ENGINE, EngineLaunch
from cordee.testing.containers import ENV, environment_in, mounts, without_user_namespaces

ASK = """
import json, sys
from cordee.systems.environments.node.document import environment_of
from cordee.systems.environments.node.engines import find_engine
print(json.dumps(find_engine("namespace").missing(environment_of(json.loads(sys.argv[1])))))
"""


def missing(prefix: list[str], environment, **variables: str) -> dict[str, list[str]]:
    """Return what another process finds to be missing, by capability."""
    python, *_, source = find_engine("namespace").argv(environment, EngineLaunch(("true",), ENV))[:6]
    done = subprocess.run(
        [*prefix, python, "-c", ASK, json.dumps(environment.document())],
        env={**ENV, "PYTHONPATH": source, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return {capability: rest for capability, *rest in json.loads(done.stdout)}


@pytest.mark.parametrize("kind", ["folder", "squashfs", "host"])
def test_a_machine_that_can_run_an_environment_lacks_nothing(images, who, kind):
    assert missing(who, environment_in(images, kind)) == {}


def test_switched_off_user_namespaces_are_named_with_another_engine(images, as_user):
    found = missing(without_user_namespaces(), environment_in(images))
    text, following, *_ = found["user-namespaces"]
    assert "max_user_namespaces is 0" in text
    assert "apptainer" in following


def test_without_user_namespaces_a_start_ends_with_words(images, as_user):
    words = find_engine("namespace").argv(environment_in(images), EngineLaunch(("echo", "started"), ENV))
    done = subprocess.run([*without_user_namespaces(), *words], env=ENV, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (EXIT_ENGINE, "")
    assert "max_user_namespaces is 0" in done.stderr
    assert "apptainer" in done.stderr


def test_missing_sources_and_devices_are_named_together(images, who, place):
    asked = environment_in(images, mounts=mounts(f"{place}/no:/x"), devices=("nvidia.com/gpu=all",))
    found = missing(who, asked, CORDEE_HOST_ROOT=str(place))
    assert set(found) == {"mount-source", "gpu"}
    assert f"{place}/no" in found["mount-source"][0]


def test_a_user_without_fuse_is_told_so(images, monkeypatch):
    from cordee.systems.environments.node.engines.namespace import capabilities
    from cordee.systems.environments.node.engines.namespace.root import squashfs

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(squashfs, "PROGRAMS", ("no-such-squashfuse",))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = {each.capability: each for each in capabilities.missing(environment_in(images, "squashfs"))}
    assert set(found) == {"squashfuse", "fuse"}
    assert "unsquashfs" in found["fuse"].next
    assert capabilities.missing(environment_in(images, "folder")) == []


def test_root_without_its_rights_uses_a_user_namespace(images):
    weak = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps=-sys_admin"]
    for kind in ("folder", "squashfs"):
        words = find_engine("namespace").argv(environment_in(images, kind), EngineLaunch(("id", "-u"), ENV))
        done = subprocess.run([*weak, *words], env=ENV, capture_output=True, text=True)
        assert done.stdout == "0\n", done.stderr


def test_the_engine_runs_from_the_zip_of_the_node_side(images, place, as_user):
    from cordee.job.submit.bundle import write_node_zip

    write_node_zip(place / "node.zip")
    (place / "node.zip").chmod(0o644)
    words = find_engine("namespace").argv(environment_in(images), EngineLaunch(("echo", "from zip"), ENV))
    done = subprocess.run(
        [*as_user, *words[:5], str(place / "node.zip"), *words[6:]], env=ENV, capture_output=True, text=True
    )
    assert done.stdout == "from zip\n", done.stderr
    ask = "import sys; sys.path.insert(0, sys.argv[1]); from cordee.systems.environments.node.engines.namespace import boot; print(boot.first_words()[-1])"
    done = subprocess.run([sys.executable, "-I", "-c", ask, str(place / "node.zip")], capture_output=True, text=True)
    assert done.stdout.strip() == str(place / "node.zip")
