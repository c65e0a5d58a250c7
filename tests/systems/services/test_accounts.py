"""What services have used: GPU hours, energy and requests, and how a centre's billing hears of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.systems.services.conftest import BLUEPRINT

import cordee
from cordee.runs.folder import RunFolder
from cordee.systems.services.accounts import summed, used_days
from cordee.systems.services.blueprint import read_blueprint
from cordee.systems.services.door.requests import RequestCount
from cordee.systems.services.instance import ServiceFolder
from support.made.runs import MadeRun, write_run

# 2026-11-02T00:00:00Z
MIDNIGHT = 1793577600.0
GPUS, SECONDS = 4, 400


def kept_service(services, name: str, project: str) -> tuple[ServiceFolder, RunFolder]:
    """Return a service of four GPUs, which ran from 200 s before midnight to 200 s after."""
    folder = ServiceFolder(services.root(name))
    folder.make()
    text = f'project = "{project}"\nowner = "anna"\n' + BLUEPRINT
    folder.keep_revision(read_blueprint(text, Path("echo.toml")))
    metrics = {"gpu": ("gpu_power_watts",)}
    run = write_run(folder.runs, MadeRun(GPUS, SECONDS, GPUS, metrics=metrics, started_at=MIDNIGHT - 200))
    record = {"name": name, "target": "process", "cluster": "local", "revision": 1, "project": project, "owner": "anna"}
    folder.write({**record, "run": str(run.root)}, "deployed")
    return folder, run


def asked_at_door(services, *requests: tuple[float, str, str]) -> None:
    """Have the door's log say that these were asked: (when, service, user)."""
    door = services.root(".door")
    door.mkdir(parents=True, exist_ok=True)
    with (door / "access.log").open("a") as log:
        for at, service, user in requests:
            line = {"at": at, "service": service, "user": user, "status": 200, "sent": 1000, "received": 100}
            log.write(json.dumps({**line, "seconds": 0.1}) + "\n")
    RequestCount(door, lambda: None).look()


def test_gpu_hours_and_energy_of_a_run_are_those_of_its_segment_and_samples_day_by_day(services):
    folder, run = kept_service(services, "endpoint", "p-17")
    by_day = summed(used_days(), "day")
    assert list(by_day) == ["2026-11-01", "2026-11-02"]
    (segment,) = cordee.open_run(run.root).state.segment_states
    both = summed(used_days(), "project")["p-17"]
    assert both.seconds == pytest.approx(segment.ended_at - segment.started_at)
    assert both.gpu_seconds == pytest.approx(GPUS * both.seconds)
    assert by_day["2026-11-01"].seconds == pytest.approx(MIDNIGHT - segment.started_at)

    grid = cordee.open_run(run.root).grid("gpu", ["gpu_power_watts"])
    power = np.nan_to_num(grid.values[0].astype(np.float64), posinf=np.inf)
    minutes = (grid.times // 60).astype(int)
    for minute in np.unique(minutes):  # of a minute with a power that no GPU has, nothing is believed
        power[np.ix_(minutes == minute, np.isinf(power[minutes == minute]).any(axis=0))] = 0
    before = grid.times < MIDNIGHT
    assert by_day["2026-11-01"].energy_joules == pytest.approx(power[before].sum(), rel=1e-5)
    assert by_day["2026-11-02"].energy_joules == pytest.approx(power[~before].sum(), rel=1e-5)
    assert 0.5 < both.document()["energy_measured_ratio"] < 1, "a part of the samples was not measured"
    assert json.loads((folder.root / "used.json").read_text())["runs"], "a run that has ended is read once"
    assert summed(used_days(), "day") == by_day


def test_requests_at_the_door_are_on_the_account_of_the_service_and_of_users(services):
    kept_service(services, "endpoint", "p-17")
    kept_service(services, "tracking", "p-18")
    asked_at_door(
        services,
        (MIDNIGHT + 10, "endpoint", "ben"),
        (MIDNIGHT + 20, "endpoint", "cora"),
        (MIDNIGHT + 30, "tracking", "ben"),
        (MIDNIGHT + 86400 * 5, "tracking", "ben"),
    )
    code, document, _ = services.call("usage", "--by", "project", "--json")
    assert code == 0
    requests = {row["project"]: (row["requests"], row["sent_bytes"]) for row in document["usage"]}
    assert requests == {"p-17": (2, 2000), "p-18": (2, 2000)}
    _, document, _ = services.call("usage", "--by", "user", "--until", "2026-11-02", "--json")
    assert {row["user"]: row["requests"] for row in document["usage"]} == {"ben": 2, "cora": 1}
    _, document, _ = services.call("usage", "tracking", "--by", "day", "--since", "2026-11-02", "--json")
    assert [(row["day"], row["requests"]) for row in document["usage"]] == [("2026-11-02", 1), ("2026-11-07", 1)]
    assert services.call("usage", "--since", "yesterday")[0] == 2


def test_what_was_not_measured_is_not_zero(services):
    _, run = kept_service(services, "endpoint", "p-17")
    for path in sorted(run.telemetry.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    used = summed(used_days(), "service")["endpoint"].document()
    assert used["gpu_hours"] > 0
    assert used["energy_joules"] is None
    assert used["energy_measured_ratio"] == 0
    assert " - " in services.call("usage")[2]


@pytest.mark.usefixtures("real")
def test_a_service_that_is_removed_stays_in_the_account(services):
    assert services.call("deploy", str(services.blueprint), "--json")[0] == 0
    services.call("stop", "echo")
    before = summed(used_days(), "service")["echo"]
    assert before.seconds > 0
    assert services.call("stop", "echo", "--remove")[0] == 0
    assert summed(used_days(), "service") == {"echo": before}


def test_each_day_that_is_over_is_billed_once_and_again_where_billing_failed(services):
    kept_service(services, "endpoint", "p-17")
    asked_at_door(services, (MIDNIGHT + 10, "endpoint", "ben"), (MIDNIGHT + 20, "endpoint", "cora"))
    taken = services.folder / "taken"
    command = services.folder / "charge.py"
    command.write_text(f"import sys\nopen({str(taken)!r}, 'a').write(sys.stdin.read())\nsys.exit(int(sys.argv[1]))\n")
    charge = f"{sys.executable} {command}"
    code, _, said = services.call("usage", "--bill", f"{charge} 3")
    assert code != 0
    assert "exited with 3" in said
    assert services.call("usage", "--bill", f"{charge} 0")[0] == 0
    lines = [json.loads(line) for line in taken.read_text().splitlines()]
    assert lines[:2] == lines[2:], "what was refused comes again as it was"
    assert [(line["day"], line["project"], line["requests"]) for line in lines[2:]] == [
        ("2026-11-01", "p-17", 0),
        ("2026-11-02", "p-17", 2),
    ]
    assert len({line["id"] for line in lines}) == 2
    assert services.call("usage", "--bill", f"{charge} 0", "--json")[1]["bills"] == []
    assert services.call("usage", "--bill", "/no/such/command")[0] == 0, "there is nothing to hand over"


@pytest.mark.usefixtures("real")
def test_a_day_that_is_not_over_is_not_billed(services):
    assert services.call("deploy", str(services.blueprint), "--json")[0] == 0
    assert services.call("usage", "--bill", "false", "--json")[1]["bills"] == []
