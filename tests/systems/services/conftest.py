"""Services of a test of its own: a folder for them, a small program that asks for a token, and an end for all that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cordee.faces.cli import main
from cordee.machine.processes.tree import all_processes, kill_all
from cordee.systems.services.deployment import stop
from cordee.systems.services.instance import deployed

PROGRAM = """
import http.server, os, sys, time
port, host, secret_file, data = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
token = open(secret_file).read().strip()
if os.path.exists(os.path.join(data, "broken")):
    sys.exit(3)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/leave":
            os._exit(7)
        known = self.headers.get("Authorization") == "Bearer " + token
        code = 200 if self.path == "/health" or known or OPEN else 401
        self.send_response(code); self.end_headers()
        if code == 200: self.wfile.write((self.path + " " + os.environ.get("GREETING", "")).encode())
    def log_message(self, *words): print(self.path, flush=True)
OPEN = "--open" in sys.argv
open(os.path.join(data, "starts"), "a").write("x")
print("the token is", token, flush=True)
http.server.ThreadingHTTPServer((host, port), Handler).serve_forever()
"""
BLUEPRINT = """
schema = 1
name = "echo"
purpose = "Answers."
argv = ["python", "PROGRAM", "{port.http}", "{host}", "{secret.token}", "{volume.data}"]

[parameters.greeting]
type = "text"
default = "hello"

[ports.http]
port = 8080

[ready]
path = "/health"
every = "0.2s"
within = "20s"

[closed]
path = "/data"

[volumes.data]
path = "/data"

[secrets.token]

[env]
GREETING = "{parameter.greeting}"

[client]
ECHO_URL = "{url.http}"
ECHO_TOKEN = "{value.token}"
"""


class Services:
    """`cordee service` as a person calls it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        self.blueprint = self.write(BLUEPRINT)

    def write(self, text: str, name: str = "echo.toml") -> Path:
        path = self.folder / name
        path.write_text(text.replace("PROGRAM", str(self.program)))
        return path

    def call(self, *words: str) -> tuple[int, dict, str]:
        """Return the exit code, the JSON document and what was said beside it."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["service", *words])
        printed = self._capsys.readouterr()
        try:
            document = json.loads(printed.out)
        except ValueError:
            document = {}
        return int(ended.value.code or 0), document, printed.out + printed.err

    def root(self, name: str = "echo") -> Path:
        return self.folder / "services" / name


@pytest.fixture
def services(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORDEE_SERVICES", str(tmp_path / "services"))
    monkeypatch.setenv("CORDEE_CATALOGUES", str(tmp_path / "catalogue"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CORDEE_RUNS", raising=False)
    yield Services(tmp_path, capsys)
    for folder in deployed():
        stop(folder)
    # What a test has killed may have left its own.
    kill_all(one.pid for one in all_processes().values() if _says_its_errors_in(tmp_path, one.pid))


def _says_its_errors_in(folder: Path, pid: int) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/fd/2")).is_relative_to(folder)
    except OSError:
        return False
