"""Where the keepers of a run's nodes are found, and how they are asked: over connections on which both ends prove who they are.

```
<run>/control/checkpoints/token          which all of them know; 0600
<run>/control/checkpoints/<node>.json    address and port of each
```
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any, Optional

from cordee.core.errors import CheckpointError, WireError
from cordee.runs.folder import write_atomically
from cordee.wire.peers import PeerStream, connect

_CONNECT_S = 3.0


class KeeperLinks:
    """The keepers of a run, as its folder tells of them.

    Args:
        control: the run's folder for such files.
        node: who asks.
    """

    def __init__(self, control: Path, node: str) -> None:
        self._folder, self._node = control / "checkpoints", node

    def token(self) -> bytes:
        """Return what keepers know each other by; whoever is first makes it."""
        path = self._folder / "token"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        while not path.exists():
            own = self._folder / f".token-{secrets.token_hex(8)}"
            own.touch(mode=0o600)
            own.write_text(secrets.token_hex(32))
            with contextlib.suppress(FileExistsError):
                os.link(own, path)
            own.unlink()
        return bytes.fromhex(path.read_text())

    def tell(self, host: str, port: int) -> None:
        """Say where this node's keeper is."""
        write_atomically(self._folder / f"{self._node}.json", json.dumps({"host": host, "port": port}))

    def untell(self) -> None:
        """Say that this node has no keeper any more."""
        (self._folder / f"{self._node}.json").unlink(missing_ok=True)

    def all(self) -> dict[str, tuple[str, int]]:
        """Return address and port of the keeper of each node, by the node's name."""
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                about = json.loads(path.read_text())
                found[path.stem] = (str(about["host"]), int(about["port"]))
        return found

    def others(self) -> list[str]:
        """Return the other nodes that have keepers, the one after this first."""
        names = [name for name in self.all() if name != self._node]
        return sorted(names, key=lambda name: (name < self._node, name))

    def connect(self, node: str) -> PeerStream:
        """Connect to a node's keeper.

        Raises:
            OSError, WireError: there is none.
        """
        host, port = self.all().get(node, ("", 0))
        if not port:
            raise WireError("this node has no keeper of checkpoints", given=node)
        return connect(host, port, self.token(), self._node, node, _CONNECT_S)


def asked(stream: PeerStream, request: dict[str, Any], wait_s: Optional[float]) -> tuple[dict[str, Any], bytearray]:
    """Return what a keeper answers.

    Raises:
        CheckpointError: it could not do it.
        OSError, WireError: it is gone.
    """
    stream.wait(wait_s)
    stream.send(request)
    header, body = stream.receive()
    if "failed" in header:
        raise CheckpointError(str(header["failed"]))
    return header, body
