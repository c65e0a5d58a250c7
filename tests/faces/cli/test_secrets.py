"""What `[env]` sets reaches the ranks and the run's folder, and nothing that is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from cordee.systems.score.trace.jobs import job_of_run
from cordee.telemetry.store.reader import Run
from support.made.runs import MadeRun, write_run
from support.servers.serving import ServedRuns

SECRET = "hunter2-Zx9"
TOML = f"""
setup = ["export OTHER_TOKEN={SECRET}"]
[env]
WANDB_API_KEY = "{SECRET}"
DATABASE = "{SECRET}"
[on.local.env]
MORE = "{SECRET}"
"""
SCRIPT = """
import os, sys
assert {os.environ[name] for name in ("WANDB_API_KEY", "DATABASE", "MORE", "OTHER_TOKEN")} == {sys.argv[2]}
"""


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_secrets_work_and_are_shown_nowhere(cordee: Callable[..., Any]) -> None:
    job = cordee.job(script=SCRIPT, toml=TOML) / "cordee.toml"
    job.write_text(job.read_text().replace("train.py", f"train.py --token {SECRET}"))
    shown = [
        cordee("check"),
        cordee("check", "--json"),
        cordee("check", "--explain"),
        cordee("check", "--explain", "--json"),
    ]
    assert "WANDB_API_KEY=***" in shown[0].stdout
    shown.append(cordee("run", "--json"))
    shown += [cordee(*words) for words in (("show",), ("show", "--json"), ("report",), ("report", "--json"), ("runs",))]
    for done in shown:
        assert done.returncode == 0, done.stdout + done.stderr
        assert SECRET not in done.stdout + done.stderr, done.args
    (folder,) = cordee.runs.glob("t-*")
    for page in folder.glob("report/*"):
        assert SECRET not in page.read_text()
    assert SECRET not in (folder / "provenance.json").read_text()
    for name in ("plan.json", "documents/cordee.toml"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
        assert SECRET in (folder / name).read_text()
    assert folder.stat().st_mode & 0o777 == 0o700
    with ServedRuns(cordee.runs) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        for path in client.get("/openapi.json").json()["paths"]:
            if not path.endswith("/live"):
                for run, node, rank in [(folder.name, "local-0", "0")]:
                    asked = path.replace("{run}", run).replace("{node}", node).replace("{rank}", rank)
                    assert SECRET not in client.get(asked, params={"runs": run, "lines": 100}).text, asked


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "line", [f'A = ["{SECRET}"]', f'A = "{SECRET}\\u0000"', f'"A=B" = "{SECRET}"', f'CORDEE_A = "{SECRET}"']
)
def test_a_fault_in_a_variable_does_not_show_its_value(cordee: Callable[..., Any], line: str) -> None:
    cordee.job(toml=f"[env]\n{line}")
    for words in (("check",), ("check", "--json"), ("run",)):
        done = cordee(*words)
        assert done.returncode == 2
        assert "env" in done.stdout + done.stderr
        assert SECRET not in done.stdout + done.stderr


def test_a_score_shows_no_secret_of_the_command(tmp_path: Path) -> None:
    folder = write_run(tmp_path, MadeRun(4, 20))
    plan = json.loads(folder.plan.read_text())
    plan["steps"][0]["tasks"]["argv"] = ["python", "train.py", "--token", SECRET]
    folder.plan.write_text(json.dumps(plan))
    assert job_of_run(Run(folder)).command == "python train.py --token '***'"
