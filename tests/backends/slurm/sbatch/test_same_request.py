"""A document asks Slurm for what its script asked for: the real controller gets both and is asked what it understood."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.backends.slurm.script import options
from cordee.job.init import write_draft
from cordee.job.load import load_job
from cordee.job.plan.compile import make_plan
from cordee.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("real")

CONF = """ClusterName=same
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/pid
SlurmctldLogFile={folder}/log
GresTypes=gpu,tmpfs
Licenses=scratch:4
NodeName=n[1-16] NodeHostname={host} NodeAddr=127.0.0.1 Port=[2-17] CPUs=512 RealMemory=900000 \
Gres=gpu:8,tmpfs:20G Feature=v100-32g,gpu,hbm80g
PartitionName=any Nodes=n[1-16] Default=YES
PartitionName=normal Nodes=n[1-16]
PartitionName=booster Nodes=n[1-16]
PartitionName=gpu Nodes=n[1-16]
PartitionName=long Nodes=n[1-16]
PartitionName=standard-g Nodes=n[1-16]
"""
SHOWN = (
    "TimeLimit",
    "Account",
    "QOS",
    "Partition",
    "Features",
    "ReqNodeList",
    "ExcNodeList",
    "Licenses",
    "OverSubscribe",
)


def free_port() -> int:
    with socket.socket() as probe:
        for port in (25900 + (os.getpid() + step) % 100 for step in range(100)):
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no free port")


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Run a slurmctld of its own, whose nodes never answer: jobs are understood and wait."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    facts = {
        "host": socket.gethostname().partition(".")[0],
        "port": free_port(),
        "user": os.environ.get("USER", "root"),
    }
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, **facts))
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    program = shutil.which("slurmctld") or "/usr/sbin/slurmctld"
    process = subprocess.Popen([program, "-D", "-i"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            answer = subprocess.run(["scontrol", "ping"], env=env, capture_output=True, text=True, check=False).stdout
            if "UP" in answer:
                break
            time.sleep(0.1)
        assert "UP" in answer, (folder / "log").read_text()
        yield env
    finally:
        process.kill()
        process.wait()


def understood(env: dict[str, str], options: list[str], script: Path) -> dict[str, object]:
    """Submit a script in held state and return what the controller understood, for one node where it is of nodes."""
    command = ["sbatch", "--hold", "--parsable", *options, str(script)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        ["scontrol", "show", "job", "--oneliner", done.stdout.strip()],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[0]
    fields = dict(word.split("=", 1) for word in shown.split() if "=" in word)
    total = dict(part.split("=") for part in fields["TRES"].split(","))
    nodes = int(total["node"])
    found: dict[str, object] = {name: fields.get(name) for name in SHOWN}
    per_gpu = re.findall(r"Tres=gres:gpu:(\d+)", shown)
    gpus = 0
    for name, share in (
        ("TresPerNode", 1.0),
        ("TresPerJob", 1 / nodes),
        ("TresPerTask", int(fields["NumTasks"]) / nodes),
    ):
        match = re.search(r"gpu:(?:[a-z]\w*:)?(\d+)", fields.get(name, ""))
        gpus = max(gpus, int(int(match.group(1)) * share) if match else 0)
    cores = int(total["cpu"]) // nodes
    found.update(
        nodes=nodes,
        gpus=gpus,
        cores=gpus * int(per_gpu[0]) if per_gpu else cores,
        memory=megabytes(total["mem"]) // nodes,
    )
    return found


def megabytes(text: str) -> int:
    return int(float(text[:-1]) * {"M": 1, "G": 1024, "T": 1024**2}[text[-1]])


def options_of(folder: Path) -> list[str]:
    """Return the options that a run of the document in a folder is submitted with; a wrong one fails the test."""
    (folder / "clusters").mkdir()
    (folder / "clusters/centre.toml").write_text('scheduler = "slurm"\n')
    environ = {"XDG_CONFIG_HOME": str(folder), "CORDEE_CLUSTERS_PATH": str(folder / "clusters")}
    loaded = load_job(folder, cluster="centre", environ=environ)
    plan, findings = make_plan(loaded, run_id="same-20260101T000000Z-abcd", run_folder=folder / "run")
    assert not [finding for finding in findings if finding.rule in ("own-option", "bad-option")]
    given = options(RunFolder(folder / "run"), plan.document())
    assert len(shlex.split(" ".join(given))) == len(given)
    return shlex.split(" ".join(given))


def test_the_document_asks_for_what_the_script_asked_for(script, controller, tmp_path):
    (tmp_path / "job.sbatch").write_text(_without_plugins(script.read_text()))
    write_draft(tmp_path, tmp_path / "job.sbatch")
    (tmp_path / "ours.sh").write_text("#!/bin/sh\n")
    theirs = understood(controller, [], tmp_path / "job.sbatch")
    ours = understood(controller, options_of(tmp_path), tmp_path / "ours.sh")
    assert ours == theirs


def _without_plugins(text: str) -> str:
    """Return a script without what a plain Slurm lacks: a plug-in's option, a reservation, a second component.

    A waiting job with a range of nodes has no request per node either.
    """
    lines = [line for line in text.split("#SBATCH hetjob")[0].splitlines() if "--image" not in line]
    text = "\n".join(lines).replace("--reservation=school", "")
    return text.replace("-N2-4", "-N4") + "\n"
