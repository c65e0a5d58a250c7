"""`cordee serve` as it is called: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from cordee.faces.cli import main
from cordee.runs.folder import RunFolder

PATIENCE_S = 90.0
SECRET = "0123456789abcdef0123456789abcdef"


@contextmanager
def serving(*arguments: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    """Run the command until the context ends; gives the process and what it said."""
    argv = [sys.executable, "-m", "cordee.faces.cli", "serve", "--json", "--port", "0", *arguments]
    with subprocess.Popen(argv, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            text = ""
            while not text.rstrip().endswith("}"):
                line = server.stdout.readline()
                assert line, server.stderr.read() if server.stderr else ""
                text += line
            yield server, json.loads(text)
        finally:
            server.kill()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """Return the error of a call that is refused."""
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--json", *arguments])
    assert ended.value.code == 2
    error: dict[str, object] = json.loads(capsys.readouterr().out)["error"]
    return error


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_when_told_to_though_streams_are_open(made_folder: RunFolder, number: signal.Signals) -> None:
    parent = made_folder.root.parent
    with serving("--runs", str(parent), cwd=parent) as (server, said):
        url = str(said["url"])
        assert said["schema"] == "cordee.serve/1"
        with httpx.Client(timeout=PATIENCE_S) as client:
            assert client.get(f"{url}api/runs").json()["total"] == 1
            assert "<html" in client.get(url).text
            with client.stream("GET", f"{url}api/runs/{made_folder.id}/live") as answer:
                lines = answer.iter_lines()
                assert next(lines).startswith("retry")
                began = time.monotonic()
                server.send_signal(number)
                server.wait(PATIENCE_S)
                assert time.monotonic() - began < PATIENCE_S
        assert server.returncode in (0, -number)


@pytest.mark.usefixtures("real")
def test_a_stream_goes_on_with_a_server_that_was_killed_and_started_again(made_folder: RunFolder) -> None:
    parent = made_folder.root.parent
    with serving("--runs", str(parent), cwd=parent) as (server, said):
        url = str(said["url"])
        with httpx.Client(timeout=PATIENCE_S) as client:
            with client.stream("GET", f"{url}api/runs/{made_folder.id}/live") as answer:
                lines = answer.iter_lines()
                cursor = next(line for line in lines if line.startswith("id: "))[4:]
                server.kill()
                with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                    list(lines)
    with serving("--runs", str(parent), "--port", str(httpx.URL(url).port), cwd=parent) as (_, said):
        assert said["url"] == url
        with httpx.Client(timeout=PATIENCE_S, headers={"Last-Event-ID": cursor}) as client:
            with client.stream("GET", f"{url}api/runs/{made_folder.id}/live") as answer:
                assert answer.status_code == 200
                assert next(answer.iter_lines()).startswith("retry")


def test_a_run_is_shown_first_wherever_it_lies_and_with_tokens_others_may_look(
    made_folder: RunFolder, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"me read {SECRET}\n")
    tokens.chmod(0o600)
    arguments = (str(made_folder.root), "--address", "0.0.0.0", "--tokens", str(tokens), "--host", "shown.example")
    with serving(*arguments, cwd=tmp_path) as (_, said):
        url = str(said["url"])
        assert url.endswith(f"/#/run/{made_folder.id}")
        port = httpx.URL(url).port
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            assert client.get("/api/runs").status_code == 401
            shown = client.get(
                "/api/runs", headers={"Authorization": f"Bearer {SECRET}", "Host": f"shown.example:{port}"}
            )
            assert shown.json()["total"] == 1
            client.follow_redirects = True
            assert client.post("/sign-in", data={"token": SECRET}).status_code == 200
            assert client.get("/api/runs").json()["total"] == 1


def test_others_are_not_let_in_without_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "--address", "0.0.0.0")
    assert "--tokens" in str(error["allowed"])
    assert "ssh -L" in str(error["next"])


def test_what_is_wrong_with_the_call_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = refused(capsys, "--port", str(taken.getsockname()[1]))
        assert "cannot listen" in str(error["text"])
    assert refused(capsys, "--address", "nowhere.example")["allowed"]
    assert refused(capsys, "no-such-run")["kind"] == "run_not_found"
    readable = tmp_path / "tokens"
    readable.write_text(f"me read {SECRET}\n")
    readable.chmod(0o644)
    assert "others can read" in str(refused(capsys, "--tokens", str(readable))["text"])
