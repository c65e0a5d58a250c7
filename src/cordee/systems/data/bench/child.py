"""The process in which a loader runs, so that one that crashes or hangs takes nothing else with it.

Started as `python -m cordee.systems.data.bench.child FD` with a connected socket. Lines of JSON: first what to load, answered by
`{"ready": seconds}`, of Cordée's loader with `identity` and `size` of the data set; then rounds, each answered by what it measured; `{"error": ...}` when something is wrong.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cordee.core.errors import CordeeError
from cordee.machine.processes.parent import die_with_parent
from cordee.systems.data.bench.sizes import size_of
from cordee.systems.data.bench.usage import usage_of

_LINES_OF_TRACEBACK = 20


def main() -> None:
    """Serve until the other end closes."""
    with contextlib.suppress(OSError, AttributeError):
        die_with_parent()  # nobody else would end this process
    channel = socket.socket(fileno=int(sys.argv[1]))
    lines = channel.makefile("r")
    os.set_inheritable(channel.fileno(), False)

    def answer(document: dict[str, Any]) -> None:
        channel.sendall(json.dumps(document).encode() + b"\n")

    try:
        began = time.perf_counter()
        loader = make_loader(json.loads(lines.readline()))
        answer({"ready": time.perf_counter() - began, **loader.about()})
        for line in lines:
            answer(loader.play(**json.loads(line)))
    except BaseException as error:
        told = traceback.format_exc().splitlines()[-_LINES_OF_TRACEBACK:]
        said = error.document()["error"] if isinstance(error, CordeeError) else None
        answer({"error": f"{type(error).__name__}: {error}", "traceback": told, "said": said})
        sys.exit(1)


def make_loader(request: dict[str, Any]) -> MeasuredLoader:
    """Return the loader that a request describes: `function` of the user's, or Cordée's own for `target`."""
    if request.get("function"):
        return MeasuredLoader(_foreign(request), request["batch"])
    return _Own(request)


class MeasuredLoader:
    """Iterates over batches and measures.

    Args:
        make: returns an iterable of batches; iterated from its beginning each time.
        expected: samples that a batch should hold, 0: not known.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], expected: int) -> None:
        self._make = make
        self._expected = expected

    def play(self, seconds: float, samples: int, again: bool = True) -> dict[str, Any]:
        """Load until `seconds` after the first batch are over.

        Args:
            samples: most of one pass, 0: all.
            again: begin anew when a pass ends before the time is over.

        Returns:
            `waits_s` of each batch from its request on, `samples` and `bytes` of each, what was used, and the places of
            the `firsts`: the first batch of a pass waits for threads and workers to start.
        """
        waits: list[float] = []
        firsts: list[int] = []
        given: list[int] = []
        sizes: list[int] = []
        before, stored = usage_of(os.getpid()), self.stored_bytes()
        until, going = math.inf, True
        while going:
            held, in_pass = len(waits), 0
            asked = time.perf_counter()
            iterator: Any = iter(self._make())
            for batch in iterator:
                now = time.perf_counter()
                if not in_pass:
                    firsts.append(len(waits))
                    until = min(until, now + seconds)
                waits.append(now - asked)
                count, size = size_of(batch, self._expected)
                given.append(count)
                sizes.append(size)
                in_pass += count
                going = now < until
                if not going or in_pass >= samples > 0:
                    break
                asked = time.perf_counter()
            going = going and again and len(waits) > held
            used = usage_of(os.getpid()).since(before) if not going else None
            batch = iterator = None  # a loader's threads and workers end before the next pass begins
        return {
            "waits_s": waits,
            "samples": given,
            "bytes": sizes,
            "firsts": firsts,
            "used": used._asdict() if used else None,
            "stored_bytes": None if stored is None else (self.stored_bytes() or 0) - stored,
        }

    def about(self) -> dict[str, Any]:
        """Return what the loader knows of its data set."""
        return {}

    def stored_bytes(self) -> int | None:
        """Return how many bytes the loader has asked storage for so far; None: it does not count them."""
        return None


class _Own(MeasuredLoader):
    """Cordée's own loader, from the beginning of an epoch each time."""

    def __init__(self, request: dict[str, Any]) -> None:
        import cordee

        options = {
            key: request[key] for key in ("threads", "fields", "decode", "length") if request.get(key) is not None
        }
        self._workers = request.get("workers", 0)
        self._set = cordee.dataset(
            request["target"],
            batch=request["batch"],
            seed=request["seed"],
            shuffle=request["shuffle"],
            rank=0,
            world=1,
            **options,
        )
        self._begin = self._set.state_dict()
        super().__init__(self._from_beginning, request["batch"])

    def about(self) -> dict[str, Any]:
        return {"identity": self._set.source.identity, "size": self._set.size}

    def _from_beginning(self) -> Iterable[Any]:
        self._set.load_state_dict(self._begin)
        batches: Iterable[Any] = self._set.loader(workers=self._workers) if self._workers else self._set
        return batches

    def stored_bytes(self) -> int | None:
        counts = None if self._workers else getattr(self._set, "counts", None)
        return None if counts is None else int(counts.bytes)


def _foreign(request: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    """Return the user's function with its arguments; called once, or each time when it returns an iterator.

    An iterator is used up after one pass; a loader such as a DataLoader can be iterated again.
    """
    place, _, name = request["function"].rpartition(":")
    sys.path.insert(0, os.getcwd())
    function = getattr(_module(place), name)
    first = [function(**request.get("arguments", {}))]

    def make() -> Iterable[Any]:
        made: Iterable[Any] = first.pop() if first else function(**request.get("arguments", {}))
        if not isinstance(made, Iterator):
            first.append(made)
        return made

    return make


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    name = os.path.basename(place)[:-3]
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
