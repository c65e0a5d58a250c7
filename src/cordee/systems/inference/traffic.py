"""Requests to an endpoint, so many at once: how long until the first token, between tokens, and how many there are in a second.

Each request is a stream of `/v1/completions` (https://platform.openai.com/docs/api-reference/completions): a line `data: {...}` for
each piece of text. Times are those of the client.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cordee.core.clock import monotonic
from cordee.core.stats import quantile
from cordee.machine.foreign_files import parse_json

_PERCENTILES = (50, 90, 99)
_TIMEOUT_S = 600.0


class LoadQuestion(NamedTuple):
    """What each request asks.

    Attributes:
        url: of the endpoint, without /v1.
        token: that it asks for.
        model: the name in the request.
        prompts: taken in turn.
        tokens: the most of one answer.
    """

    url: str
    token: str
    model: str
    prompts: tuple[str, ...]
    tokens: int


class StreamTimes(NamedTuple):
    """One request: when each piece of text came, seconds after it was sent; `fault` says why it failed, empty where it did not."""

    pieces_s: tuple[float, ...]
    seconds: float
    fault: str = ""


class LoadLevel(NamedTuple):
    """What so many requests at once have given."""

    at_once: int
    streams: tuple[StreamTimes, ...]
    seconds: float
    replicas: tuple[int, int]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it: seconds by percentiles; null where nothing was measured."""
        good = [one for one in self.streams if not one.fault]
        first = [one.pieces_s[0] for one in good if one.pieces_s]
        between = [later - sooner for one in good for sooner, later in itertools.pairwise(one.pieces_s)]
        pieces = sum(len(one.pieces_s) for one in good)
        return {
            "at_once": self.at_once,
            "replicas": {"least": self.replicas[0], "most": self.replicas[1]},
            "requests": len(self.streams),
            "failed": len(self.streams) - len(good),
            "faults": dict(Counter(one.fault for one in self.streams if one.fault)),
            "seconds": self.seconds,
            "requests_per_s": len(good) / self.seconds,
            "tokens_per_s": pieces / self.seconds,
            "first_token_s": _percentiles(first),
            "between_tokens_s": _percentiles(between),
            "request_s": _percentiles([one.seconds for one in good]),
        }


def _percentiles(values: Sequence[float]) -> dict[str, float | None]:
    return {f"p{share}": quantile(values, share / 100) if values else None for share in _PERCENTILES}


def measure(question: LoadQuestion, at_once: int, requests: int, replicas: Callable[[], int]) -> LoadLevel:
    """Send requests, so many at once, and return what they took.

    Args:
        question: what each asks.
        at_once: how many wait for their answer at any moment.
        requests: of all together.
        replicas: returns how many servers answer just now; 0: nobody knows.
    """
    numbers = itertools.count()
    streams: list[StreamTimes] = []

    def ask() -> None:
        while (number := next(numbers)) < requests:
            streams.append(_stream(question, question.prompts[number % len(question.prompts)]))

    began = monotonic()
    threads = [threading.Thread(target=ask, daemon=True) for _ in range(min(at_once, requests))]
    for thread in threads:
        thread.start()
    seen = [replicas()]
    while alive := [thread for thread in threads if thread.is_alive()]:
        alive[0].join(0.2)
        seen.append(replicas())
    return LoadLevel(at_once, tuple(streams), monotonic() - began, (min(seen), max(seen)))


def _stream(question: LoadQuestion, prompt: str) -> StreamTimes:
    """Send one request and read its stream."""
    place = urlsplit(question.url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.netloc, timeout=_TIMEOUT_S)
    body = {"model": question.model, "prompt": prompt, "max_tokens": question.tokens, "temperature": 0, "stream": True}
    headers = {"Authorization": f"Bearer {question.token}", "Content-Type": "application/json"}
    began, pieces, ended = monotonic(), [], False
    try:
        connection.request("POST", f"{place.path.rstrip('/')}/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            return StreamTimes((), monotonic() - began, f"{answer.status} {answer.reason}")
        while line := answer.readline():
            data = line.strip().removeprefix(b"data:").strip()
            if data == b"[DONE]":
                ended = True
            elif data and line.startswith(b"data:"):
                choice = (parse_json(data).get("choices") or [{}])[0]
                ended = ended or bool(choice.get("finish_reason"))
                if choice.get("text"):
                    pieces.append(monotonic() - began)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return StreamTimes(tuple(pieces), monotonic() - began, type(error).__name__)
    finally:
        connection.close()
    return StreamTimes(tuple(pieces), monotonic() - began, "" if ended else "the stream was cut")
