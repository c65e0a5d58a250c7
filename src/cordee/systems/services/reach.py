"""How a person reaches a service from this machine."""

from __future__ import annotations

import socket
import subprocess
from typing import Any, NamedTuple

from cordee.systems.services.deployment import status_of
from cordee.systems.services.instance import ServiceFailing, ServiceFolder
from cordee.systems.services.node.texts import read_state, state_path


class ServiceReach(NamedTuple):
    """The way to a service.

    Attributes:
        url: where it is from here, once the tunnel is there.
        node: where it runs.
        token_file: what holds its token or password.
        tunnel: the command that makes the tunnel; empty: none is needed.
    """

    url: str
    node: str
    token_file: str | None
    tunnel: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**self._asdict(), "tunnel": list(self.tunnel)}

    def make_tunnel(self) -> int:
        """Make the tunnel, and keep it until it is interrupted; return the exit code of ssh."""
        return subprocess.call(self.tunnel)


def reach_of(folder: ServiceFolder) -> ServiceReach:
    """Return the way to a service that is ready.

    Raises:
        ServiceFailing: it is not ready.
    """
    now = status_of(folder)
    if not now.ready or not now.endpoints:
        raise ServiceFailing(f"{folder.name} is {now.state}: {now.why}", next=f"`cordee service status {folder.name}`")
    run = folder.run()
    told = read_state(state_path(run.root, folder.name)) if run else {}
    first = now.endpoints[0]
    tunnel: tuple[str, ...] = ()
    if told.get("host") != socket.gethostname() and told.get("address") == "127.0.0.1":
        way = f"127.0.0.1:{first['port']}"
        tunnel = ("ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-L", f"{way}:{way}", str(told["host"]))
    return ServiceReach(first["url"], str(now.node), first["token_file"], tunnel)
