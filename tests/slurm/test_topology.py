"""Where jobs sit on a Slurm with switches: as its own scontrol tells, for a job that Cordée did not start."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.backends.slurm.node.topology import ask_network, leaves_here
from cordee.faces.cli import main
from cordee.testing.daemons import wait_until
from cordee.testing.slurm import DisposableSlurm

pytestmark = pytest.mark.usefixtures("real")

TREE = "".join(
    [
        "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\nSwitchName=leaf3 Nodes=n[5-6]\n",
        "SwitchName=left Switches=leaf[1-2]\nSwitchName=right Switches=leaf3\nSwitchName=top Switches=left,right\n",
    ]
)


@pytest.fixture
def cluster() -> Iterator[DisposableSlurm]:
    """A Slurm of six nodes below three switches, in a folder with a short name."""
    base = Path(tempfile.mkdtemp(prefix="cordee-slurm-"))
    base.chmod(0o777)
    settings = {"TopologyPlugin": "topology/tree"}
    with DisposableSlurm(base / "slurm", nodes=6, cpus=2, files={"topology.conf": TREE}, settings=settings) as slurm:
        yield slurm
    shutil.rmtree(base)


@pytest.mark.gate
def test_a_job_of_somebody_else_is_placed_by_what_slurm_says_while_it_runs_and_after(
    cluster, monkeypatch, capsys, tmp_path
):
    for name, value in cluster.env.items():
        monkeypatch.setenv(name, value)
    for variable in ("CORDEE_ON", "SLURM_CLUSTER_NAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    monkeypatch.setenv("CORDEE_RUNS", str(tmp_path / "runs"))
    network = ask_network()
    assert network is not None
    assert network.hops("leaf1") == {"leaf1": 1, "leaf2": 3, "leaf3": 5}
    assert leaves_here() == {"leaf1": "n[1-2]", "leaf2": "n[3-4]", "leaf3": "n[5-6]"}

    job = cluster.command(
        "sbatch", "--parsable", "-N3", "--output=/dev/null", "--nodelist=n[2,4-5]", "--wrap", "sleep 600"
    ).strip()
    assert wait_until(lambda: "JobState=RUNNING" in cluster.command("scontrol", "show", "job", job), 60)

    def document(*more: str) -> dict:
        with pytest.raises(SystemExit) as ended:
            main(["topology", job, "--json", *more])
        assert ended.value.code == 0
        return json.loads(capsys.readouterr().out)

    said = document("--mesh", "tp=2,pp=3", "--svg", str(tmp_path / "place.svg"), "--colour", "pp")
    assert (said["nodes"], said["switches_spanned"], said["least_possible"]) == (3, 3, 2)
    assert said["network"]["source"] == "scontrol show topology"
    assert said["hops"] == {"mean": pytest.approx((3 + 5 + 5) / 3), "most": 5, "known_pairs": 1}
    assert said["edges"]["tp"]["switch"] == 0
    assert (said["edges"]["pp"]["switch"], said["edges"]["pp"]["group"]) == (1, 0.5)
    assert "leaf3 1 of 2" in (tmp_path / "place.svg").read_text()
    cluster.command("scancel", job)
    cluster.wait_ended(job)
    assert [node["node"] for node in document()["placed"]] == ["n2", "n4", "n5"]
