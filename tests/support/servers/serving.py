"""A real server over run folders, in a thread of this process, on a free port of this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cordee.faces.web.app import make_app
from cordee.faces.web.server_loop import REQUEST_S, listen, make_server

if TYPE_CHECKING:
    from cordee.core.web.tokens import Token

_START_S = 60.0


class ServedRuns:
    """Serves for as long as its context lasts.

    Args:
        folders: each holds runs.
        singles: runs and recordings shown wherever they lie.
        tokens: those that are known.
        users: user ids that need no token; None: this process's.
        hosts: further names by which it may be called.
        port: 0 is any.
        request_s: how long a connection may take for its first request.
        completes: whether runs that are shown get the report that they lack.

    Attributes:
        url: where it is, without a slash at the end.
        app: the application with its guard.
    """

    def __init__(
        self,
        *folders: Path,
        singles: Iterable[Path] = (),
        tokens: Sequence[Token] = (),
        users: Iterable[int] | None = None,
        hosts: Iterable[str] = (),
        port: int = 0,
        request_s: float = REQUEST_S,
        completes: bool = False,
    ) -> None:
        allowed = {os.geteuid()} if users is None else set(users)
        self.app = make_app(folders, singles=singles, hosts=hosts, tokens=tokens, users=allowed, completes=completes)
        self._listener = listen("127.0.0.1", port)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._ready = threading.Event()
        self._server = make_server(self.app, self._ready.set, request_s)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), daemon=True)

    def __enter__(self) -> ServedRuns:
        self._thread.start()
        if not self._ready.wait(_START_S):
            raise TimeoutError("the server did not start")
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join(_START_S)
