"""A model of the demo with its checkpoint, and a small server in the place of `transformers`, which the pool starts by that name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.systems.inference.pool.instance import ModelInstance, ServerKind
from cordee.systems.inference.pool.pool import InstancePool, PoolLimits
from cordee.systems.inference.pool.served import ServedModel, read_pool
from cordee.testing.patience import wait_until
from cordee.wire.ports import pick_port

EXAMPLE = Path(__file__).parents[3] / "examples" / "char-gpt"
TOKEN = "a-token-of-tests"
# As `transformers serve MODEL --host H --port P`: it says what lies in the model's text.txt, a letter every 50 ms.
SERVER = """
import json, os, sys, time
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

model, port = sys.argv[2], int(sys.argv[sys.argv.index("--port") + 1])
read = lambda name: open(os.path.join(model, name)).read()
if os.path.exists(os.path.join(model, "broken")):
    sys.exit(3)

def app(environ, start):
    path, sick = environ["PATH_INFO"], os.path.exists(os.path.join(model, "sick"))
    asked = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or b"{}")
    start("500 Sick" if sick else "200 OK", [("Content-Type", "text/event-stream")])
    if path == "/health":
        return [b"{}"]
    told = f"{read('text.txt')}{os.environ.get('CUDA_VISIBLE_DEVICES', '')}"
    if not asked.get("stream"):
        return [json.dumps({"choices": [{"text": told}], "pid": os.getpid()}).encode()]
    def stream():
        for letter in (told * asked["max_tokens"])[: asked["max_tokens"]]:
            yield b"data: " + json.dumps({"choices": [{"text": letter}]}).encode() + b"\\n\\n"
            time.sleep(0.05)
        yield b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\\n\\ndata: [DONE]\\n\\n'
    return stream()

class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 100

class Quiet(WSGIRequestHandler):
    def log_message(self, *words): pass

make_server("127.0.0.1", port, app, Server, Quiet).serve_forever()
"""


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    """A checkpoint of the demo's model as its script saves it, with weights as they are made."""
    folder = tmp_path_factory.mktemp("demo")
    script = (
        "import sys, torch, cordee; sys.path.insert(0, sys.argv[1]); import train; torch.manual_seed(3);"
        "model = train.CharGPT(); torch.nn.init.normal_(model.token.weight, std=0.3);"
        "cordee.checkpointer(model, torch.optim.AdamW(model.parameters()), every_steps=1).save(10)"
    )
    env = {**os.environ, "CORDEE_CHECKPOINT_DIR": str(folder / "checkpoints")}
    subprocess.run([sys.executable, "-c", script, str(EXAMPLE)], env=env, check=True, timeout=300)
    return folder / "checkpoints"


class TestPool:
    """A pool of small servers in a thread of the test."""

    __test__ = False

    def __init__(self, folder: Path, limits: PoolLimits, devices: tuple[str, ...] = ()) -> None:
        self.volume = folder / "volume"
        self.volume.mkdir()
        token = folder / "token"
        token.write_text(TOKEN)
        kind = ServerKind("m", self.volume / "names", "cpu", token)
        self.url = f"http://127.0.0.1:{(port := pick_port('127.0.0.1'))}"

        def start(slot: int, served: ServedModel, gpus: tuple[str, ...] | None) -> ModelInstance:
            return ModelInstance(slot, served.serial, Path(served.model), gpus, kind)

        first = str(self.model("a"))
        self.pool = InstancePool(self.volume, first, "127.0.0.1", port, limits, devices, start)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self.pool.run, args=(self._ended.is_set,))
        self._thread.start()

    def model(self, text: str, *files: str) -> Path:
        folder = self.volume / f"model-{text}"
        folder.mkdir()
        (folder / "text.txt").write_text(text)
        for name in files:
            (folder / name).touch()
        return folder

    def end(self) -> None:
        self._ended.set()
        self._thread.join(30)

    def state(self) -> dict:
        return read_pool(self.volume)

    def ready(self) -> list[dict]:
        return [one for one in self.state().get("instances", ()) if one["state"] == "ready"]

    def until(self, what, within_s: float = 60.0) -> None:
        wait_until(what, within_s, said=self.state, every_s=0.05)

    def ask(self) -> dict:
        body = json.dumps({"model": "m", "prompt": "x"}).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/v1/completions", body, headers), timeout=20
        ) as answer:
            return json.loads(answer.read())


@pytest.fixture
def pools(tmp_path, monkeypatch) -> Iterator:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "transformers").write_text(f"#!{sys.executable}\n{SERVER}")
    (programs / "transformers").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    made: list[TestPool] = []

    def make(limits: PoolLimits, devices: tuple[str, ...] = ()) -> TestPool:
        made.append(TestPool(tmp_path, limits, devices))
        made[-1].until(lambda: len(made[-1].ready()) >= limits.least and made[-1].state()["state"] == "ready")
        return made[-1]

    yield make
    for one in made:
        one.end()
