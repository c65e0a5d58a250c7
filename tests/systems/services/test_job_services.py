"""Services of a job: ready before its ranks, told to them alone, started again, ended with the run, their data kept."""

from __future__ import annotations

import json
import time

import pytest
from tests.systems.services.conftest import BLUEPRINT, PROGRAM

from cordee.core.errors import DocumentError
from cordee.job.load import load_job
from cordee.job.plan.compile import make_plan
from cordee.job.terminal.requests import leave_request
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

ASKING = """
import json, os, pathlib, sys, time, urllib.request
def ask(path, token):
    request = urllib.request.Request(os.environ["ECHO_URL"] + path, headers={"Authorization": "Bearer " + token})
    return urllib.request.urlopen(request, timeout=10).read().decode()
told = [ask("/data", os.environ["ECHO_TOKEN"])]
try: ask("/data", "wrong")
except urllib.error.HTTPError as error: told.append(error.code)
if "--leave" in sys.argv and os.environ.get("RANK", "0") == "0":
    try: ask("/leave", os.environ["ECHO_TOKEN"])
    except OSError: pass
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try: told.append(ask("/data", os.environ["ECHO_TOKEN"])); break
        except OSError: time.sleep(0.1)
pathlib.Path("told-" + os.environ.get("RANK", "0")).write_text(json.dumps(told))
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setenv("CORDEE_CATALOGUES", str(tmp_path / "catalogue"))
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text(ASKING)
    (folder / "program.py").write_text(PROGRAM)

    def write(more: str = "", blueprint: str = BLUEPRINT, run: str = "python train.py", service: str = "echo.toml"):
        (folder / "echo.toml").write_text(blueprint.replace("PROGRAM", str(folder / "program.py")))
        table = f'[services.echo]\nservice = "{service}"\nset = {{ greeting = "salut" }}\n'
        (folder / "cordee.toml").write_text(f'name = "t"\nrun = "{run}"\n{more}\n{table}')
        return folder

    return write


@pytest.fixture
def run(tmp_path):
    started = []

    def begin(folder, **flags):
        one = LocalRun(folder, tmp_path / "runs", vet__max_load=1000.0, **flags)
        started.append(one)
        one.start()
        return one

    yield begin
    for one in started:
        one.end()
        assert one.processes() == []


def errors(folder) -> list[str]:
    found = make_plan(load_job(folder), run_id="a-1", run_folder=folder / "runs" / "a-1")[1]
    return [finding.text for finding in found if finding.severity == "error"]


def events(one, name: str) -> list[dict]:
    return [event for event in one.events() if event["event"] == name]


def test_ranks_of_all_nodes_use_a_service_that_was_ready_before_them_and_left_with_them(job, run):
    folder = job("[need]\nnodes = 2")
    one = run(folder)
    assert one.wait_end().state == "finished", one.output()
    for rank in (0, 1):
        assert json.loads((folder / f"told-{rank}").read_text()) == ["/data salut", 401]
    names = [event["event"] for event in one.events() if event["event"] in ("service", "attempt_started", "ended")]
    assert names == ["service", "attempt_started", "service", "ended"]
    assert [event["state"] for event in events(one, "service")] == ["ready", "stopped"]
    kept = one.folder.root / "services" / "echo"
    assert (kept / "volumes" / "data" / "starts").read_text() == "x"
    token = (kept / "secrets" / "token").read_text()
    records = [path for path in one.folder.root.rglob("*") if path.is_file() and "services" not in path.parts]
    assert not [path for path in records if token.encode() in path.read_bytes()]
    assert one.folder.root.stat().st_mode & 0o077 == 0


def test_a_service_that_ends_beside_ranks_is_started_again_at_the_same_address(job, run):
    folder = job(run="python train.py --leave")
    one = run(folder)
    assert one.wait_end().state == "finished", one.output()
    assert json.loads((folder / "told-0").read_text())[-1] == "/data salut"
    found = [event["finding"] for event in events(one, "finding")]
    assert [finding["rule"] for finding in found if finding["rule"].startswith("service")] == ["service-ended"]
    urls = {event["url"] for event in events(one, "service") if event["state"] == "ready"}
    assert len(urls) == 1


def test_ranks_do_not_start_without_their_service(job, run):
    folder = job(blueprint=BLUEPRINT.replace('path = "/health"', 'path = "/nothing"').replace('"20s"', '"0.5s"'))
    one = run(folder)
    state = one.wait_end()
    assert (state.state, events(one, "attempt_started")) == ("failed", [])
    assert (
        "the service echo did not become ready: it was not ready within 0 s: asked GET http://127.0.0.1:" in state.text
    )


def test_a_service_that_lets_strangers_in_ends_the_run(job, run):
    one = run(job(blueprint=BLUEPRINT.replace('"{volume.data}"]', '"{volume.data}", "--open"]')))
    state = one.wait_end()
    assert state.state == "failed"
    assert "it lets strangers in" in state.text


@pytest.mark.gate
def test_a_killed_rank_finds_the_same_service_again(job, run):
    folder = job("[restart]\nretries = 2\nbackoff = '0.1s'")
    (folder / "train.py").write_text(
        ASKING + '\nif not os.path.exists("once"): pathlib.Path("once").write_text(""); os.kill(os.getpid(), 9)\n'
    )
    one = run(folder)
    assert one.wait_end().state == "finished", one.output()
    assert [event["state"] for event in events(one, "service")] == ["ready", "ready", "stopped"]
    assert (one.folder.root / "services" / "echo" / "volumes" / "data" / "starts").read_text() == "x"


def test_a_cancelled_run_leaves_no_service_behind(job, run):
    folder = job()
    (folder / "train.py").write_text(ASKING + "\ntime.sleep(300)\n")
    one = run(folder)
    until = time.monotonic() + 60
    while not (folder / "told-0").exists() and time.monotonic() < until:
        time.sleep(0.1)
    leave_request(one.folder, {"request": "cancel", "by": "test", "now": False})
    assert one.wait_end().state == "cancelled"
    assert [event["state"] for event in events(one, "service")] == ["ready", "stopped"]


@pytest.mark.parametrize(
    ("blueprint", "service", "said"),
    [
        (BLUEPRINT, "no-such", "the catalogue has no service no-such"),
        (BLUEPRINT, "../gone.toml", "gone.toml"),
        (BLUEPRINT + "\n[need]\ngpus = 1\n", "echo.toml", "echo needs a GPU, and those of the job are its ranks'"),
        (BLUEPRINT.replace("schema = 1", 'schema = 1\nafter = ["redis"]'), "echo.toml", "echo comes after redis"),
        (BLUEPRINT.replace("[parameters.greeting]", "[parameters.other]").replace("parameter.greeting", "parameter.other"),
         "echo.toml", "echo has no parameter greeting"),
        (BLUEPRINT.replace("schema = 1", "schema = 9"), "echo.toml", "newer version of Cord"),
    ],
)  # fmt: skip
def test_a_service_that_a_job_cannot_have_is_refused_by_name(job, blueprint, service, said):
    found = errors(job(blueprint=blueprint, service=service))
    assert any(said in text for text in found), found


def test_two_services_that_set_one_variable_are_refused(job):
    folder = job()
    (folder / "cordee.toml").write_text('name = "t"\nrun = "true"\n[services]\na = "echo.toml"\nb = "echo.toml"\n')
    assert "the services a and b would both set ECHO_URL" in errors(folder)


def test_a_service_without_a_text_is_a_fault_with_its_line(job):
    folder = job()
    (folder / "cordee.toml").write_text('name = "t"\nrun = "true"\n[services]\na = 3\n')
    with pytest.raises(DocumentError) as caught:
        load_job(folder)
    assert [finding.line for finding in caught.value.findings] == [4]
