"""Who is told that a run has ended, and how: real runs, a real webhook, a sendmail that writes down what it is given."""

import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cordee.core.errors import DocumentError
from cordee.job.submit import plan_of, submitter_of
from cordee.runs.journal import read_journal
from cordee.systems.trials.farm_life import begin_again
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

_QUICK = {"timeouts__lost": 4.0, "timeouts__heartbeat": 0.2, "vet__max_load": 1000.0}


class Hook:
    """A webhook that takes documents; it answers with `status`."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.status = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.taken.append({**json.loads(body), "authorization": self.headers.get("Authorization")})
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


def run_of(folder: Path, run: str, notify: str, more: str = "") -> LocalRun:
    job = folder / "job"
    job.mkdir()
    (job / "cordee.toml").write_text(
        f"name = 'told'\nrun = {run!r}\n[restart]\nretries = 0\n[notify]\n{notify}\n{more}"
    )
    return LocalRun(job, folder / "runs", reported=False, **_QUICK)


def notices(run: LocalRun) -> list[tuple[str, str]]:
    return [
        (event["way"], event["outcome"]) for event in read_journal(run.folder.journal) if event["event"] == "notice"
    ]


@pytest.mark.gate
def test_a_failure_is_told_in_each_way_and_one_that_fails_keeps_no_other_back(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sendmail").write_text(f"#!/bin/sh\ncat > {tmp_path}/mail\n")
    (programs / "sendmail").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (tmp_path / "token").write_text("hush-hush-1\n")
    (tmp_path / "token").chmod(0o600)
    notify = f"on = 'failure'\nmail = 'me@example.org'\nwebhook = '{hook.url}'\ntoken_file = '{tmp_path}/token'\ncommand = ['no-such-program']"
    with run_of(tmp_path, "sh -c 'exit 7'", notify) as run:
        assert run.wait_end().state == "failed"
        run.wait(lambda _: len(notices(run)) == 3)
        assert sorted(notices(run)) == [("command", "failed"), ("mail", "sent"), ("webhook", "sent")]
        (told,) = hook.taken
        assert (told["state"], told["exit_code"], told["about"], told["run"]) == ("failed", 7, "run", run.folder.id)
        assert told["authorization"] == "Bearer hush-hush-1"
        mail = (tmp_path / "mail").read_text()
        assert "To: me@example.org" in mail
        assert f"Subject: {run.folder.id}: failed" in mail
        assert "hush" not in "".join(path.read_text() for path in run.folder.journal.glob("*.jsonl"))


def test_the_end_of_a_run_that_was_resumed_is_told_too(tmp_path: Path, hook: Hook) -> None:
    again = f"test -e {tmp_path}/there"
    with run_of(tmp_path, again, f"on = 'end'\nwebhook = '{hook.url}'") as run:
        assert run.wait_end().state == "failed"
        run.wait(lambda _: len(notices(run)) == 1 and run.processes() == [])
        (tmp_path / "there").touch()
        begin_again(run.folder)
        run.wait(lambda _: len(notices(run)) == 2)
        assert [told["state"] for told in hook.taken] == ["failed", "finished"]
        assert len({told["key"] for told in hook.taken}) == 2


def test_who_asked_for_failures_hears_of_no_success(tmp_path: Path, hook: Hook) -> None:
    with run_of(tmp_path, "true", f"on = ['failure', 'best']\nwebhook = '{hook.url}'") as run:
        assert run.wait_end().state == "finished"
        run.wait(lambda _: run.processes() == [])
        assert (hook.taken, notices(run)) == ([], [])


def test_the_best_trial_of_a_sweep_and_the_result_of_a_test_are_told(tmp_path: Path, hook: Hook) -> None:
    script = "import cordee, sys; cordee.log(loss=float(sys.argv[1]))"
    (tmp_path / "sweep").mkdir()
    sweep = "[sweep]\nx = [3, 1, 2]\ngoal = 'min loss'\n"
    with run_of(
        tmp_path / "sweep", f'python -c "{script}" {{x}}', f"on = 'best'\nwebhook = '{hook.url}'", sweep
    ) as run:
        assert run.wait_end().state == "finished"
        run.wait(lambda _: bool(notices(run)))
    assert hook.taken[0]["best"]["text"] == "loss = 1, trial 1: x=1"
    (tmp_path / "test").mkdir()
    hook.status = 404
    tested = run_of(tmp_path / "test", "true", f"on = 'test'\nwebhook = '{hook.url}'", "[test]\nrun = 'false'\n")
    submitter_of(tested.folder).submit(tested.folder, plan_of(tested.folder))
    (child,) = (tested.folder.root / "children").glob("told-test-*")
    told = None
    deadline = time.monotonic() + 60
    while told is None and time.monotonic() < deadline:
        time.sleep(0.05)
        told = next((event for event in read_journal(child / "journal") if event["event"] == "notice"), None)
    assert told is not None
    assert (told["about"], told["outcome"], "refuses: 404" in told["text"]) == ("test", "failed", True)
    assert tested.state.state == "failed"
    assert [one["about"] for one in hook.taken] == ["run", "test"]


@pytest.mark.parametrize(
    ("notify", "text"),
    [
        ("webhook = 'ftp://there'", "is no address"),
        ("webhook = 'http://there.example'\ntoken_file = 'token'", "in the clear"),
        ("mail = 'nobody'", "is no address"),
        ("on = 'always'\nmail = 'a@b'", "notify.on"),
    ],
)
def test_what_cannot_be_told_is_refused(tmp_path: Path, notify: str, text: str) -> None:
    with pytest.raises(DocumentError, match=text):
        run_of(tmp_path, "true", notify)
