"""The catalogue and the doctor."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.systems.environments.edf import resolve
from cordee.systems.environments.images.store.image_store import own_store
from cordee.systems.environments.machine_check import check
from cordee.systems.environments.ready import doctor
from cordee.systems.environments.ready.baseline import baseline_path
from cordee.systems.environments.ready.catalogue import FABRICS, edf_of, fabric_here, ready_environments, write_ready
from cordee.systems.vetting.protocol.document import load_protocol

NAMES = [each.name for each in ready_environments()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fabric", FABRICS)
def test_each_edf_is_valid_says_what_this_machine_lacks_and_has_a_protocol(name, fabric, tmp_path, monkeypatch):
    monkeypatch.setenv("CORDEE_HOOKS_DIR", "")
    edf, protocol = write_ready(name, fabric, tmp_path)
    found = resolve(str(edf), cwd=tmp_path, variables=dict(os.environ))
    assert [each for each in found.findings if each.severity == "error"] == []
    checked = check(found, own_store({"EDF_IMAGESTORE": str(tmp_path / "store")}, None))
    lacking = {each.rule for each in checked.findings}
    assert ("no-gpu" in lacking) == (not name.endswith("-cpu") and not doctor.gpus_of())
    if name.endswith("-cpu"):
        assert checked.runnable
    else:
        assert "missing-image" in lacking
        assert ("hook-lacks" in lacking) == (fabric in ("slingshot", "efa"))
    assert load_protocol(protocol).name.startswith("ready-")
    about = edf.read_text().partition("image = ")[0]
    for named in (protocol.name, f"cordee env doctor {edf.name} --keep", baseline_path(edf).name):
        assert named in about


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fabric", FABRICS)
def test_each_setting_has_its_reason_above_it(name, fabric):
    lines = edf_of(name, fabric).splitlines()
    for number, line in enumerate(lines):
        if re.match(r"[\w.]+ = ", line):
            above = next(each for each in reversed(lines[:number]) if not re.match(r"[\w.]+ = ", each))
            assert above.startswith("# "), line


def test_what_there_is_not_is_refused_with_the_nearest_and_no_file_is_written_over(tmp_path):
    with pytest.raises(UsageError) as caught:
        edf_of("pytorch-cud", "ethernet")
    assert "did you mean pytorch-cuda" in str(caught.value.next)
    with pytest.raises(UsageError, match="no fabric"):
        edf_of("pytorch-cuda", "token-ring")
    (tmp_path / "jax-cpu.vet.yaml").write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        write_ready("jax-cpu", "ethernet", tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["jax-cpu.vet.yaml"]


@pytest.mark.parametrize(
    ("path", "fabric"),
    [("dev/cxi0", "slingshot"), ("sys/class/infiniband/mlx5_0", "infiniband"), ("sys/class/net", "ethernet")],
)
def test_the_fabric_of_a_machine_is_its_fastest(tmp_path, path, fabric):
    (tmp_path / path).mkdir(parents=True)
    assert fabric_here(str(tmp_path)) == fabric


@pytest.mark.usefixtures("real")
def test_the_doctor_tries_this_machine(tmp_path, cordee_environ):
    (tmp_path / "env.toml").write_text("")
    found = {each.what: each for each in doctor.examine(str(tmp_path / "env.toml"), "local", None, 2, cordee_environ)}
    assert {name: found[name].status for name in ("start", "python", "torch", "collective")} == {
        "start": "pass",
        "python": "pass",
        "torch": "pass",
        "collective": "pass",
    }
    assert found["collective"].text.startswith("2 ranks by gloo")
    assert found["GPUs"].status in ("unknown", "pass")


def test_a_fall_back_to_tcp_beside_a_fast_fabric_is_a_failure(monkeypatch):
    monkeypatch.setattr(doctor, "fabric_here", lambda: "infiniband")
    seen = {"what": "collective", "ranks": 4, "backend": "nccl", "bytes_per_s": [1e9], "network": "Socket"}
    assert doctor.collective_trial({"collective": seen}).status == "fail"
    assert "fell back to TCP" in doctor.collective_trial({"collective": seen}).text
    assert doctor.collective_trial({"collective": {**seen, "network": "IB"}}).status == "pass"


def test_an_image_without_python_is_said(tmp_path, cordee_environ):
    from cordee.testing.images import busybox_root

    busybox_root(tmp_path / "root")
    (tmp_path / "env.toml").write_text(f'image = "{tmp_path}/root"\n')
    (trial,) = doctor.examine(str(tmp_path / "env.toml"), "local", None, 2, cordee_environ)
    assert (trial.status, trial.text) == ("fail", "there is no python3 inside")


@pytest.fixture
def cordee_environ() -> dict[str, str]:
    """Variables with this Python first on PATH."""
    import sys

    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
