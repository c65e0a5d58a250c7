"""What a service is asked, and what it answered, in words that say why it counts as ready or not."""

from __future__ import annotations

import http.client
import shlex
import socket
import subprocess
import time
from typing import Any, Mapping, NamedTuple, Optional, Sequence

_REFUSED = (301, 302, 303, 307, 308, 400, 401, 403)
_SHOWN = 200
# Of a command that let somebody in, or that could not be run, in a container by podman's words.
_NOT_ASKED = (0, None, 125, 126, 127)


class ServiceAnswer(NamedTuple):
    """Whether it was right, what was asked, what came back, after how many seconds."""

    right: bool
    asked: str
    got: str
    seconds: float


def ask(
    probe: Mapping[str, Any], host: str, port: Optional[int], env: Mapping[str, str], token: Optional[str] = None
) -> ServiceAnswer:
    """Ask whether a service is well.

    Args:
        probe: `command`, or `path`, or neither: then a connection is enough; `timeout_s`, and `status` that is right.
        host, port: where it listens.
        env: of a command.
        token: sent with the question.
    """
    if probe.get("command"):
        code, said, seconds = _run(probe["command"], env, probe["timeout_s"])
        return ServiceAnswer(code == 0, shlex.join(probe["command"]), _ended(code, said), seconds)
    began = time.monotonic()
    if not probe.get("path"):
        asked = f"a connection to {host}:{port}"
        try:
            socket.create_connection((host, int(port or 0)), probe["timeout_s"]).close()
        except OSError as error:
            return ServiceAnswer(False, asked, words_of(error), time.monotonic() - began)
        return ServiceAnswer(True, asked, "a connection", time.monotonic() - began)
    status, got = _get(host, port, probe["path"], probe["timeout_s"], token)
    right = status == probe["status"] if probe.get("status") else status is not None and 200 <= status < 400
    return ServiceAnswer(right, f"GET http://{host}:{port}{probe['path']}", got, time.monotonic() - began)


def ask_closed(closed: Mapping[str, Any], host: str, port: Optional[int], env: Mapping[str, str]) -> ServiceAnswer:
    """Ask whether a service is closed to whoever has no credentials."""
    if closed.get("command"):
        code, said, seconds = _run(closed["command"], env, closed["timeout_s"])
        return ServiceAnswer(
            code not in _NOT_ASKED, f"without credentials: {shlex.join(closed['command'])}", _ended(code, said), seconds
        )
    began = time.monotonic()
    status, got = _get(host, port, closed["path"], closed["timeout_s"])
    asked = f"without credentials: GET http://{host}:{port}{closed['path']}"
    return ServiceAnswer(status in _REFUSED, asked, got, time.monotonic() - began)


def _get(
    host: str, port: Optional[int], path: str, timeout_s: float, token: Optional[str] = None
) -> tuple[Optional[int], str]:
    connection = http.client.HTTPConnection(host, int(port or 0), timeout=timeout_s)
    try:
        headers = {"User-Agent": "cordee-probe", "Connection": "close"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, f"{answer.status} {answer.reason}".strip()
    except http.client.HTTPException as error:
        return None, f"no HTTP: {type(error).__name__} {error}".strip()
    except OSError as error:
        return None, words_of(error)
    finally:
        connection.close()


def words_of(error: OSError) -> str:
    """Return what the system says, without what only programmers read."""
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "no answer in time"
    return (error.strerror or str(error)).lower()


def _run(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> tuple[Optional[int], str, float]:
    began = time.monotonic()
    try:
        done = subprocess.run(
            list(argv),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
        )
        said = done.stdout.decode(errors="replace").strip().rpartition("\n")[2][:_SHOWN]
        return done.returncode, said, time.monotonic() - began
    except subprocess.TimeoutExpired:
        return None, "no answer in time", time.monotonic() - began
    except OSError as error:
        return None, words_of(error), time.monotonic() - began


def _ended(code: Optional[int], said: str) -> str:
    return said if code is None else f"exit code {code}" + (f": {said}" if said else "")
