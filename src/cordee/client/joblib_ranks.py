"""joblib on the ranks of a run: rank 0 runs the script and hands out calls, the others make them.

Calls travel pickled (by joblib's cloudpickle) over TCP connections between the ranks. Both ends prove that they know a key which lies in the
run's folder, mode 0600, before anything is unpickled. Who loses a rank fails: the run then starts all of them again.
"""

from __future__ import annotations

import os
import pickle
import queue
import secrets
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Optional

NAME = "cordee"
_END_S = 60.0
_COME_S = 300.0
_POLL_S = 0.05


class _Call(NamedTuple):
    data: bytes
    done: Callable[[tuple[bool, Any]], object]


@contextmanager
def joblib_backend() -> Iterator[None]:
    """Have what joblib runs in parallel within this block run on the run's other ranks; these end with the block.

    Rank 0 alone goes on with the block. In a run of one rank, or outside of one, joblib uses the cores of this machine.

    Raises:
        ImportError: joblib is not installed.
    """
    import joblib  # not needed by who does not call this

    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield
        return
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    key = Path(os.environ["CORDEE_RUN_DIR"]) / "control" / f"joblib-{address[1]}.key"
    if rank:
        sys.exit(_serve(address, key))
    with _Ranks(address, key, world - 1) as ranks:
        joblib.register_parallel_backend(NAME, partial(_backend_class(), ranks))
        with joblib.parallel_config(backend=NAME, n_jobs=world - 1):
            yield


def _serve(address: tuple[str, int], key: Path) -> int:
    """Make calls for rank 0 until it says that there are no more; returns the exit code of this rank."""
    deadline = time.monotonic() + _COME_S
    while True:
        try:
            connection = Client(address, authkey=key.read_bytes())
            break
        except (OSError, EOFError) as error:
            if time.monotonic() > deadline:
                print(f"cordee: rank 0 did not hand out calls within {_COME_S:.0f} s: {error}", file=sys.stderr)
                return 1
            time.sleep(_POLL_S)
    with connection:
        while True:
            try:
                data = connection.recv_bytes()
            except (EOFError, OSError):
                return 1  # rank 0 was lost
            if not data:
                return 0
            connection.send_bytes(_answer(data))


def _pickled(value: Any) -> bytes:
    """Return a value by cloudpickle, which knows functions of the script; it comes with joblib, in it or beside it."""
    try:
        from joblib.externals.cloudpickle import dumps
    except ImportError:
        from cloudpickle import dumps
    return bytes(dumps(value))


def _answer(data: bytes) -> bytes:
    try:
        answer = (True, pickle.loads(data)())
        return _pickled(answer)
    except Exception as error:  # it is raised by rank 0
        try:
            return _pickled((False, error))
        except Exception:
            return _pickled((False, RuntimeError(f"{type(error).__name__}: {error}")))


class _Ranks:
    """The other ranks, as rank 0 has them.

    Args:
        address: where they come.
        key: the file with what both ends must know.
        count: how many may come.
    """

    def __init__(self, address: tuple[str, int], key: Path, count: int) -> None:
        self.count = count
        self._calls: queue.SimpleQueue[Optional[_Call]] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._accept, name="cordee-joblib", daemon=True)]
        secret = secrets.token_bytes(32)
        self._key = key
        descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            self._listener = Listener(address, backlog=min(count, 1024), authkey=secret)
            file.write(secret)
        self._threads[0].start()

    def __enter__(self) -> _Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for _rank in range(self.count):
            self._calls.put(None)
        deadline = time.monotonic() + _END_S
        for thread in self._threads:  # more of them come while the first one waits for ranks
            thread.join(max(0.0, deadline - time.monotonic()))
        with suppress(OSError):
            self._key.unlink()

    def make(self, call: _Call) -> None:
        """Have a call made by whoever is free first."""
        self._calls.put(call)

    def _accept(self) -> None:
        for _rank in range(self.count):
            while True:
                try:
                    connection = self._listener.accept()
                    break
                except Exception:  # whoever it was did not know the key
                    continue
            thread = threading.Thread(target=self._work_with, args=(connection,), daemon=True)
            thread.start()
            self._threads.append(thread)
        self._listener.close()

    def _work_with(self, connection: Connection) -> None:
        with connection:
            while True:
                call = self._calls.get()
                if call is None:
                    with suppress(OSError):
                        connection.send_bytes(b"")
                    return
                try:
                    connection.send_bytes(call.data)
                    answer = pickle.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    call.done((False, RuntimeError("the rank that had a call is gone")))
                    return
                call.done(answer)


def _backend_class() -> Any:
    from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

    class RankBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
        """A backend of joblib that makes calls on other ranks."""

        supports_retrieve_callback = True

        def __init__(self, ranks: _Ranks, **options: Any) -> None:
            super().__init__(**options)
            self._ranks = ranks

        def effective_n_jobs(self, n_jobs: int) -> int:
            most = self._ranks.count
            return most if n_jobs is None or n_jobs < 0 else max(1, min(n_jobs, most))

        def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
            self.parallel = parallel
            return self.effective_n_jobs(n_jobs)

        def submit(self, func: Callable[[], Any], callback: Any = None) -> None:
            self._ranks.make(_Call(_pickled(func), callback))

        apply_async = submit

        def retrieve_result_callback(self, out: tuple[bool, Any]) -> Any:
            done, value = out
            if not done:
                raise value
            return value

        def abort_everything(self, ensure_ready: bool = True) -> None:
            """What was handed out ends by itself."""

    return RankBackend
