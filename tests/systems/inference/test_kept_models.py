"""Models in a service's volume: the one that is served and the one before it, through upgrades, refusals and the way back."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from tests.systems.services.conftest import services  # noqa: F401  a fixture

from cordee.systems.inference import endpoint
from cordee.systems.inference.model import _placed

pytestmark = pytest.mark.usefixtures("real")

PROGRAM = """
import http.server, os, sys
model = sys.argv[3]
if os.path.exists(os.path.join(model, "broken")):
    sys.exit(3)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(open(os.path.join(model, "text")).read().encode())
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer((sys.argv[2], int(sys.argv[1])), Handler).serve_forever()
"""
BLUEPRINT = """
schema = 1
name = "echo"
argv = ["python", "PROGRAM", "{port.http}", "{host}", "{parameter.model}"]
guard = "none"

[parameters.model]
type = "path"

[ports.http]
port = 8080

[ready]
path = "/"
every = "0.2s"
within = "2min"

[volumes.models]
path = "/models"
shared = true
"""


@pytest.fixture
def served(services, monkeypatch):  # noqa: F811
    """Call `cordee service` with a model that a text is in the place of; returns what answers then, and which models are kept."""

    def made(source: str, runs: str | None, config: str | None, folder: Path) -> Path:
        partial = folder / ".new"
        partial.mkdir(parents=True)
        (partial / ("broken" if source == "broken" else "text")).write_text(source)
        return _placed(partial, folder)

    monkeypatch.setattr(endpoint, "prepare_model", made)
    services.program.write_text(PROGRAM)
    blueprint = services.write(BLUEPRINT)

    def call(command: str, *words: str) -> tuple[int, str, list[str], str]:
        code, _, said = services.call(command, str(blueprint) if command == "deploy" else "echo", *words, "--json")
        now = services.call("status", "echo", "--json")[1]["services"][0]
        with urllib.request.urlopen(now["endpoints"][0]["url"], timeout=60) as answer:
            text = answer.read().decode()
        return code, text, sorted(path.name for path in (services.root() / "volumes" / "models").iterdir()), said

    return call


def test_a_volume_keeps_the_model_that_is_served_and_the_one_before_to_go_back_to(served):
    assert served("deploy", "--model", "one")[:3] == (0, "one", ["1"])
    code, _, _, said = served("rollback", "--model")
    assert (code, "no model before this one" in said) == (2, True)
    assert served("upgrade", "--model", "two")[:3] == (0, "two", ["1", "2"])
    assert served("upgrade", "--model", "three")[:3] == (0, "three", ["2", "3"])
    code, text, kept, said = served("upgrade", "--model", "broken")
    assert (code, text, kept) == (1, "three", ["2", "3"]), said
    assert served("rollback", "--model")[:3] == (0, "two", ["2", "3"])
    assert served("rollback", "--model")[:3] == (0, "three", ["2", "3"])


def test_a_deployment_with_another_model_keeps_the_one_of_before(served, services):  # noqa: F811
    for text, kept in (("one", ["1"]), ("two", ["1", "2"]), ("three", ["2", "3"])):
        assert served("deploy", "--model", text)[:3] == (0, text, kept)
        services.call("stop", "echo")
