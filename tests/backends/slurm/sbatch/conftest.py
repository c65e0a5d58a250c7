"""Job scripts in the styles of many centres, and what Slurm itself makes of one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "scripts").iterdir())
CONF = """ClusterName=parse
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=1
MessageTimeout=1
AuthType=auth/none
CredType=cred/none
GresTypes=gpu,tmpfs
NodeName=n[1-4]
PartitionName=any Nodes=ALL
"""


@pytest.fixture(params=SCRIPTS, ids=lambda path: path.name)
def script(request: pytest.FixtureRequest) -> Path:
    """Every job script, one after the other."""
    path: Path = request.param
    return path


@pytest.fixture
def as_sbatch_reads(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Return a function that asks the real sbatch which options a script gives; nothing is submitted."""
    (tmp_path / "slurm.conf").write_text(CONF)

    def call(text: str) -> dict[str, str]:
        (tmp_path / "job.sh").write_text(text)
        env = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
        command = ["sbatch", "-vv", str(tmp_path / "job.sh")]
        said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=False).stderr
        lines = [line.removeprefix("sbatch: ") for line in said.splitlines() if line.startswith("sbatch: ")]
        defined = lines[lines.index("defined options") + 2 : lines.index("end of defined options") - 1]
        found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in defined)}
        del found["verbose"]
        return found

    return call
