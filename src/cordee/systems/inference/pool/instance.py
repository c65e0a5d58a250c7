"""One server of a model, on its own port and GPUs, asked all the time whether it answers."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from cordee.core.clock import monotonic
from cordee.core.web import token_guard
from cordee.wire.ports import pick_port

_ASK_EVERY_S = 0.5
_TIMEOUT_S = 10.0
_FIRST_ANSWER_S = 300.0
_WRONG_ANSWERS = 6
HOST = "127.0.0.1"


class ServerKind(NamedTuple):
    """How each server of a model is started.

    Attributes:
        name: of the model in requests; all servers have the same.
        names: a folder of the service, in which models lie under that name.
        device: as the server takes it.
        token_file: with the token that it asks for.
    """

    name: str
    names: Path
    device: str
    token_file: Path

    def place(self, model: Path) -> Path:
        """Return a folder in which the model lies under its name in requests: the server takes no other."""
        folder = self.names / hashlib.sha256(os.fsencode(model.absolute())).hexdigest()[:16]
        folder.mkdir(0o700, parents=True, exist_ok=True)
        link = folder / self.name
        if not link.is_symlink():
            link.symlink_to(model.absolute())
        return folder

    def words(self, host: str, port: int) -> list[str]:
        """Return the command that serves the model of the current folder to who has the token."""
        serve = ["transformers", "serve", self.name, "--host", host, "--port", str(port), "--device", self.device]
        return [sys.executable, token_guard.__file__, str(self.token_file), *serve]


class ModelInstance:
    """A server that runs from its making on.

    Args:
        slot: its place in the pool.
        serial: of the model among those that the pool has served.
        model: the folder with the model.
        gpus: the devices that it alone sees; None: what there is.
        kind: how it is started.
    """

    def __init__(self, slot: int, serial: int, model: Path, gpus: tuple[str, ...] | None, kind: ServerKind) -> None:
        self.slot, self.serial, self.model, self.gpus = slot, serial, model, gpus
        self.port = pick_port(HOST)
        self.began = monotonic()
        self.ready = False
        self.draining_since: float | None = None
        self.wrong_answers = 0
        self.last = "it has not answered yet"
        self.asked_from: int | None = None  # the port of the question that is open, which is nobody's request
        self._token, self._name = kind.token_file.read_text().strip(), kind.name
        own = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        words, place = kind.words(HOST, self.port), kind.place(model)
        self._process = subprocess.Popen(words, env={**os.environ, **own}, cwd=place, stdin=subprocess.DEVNULL)
        self._stopped = threading.Event()
        threading.Thread(target=self._ask, name=f"ask-{slot}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.poll()

    @property
    def takes_requests(self) -> bool:
        """Whether it is ready and does not go."""
        return self.ready and self.draining_since is None

    @property
    def hangs(self) -> bool:
        """Whether it was ready and has given wrong answers for too long."""
        return self.ready and self.wrong_answers >= _WRONG_ANSWERS

    def tell_end(self) -> None:
        """Ask it to end."""
        self._stopped.set()
        if self.ended is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._stopped.set()
        self._process.kill()
        self._process.wait()

    def _ask(self) -> None:
        """Ask until it has ended; it is ready once it has answered a question of its model."""
        while not self._stopped.wait(_ASK_EVERY_S if not self.ready else 4 * _ASK_EVERY_S) and self.ended is None:
            right = self._answers("GET", "/health", None, _TIMEOUT_S)
            if right and not self.ready:
                question = {"model": self._name, "prompt": "a", "max_tokens": 1, "temperature": 0}
                right = self._answers("POST", "/v1/completions", json.dumps(question).encode(), _FIRST_ANSWER_S)
            self.wrong_answers = 0 if right else self.wrong_answers + 1
            self.ready = self.ready or right

    def _answers(self, method: str, path: str, body: bytes | None, timeout_s: float) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout_s)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.connect()
            self.asked_from = connection.sock.getsockname()[1]
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            self.last = f"{method} {path}: {answer.status} {answer.reason}"
            return answer.status == 200
        except (OSError, http.client.HTTPException) as error:
            self.last = f"{method} {path}: {error or type(error).__name__}"
            return False
        finally:
            connection.close()
