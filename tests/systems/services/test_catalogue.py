"""Entries of the catalogue with their real programs: used by their own clients, closed to others, killed, and given new passwords."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import optuna
import pytest
from tests.systems.services.conftest import BLUEPRINT

from cordee.systems.services.node.texts import read_client, read_state, state_path
from cordee.testing.containers import AS_USER, UID
from cordee.testing.patience import PatientWait

pytestmark = pytest.mark.usefixtures("real")


def deployed(services, name: str, *words: str) -> tuple[dict, dict[str, str]]:
    """Deploy an entry; return what was said, and the environment of a client."""
    return begun(services, name, "deploy", name, *words)


def rotated(services, name: str, secret: str) -> tuple[dict, dict[str, str]]:
    return begun(services, name, "upgrade", name, "--rotate", secret)


def begun(services, name: str, *words: str) -> tuple[dict, dict[str, str]]:
    code, now, said = services.call(*words, "--json")
    assert code == 0, said
    now = now.get("services", [now])[0]
    env = {one: value for one, value in os.environ.items() if one != "PYTHONPATH"}
    return now, {**env, "HOME": str(services.folder), **read_client(Path(now["client_file"]))}


def again(services, name: str) -> tuple[dict, dict[str, str]]:
    assert services.call("stop", name)[0] == 0
    return deployed(services, name)


def said_by(*words: str, env: dict[str, str], **others) -> str:
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=180, **others)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_refused(*words: str, env: dict[str, str]) -> bool:
    return subprocess.run(words, env=env, capture_output=True, check=False, timeout=180).returncode != 0


def answer(url: str, known: str = "", body: bytes | None = None) -> tuple[int, dict]:
    headers = {"Content-Type": "application/json", **({"Authorization": known} if known else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as got:
            return got.status, json.load(got)
    except urllib.error.HTTPError as error:
        return error.code, {}


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def pid_of(now: dict) -> int:
    return read_state(state_path(Path(now["run"]), now["name"]))["pid"]


def until_ready_again(services, before: dict) -> None:
    killed, patience = pid_of(before), PatientWait(120.0)
    while not patience.over():
        now = services.call("status", before["name"], "--json")[1]["services"][0]
        if now["ready"] and pid_of(now) != killed:
            return
        time.sleep(0.1)
    raise AssertionError(now)


class OtherUser:
    """`cordee service` as a user without rights calls it: PostgreSQL refuses to run as root."""

    def __init__(self, folder: Path, python) -> None:
        self.folder = folder
        user = AS_USER if os.getuid() == 0 else []
        self._words = [*user, python.executable, "-m", "cordee.faces.cli", "service"]
        self._env = {
            "PATH": os.defpath,
            "HOME": str(folder),
            "PYTHONPATH": python.source,
            "CORDEE_SERVICES": str(folder / "services"),
        }

    def call(self, *words: str) -> tuple[int, dict, str]:
        done = subprocess.run(
            [*self._words, *words], env=self._env, cwd="/", capture_output=True, text=True, check=False
        )
        with contextlib.suppress(ValueError):
            return done.returncode, json.loads(done.stdout), done.stdout + done.stderr
        return done.returncode, {}, done.stdout + done.stderr


@pytest.fixture
def other_user(open_to_all):
    with tempfile.TemporaryDirectory(prefix="cordee-pg-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if os.getuid() == 0:
            os.chown(folder, UID, UID)
        user = OtherUser(folder, open_to_all)
        yield user
        user.call("stop", "postgresql", "--remove")


def sql(text: str, env: dict[str, str]) -> str:
    return said_by("psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command", text, env=env).strip()


def test_postgresql_keeps_its_rows_takes_a_new_password_and_ends_well_with_a_client_connected(other_user):
    now, env = deployed(other_user, "postgresql")
    sql("create table runs (name text); insert into runs values ('first')", env)
    assert sql("select name from runs", env) == "first"
    stranger = {name: value for name, value in env.items() if name != "PGPASSWORD"}
    assert is_refused("psql", "--no-password", "--command", "select 1", env=stranger)
    assert is_refused("psql", "--command", "select 1", env={**env, "PGPASSWORD": "x" * 40})

    held = subprocess.Popen(["psql", "--quiet"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    held.stdin.write(b"\\echo here\n")
    held.stdin.flush()
    assert held.stdout.readline() == b"here\n"
    assert other_user.call("stop", "postgresql")[0] == 0
    held.communicate()
    assert "database system is shut down" in other_user.call("logs", "postgresql")[2]

    _, env = deployed(other_user, "postgresql")
    assert sql("select name from runs", env) == "first"

    _, new = rotated(other_user, "postgresql", "password")
    assert new["PGPASSWORD"] != env["PGPASSWORD"]
    assert sql("select name from runs", new) == "first"
    old = {**new, "PGPASSWORD": env["PGPASSWORD"]}
    assert is_refused("psql", "--command", "select 1", env=old), "the old password still opens it"
    files = "".join(path.read_text(errors="replace") for path in Path(now["run"]).parents[1].rglob("*.json*"))
    assert new["PGPASSWORD"] not in files


def test_each_row_that_postgresql_has_acknowledged_is_there_after_its_postmaster_was_killed(other_user):
    now, env = deployed(other_user, "postgresql")
    sql("create table numbers (n int)", env)
    rows, told = other_user.folder / "rows.sql", other_user.folder / "told"
    rows.write_text("".join(f"insert into numbers values ({number});\n" for number in range(200_000)))
    with rows.open() as source, told.open("w") as target:
        writer = subprocess.Popen(["psql", "--no-psqlrc"], env=env, stdin=source, stdout=target, stderr=target)
        patience = PatientWait(60.0)
        while told.stat().st_size < 1 << 14 and not patience.over():
            time.sleep(0.01)
        os.kill(pid_of(now), signal.SIGKILL)
        writer.wait(60)
    acknowledged = told.read_text().count("INSERT 0 1")
    assert 0 < acknowledged < 200_000, told.read_text()[-500:]
    until_ready_again(other_user, now)
    assert int(sql(f"select count(*) from numbers where n < {acknowledged}", env)) == acknowledged


@pytest.mark.gate
def test_redis_keeps_what_it_has_acknowledged_when_it_is_killed_and_takes_a_new_password(services):
    now, env = deployed(services, "redis")
    cli = ["redis-cli", "-e", "-h", env["REDIS_HOST"], "-p", env["REDIS_PORT"]]
    assert said_by(*cli, "set", "queue", "first", env=env) == "OK\n"
    stranger = {name: value for name, value in env.items() if name != "REDISCLI_AUTH"}
    assert is_refused(*cli, "get", "queue", env=stranger)
    assert is_refused(*cli, "get", "queue", env={**env, "REDISCLI_AUTH": "x" * 40})

    acknowledged = 0
    with socket.create_connection((env["REDIS_HOST"], int(env["REDIS_PORT"]))) as link, link.makefile("rwb") as lines:
        lines.write(f"AUTH {env['REDISCLI_AUTH']}\r\n".encode())
        lines.flush()
        assert lines.readline() == b"+OK\r\n"
        with contextlib.suppress(OSError):
            while acknowledged < 100_000:
                lines.write(b"RPUSH numbers %d\r\n" % acknowledged)
                lines.flush()
                if lines.readline() != b":%d\r\n" % (acknowledged + 1):
                    break
                acknowledged += 1
                if acknowledged == 2000:
                    os.kill(pid_of(now), signal.SIGKILL)
    assert 2000 <= acknowledged < 100_000
    until_ready_again(services, now)
    assert int(said_by(*cli, "llen", "numbers", env=env)) >= acknowledged
    assert said_by(*cli, "get", "queue", env=env) == "first\n"

    _, new = rotated(services, "redis", "password")
    cli = ["redis-cli", "-e", "-h", new["REDIS_HOST"], "-p", new["REDIS_PORT"]]
    assert said_by(*cli, "get", "queue", env=new) == "first\n"
    assert is_refused(*cli, "get", "queue", env={**new, "REDISCLI_AUTH": env["REDISCLI_AUTH"]})


def test_ray_runs_a_job_for_who_has_its_token(services):
    now, env = deployed(services, "ray")
    program = "import ray; ray.init(); print('said', ray.get(ray.remote(lambda: 6 * 7).remote()))"
    job = [str(Path(sys.executable).with_name("ray")), "job"]
    assert "said 42" in said_by(*job, "submit", "--", sys.executable, "-c", program, env=env)
    assert is_refused(*job, "list", env={**env, "RAY_AUTH_TOKEN": "x" * 40})
    url = now["endpoints"][0]["url"] + "/api/jobs/"
    assert answer(url)[0] in (401, 403)
    assert answer(url, f"Bearer {'x' * 40}")[0] in (401, 403)
    assert answer(url, f"Bearer {env['RAY_AUTH_TOKEN']}")[0] == 200

    now, new = rotated(services, "ray", "token")
    url = now["endpoints"][0]["url"] + "/api/jobs/"
    assert answer(url, f"Bearer {env['RAY_AUTH_TOKEN']}")[0] in (401, 403)
    assert answer(url, f"Bearer {new['RAY_AUTH_TOKEN']}")[0] == 200


def test_prefect_keeps_its_work_pools_for_who_has_its_password(services, monkeypatch):
    own = Path(sys.prefix) / "prefect"
    assert (own / "bin" / "prefect").exists(), "`make test-all` makes an environment for it: it wants an older FastAPI"
    monkeypatch.setenv("VIRTUAL_ENV", str(own))
    monkeypatch.setenv("PATH", f"{own / 'bin'}{os.pathsep}{os.environ['PATH']}")
    _, env = deployed(services, "prefect")
    pools = ["prefect", "work-pool"]
    said_by(*pools, "create", "gpus", "--type", "process", env=env)
    assert "gpus" in said_by(*pools, "ls", env=env)
    assert is_refused(*pools, "ls", env={**env, "PREFECT_API_AUTH_STRING": "admin:" + "x" * 40})
    assert answer(env["PREFECT_API_URL"] + "/work_pools/filter", body=b"{}")[0] == 401

    _, env = again(services, "prefect")
    assert "gpus" in said_by(*pools, "ls", env=env)
    _, new = rotated(services, "prefect", "password")
    count, old, known = (
        new["PREFECT_API_URL"] + "/flows/count",
        *(basic(*one["PREFECT_API_AUTH_STRING"].split(":")) for one in (env, new)),
    )
    assert answer(count, old, b"{}")[0] == 401
    assert answer(count, known, b"{}")[0] == 200


def test_the_optuna_dashboard_shows_a_study_to_who_has_its_token(services):
    now, env = deployed(services, "optuna-dashboard")
    study = optuna.create_study(storage=env["OPTUNA_STORAGE"], study_name="widths")
    study.optimize(lambda trial: trial.suggest_float("width", 0, 1) ** 2, n_trials=3)

    def shown(now: dict) -> list[str]:
        url, token = now["endpoints"][0]["url"] + "/api/studies", Path(now["endpoints"][0]["token_file"]).read_text()
        assert answer(url)[0] == 401
        assert answer(url, f"Bearer {'x' * len(token)}")[0] == 401
        return [one["study_name"] for one in answer(url, f"Bearer {token}")[1]["study_summaries"]]

    assert shown(now) == ["widths"]
    assert shown(again(services, "optuna-dashboard")[0]) == ["widths"]


def test_the_new_password_of_mlflow_opens_it_and_the_old_one_does_not(services):
    now, env = deployed(services, "mlflow")
    path = "/api/2.0/mlflow/experiments"
    old = basic("admin", env["MLFLOW_TRACKING_PASSWORD"])
    made = answer(now["endpoints"][0]["url"] + path + "/create", old, b'{"name": "tuning"}')
    assert made[0] == 200
    now, new = rotated(services, "mlflow", "password")
    asked = f"{now['endpoints'][0]['url']}{path}/get?experiment_id={made[1]['experiment_id']}"
    got = answer(asked, basic("admin", new["MLFLOW_TRACKING_PASSWORD"]))
    assert got[1]["experiment"]["name"] == "tuning"
    assert answer(asked, old)[0] == 401


@pytest.mark.gate
def test_a_secret_that_cannot_be_made_anew_is_refused_before_anything_changes(services):
    kept = BLUEPRINT.replace("[secrets.token]", "[secrets.token]\nkept = true\n\n[secrets.other]")
    now, _ = begun(services, "echo", "deploy", str(services.write(kept)))
    secrets = services.root() / "secrets"
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    for words, why in (
        (["--rotate", "token"], "echo keeps the secret token in its data"),
        (["--rotate", "other", "--rotate", "token"], "echo keeps the secret token in its data"),
        (["--rotate", "other", "--rotate", "nobody"], "echo has no generated secret nobody"),
        (["--rotate", "other", "--set", "nobody=1"], "nobody"),
    ):
        code, _, said = services.call("upgrade", "echo", *words)
        assert code == 2, said
        assert why in said
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    still = services.call("status", "echo", "--json")[1]["services"][0]
    assert (still["run"], still["ready"]) == (now["run"], True)
