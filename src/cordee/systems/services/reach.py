"""How a person reaches a service from this machine."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from cordee.core.errors import WireError
from cordee.systems.services.deployment import status_of
from cordee.systems.services.instance import ServiceFailing, ServiceFolder
from cordee.systems.services.node.texts import read_state, state_path
from cordee.wire.ports import bind, pick_port

_HERE = "127.0.0.1"
_CONNECT_S = 3.0
_POLL_S = 0.1
# A tunnel to a node that is lost ends after 45 s, and does not stand for ever.
_SSH = ("ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15")


class ServiceReach(NamedTuple):
    """The way to a service.

    Attributes:
        url: where it is from here, once the tunnel is there.
        node: where it runs.
        token_file: what holds its token or password.
        tunnel: the command that makes the tunnel; empty: none is needed.
        endpoints: `name`, `url` from here and `port` of this machine of each; `url` is the first one's.
    """

    url: str
    node: str
    token_file: str | None
    tunnel: tuple[str, ...]
    endpoints: tuple[dict[str, Any], ...]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**self._asdict(), "tunnel": list(self.tunnel), "endpoints": list(self.endpoints)}

    def make_tunnel(self, made: Callable[[], None]) -> None:
        """Make the tunnel, tell when it is there, and keep it until it is interrupted.

        Raises:
            ServiceFailing: it cannot be made, or has ended.
        """
        to, again = self.tunnel[-1], shlex.join(self.tunnel)
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ssh is not to outlive this
        ssh = None
        try:
            ssh = subprocess.Popen(self.tunnel)
            while ssh.poll() is None and _is_free(self.endpoints[0]["port"]):
                time.sleep(_POLL_S)
            if ssh.poll() is None:
                made()
            code = ssh.wait()
        except FileNotFoundError:
            raise ServiceFailing(
                "there is no ssh on this machine", given=again, next="install OpenSSH's client"
            ) from None
        except KeyboardInterrupt:
            return
        finally:
            if ssh is not None:
                ssh.terminate()
                ssh.wait()
            signal.signal(signal.SIGTERM, before)
        raise ServiceFailing(
            f"the tunnel to {to} has ended: ssh says why, exit code {code}",
            given=again,
            next=f"`ssh {to}` has to lead there (Host {to} in ~/.ssh/config names user, port and ProxyJump), and the service has to run there still",
        )


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
    tunnel: list[str] = []
    endpoints = []
    for one in now.endpoints:
        at, port, url = str(told.get("address")), one["port"], one["url"]
        # What is behind the front door is asked there.
        if "behind" not in one and told.get("host") != socket.gethostname() and not _is_reached(at, port):
            port = port if _is_free(port) else pick_port(_HERE)
            tunnel += ["-L", f"{_HERE}:{port}:{at}:{one['port']}"]
            url = url.replace(f"{at}:{one['port']}", f"{_HERE}:{port}")
        endpoints.append({"name": one["name"], "url": url, "port": port})
    command = (*_SSH, *tunnel, str(told["host"])) if tunnel else ()
    return ServiceReach(endpoints[0]["url"], str(now.node), now.endpoints[0]["token_file"], command, tuple(endpoints))


def _is_reached(address: str, port: int) -> bool:
    """Return whether another machine's service is reached from here without a tunnel."""
    if address.startswith("127."):
        return False
    try:
        socket.create_connection((address, port), _CONNECT_S).close()
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    try:
        bind(_HERE, port).close()
    except WireError:
        return False
    return True
