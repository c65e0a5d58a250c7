"""Questions that may never be answered, such as what a hung file system says about itself."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any, Callable

_RESERVE_S = 0.5
_MOST_S = 5.0


class HangingError(Exception):
    """No answer came in time; whoever was asked is killed, as far as the kernel lets it be."""


def patience_s(deadline_s: float) -> float:
    """Return how long to wait for one answer within a check's deadline: long enough to be fair, and time is left to say so."""
    return max(0.1, min(_MOST_S, deadline_s - _RESERVE_S))


def answers_within(seconds: float, questions: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Ask all questions side by side, each in a process of its own, and return the answers by name.

    Args:
        seconds: for all of them together.
        questions: what to call; it must return something that JSON can hold.

    Returns:
        For each name the answer, the `OSError` that was raised, or a `HangingError`.
    """
    asked = {name: _ask(question) for name, question in questions.items()}
    until = time.monotonic() + seconds
    answers: dict[str, Any] = {}
    for name, (pid, pipe) in asked.items():
        answers[name] = _read(pipe, until)
        os.close(pipe)
        try:
            os.kill(pid, signal.SIGKILL)
            # One that the kernel holds stays behind until the kernel lets go; it must not hold us too.
            os.waitpid(pid, os.WNOHANG if isinstance(answers[name], HangingError) else 0)
        except OSError:
            continue
    return answers


def _ask(question: Callable[[], Any]) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            try:
                answer: Any = {"answer": question()}
            except OSError as error:
                answer = {"errno": error.errno, "text": error.strerror or str(error)}
            data = memoryview(json.dumps(answer).encode())
            while data:
                data = data[os.write(writing, data) :]
        finally:
            os._exit(0)
    os.close(writing)
    return pid, reading


def _read(pipe: int, until: float) -> Any:
    output = b""
    while True:
        if not select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            return HangingError()
        part = os.read(pipe, 65536)
        if not part:
            break
        output += part
    try:
        answer = json.loads(output)
    except ValueError:
        return OSError(5, "the process that asked ended without an answer")
    return answer["answer"] if "answer" in answer else OSError(answer["errno"], answer["text"])
