"""`cordee serve` as it is called: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
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

from cordee.runs.folder import RunFolder

PATIENCE_S = 90.0
SECRET = "0123456789abcdef0123456789abcdef"


@contextmanager
def serving(*arguments: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    """Run the command until the context ends; gives the process and what it said."""
    argv = [sys.executable, "-m", "cordee.cli", "serve", "--json", "--port", "0", *arguments]
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


def refused(*arguments: str, cwd: Path) -> dict[str, object]:
    """Return the error of a call that is refused."""
    argv = [sys.executable, "-m", "cordee.cli", "serve", "--json", *arguments]
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2, done.stderr
    error: dict[str, object] = json.loads(done.stdout)["error"]
    return error


@pytest.mark.slow
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


@pytest.mark.slow
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
            assert client.get("/", params={"token": SECRET}).status_code == 200
            assert client.get("/api/runs").json()["total"] == 1


def test_others_are_not_let_in_without_tokens(tmp_path: Path) -> None:
    error = refused("--address", "0.0.0.0", cwd=tmp_path)
    assert "--tokens" in str(error["allowed"])
    assert "ssh -L" in str(error["next"])


def test_what_is_wrong_with_the_call_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = refused("--port", str(taken.getsockname()[1]), cwd=tmp_path)
        assert "cannot listen" in str(error["text"])
    assert refused("--address", "nowhere.example", cwd=tmp_path)["allowed"]
    assert refused("no-such-run", cwd=tmp_path)["kind"] == "run_not_found"
    readable = tmp_path / "tokens"
    readable.write_text(f"me read {SECRET}\n")
    os.chmod(readable, 0o644)
    assert "others can read" in str(refused("--tokens", str(readable), cwd=tmp_path)["text"])
