"""What is done outside for somebody: a command of the site, a document for a webhook. No shell, no redirection, an end in time."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any, Mapping, Optional, Sequence

from cordee.core.errors import CordeeError

_TAIL = 400
_TIMEOUT_S = 10.0
_TRIES = 3
PAUSE_S = 1.0


class ActionError(CordeeError):
    """An action was not done.

    Attributes:
        later: whether the same may succeed later, as when the controller does not answer.
    """

    kind = "action"

    def __init__(self, text: str, *, later: bool = False) -> None:
        super().__init__(text)
        self.later = later


def run_site_command(argv: Sequence[str], timeout_s: float, stdin: Optional[str] = None) -> str:
    """Run a command of the site and return the end of what it printed.

    Raises:
        ActionError: it is not there, fails, or takes longer than `timeout_s`.
    """
    return told(argv, *run_command_of_site(argv, timeout_s, stdin))


def told(argv: Sequence[str], code: int, said: str) -> str:
    """Return what a command said.

    Raises:
        ActionError: it has failed.
    """
    if code != 0:
        raise ActionError(f"{argv[0]} ended with {code}: {said}")
    return said or "done"


def run_command_of_site(argv: Sequence[str], timeout_s: float, stdin: Optional[str] = None) -> tuple[int, str]:
    """Run a command and return its exit code and the end of what it printed.

    Raises:
        ActionError: it is not there, or takes longer than `timeout_s`.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ActionError(f"{argv[0]} cannot be started: {error.strerror}") from None
    try:
        said, _ = process.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise ActionError(f"{argv[0]} did not end within {timeout_s:g} s and was killed") from None
    except BaseException:
        _kill(process)
        raise
    return process.returncode, " ".join(said.split())[-_TAIL:]


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def post_document(
    url: str, document: Mapping[str, Any], key: str, token_file: Optional[str] = None, pause_s: float = PAUSE_S
) -> str:
    """Post a document to a webhook, again when it does not answer, and return what it says.

    Args:
        key: the same whenever the same document is sent again: the `Idempotency-Key`.
        token_file: holds a bearer token, or None.
        pause_s: before the second try, doubled before the third.

    Raises:
        ActionError: it was not taken.
    """
    headers = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "cordee"}
    words = ""
    try:
        if token_file:
            headers["Authorization"] = f"Bearer {read_token(token_file)}"
        request = urllib.request.Request(url, json.dumps(document).encode(), headers, method="POST")
    except (OSError, ValueError) as error:
        raise ActionError(f"the webhook cannot be called: {error}") from None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(pause_s * 2 ** (attempt - 1))
        try:
            code, words, _ = call(request, _TIMEOUT_S)
        except OSError as error:
            words = str(error)
            continue
        if 200 <= code < 300:
            return f"{code} {words}".strip()
        words = f"{code} {words}"
        if code < 500 and code != 429:
            raise ActionError(f"the webhook refuses: {words}")
    raise ActionError(f"the webhook did not take it in {_TRIES} tries: {words}", later=True)


def call(request: urllib.request.Request, timeout_s: float, most_bytes: int = 2000) -> tuple[int, str, bytes]:
    """Return the status, the first words and the body (at most `most_bytes`) of what a server answers; follows nowhere,
    so that a token goes only where it belongs.

    Raises:
        OSError: it was not reached, or did not answer in time.
    """
    opener = urllib.request.build_opener(_StayHere)
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            body = answer.read(most_bytes)
            return answer.status, _words(body), body
    except urllib.error.HTTPError as error:
        body = error.read(most_bytes)
        return error.code, _words(body), body


def read_token(path: str) -> str:
    """Return the token in a file.

    Raises:
        ValueError: others may read the file, or it holds no token.
        OSError: it cannot be read.
    """
    full = os.path.expandvars(os.path.expanduser(path))
    with open(full, encoding="ascii") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise ValueError(f"{full} can be read by others; chmod 600 it")
        token = file.read(4096).strip()
    if not token or any(letter.isspace() for letter in token):
        raise ValueError(f"{full} does not hold one token")
    return token


def _words(body: bytes) -> str:
    return " ".join(body[:200].decode(errors="replace").split())


class _StayHere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
