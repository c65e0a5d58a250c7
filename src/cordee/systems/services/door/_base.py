"""The seam of front doors: what a proxy must be able to do to stand in front of services."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import NamedTuple

from cordee.systems.services.instance import ServiceError

PROXY_HEADER = "X-Cordee-Proxy"


class DoorRoute(NamedTuple):
    """One service behind the door.

    Attributes:
        service: its name.
        port: at which the door listens for it.
        target: `address:port` of the service; empty: requests wait until the door's keeper has one.
        token: what the door itself asks for, where the service asks nobody; empty: nothing.
        requests_per_s, connections: of one client; None: as many as it wants.
        body_bytes: the largest request; None: any.
        users: who is let in by the name that the proxy in front vouches for.
        credentials: the header Authorization that the service gets for them; empty: none.
    """

    service: str
    port: int
    target: str = ""
    token: str = ""
    requests_per_s: float | None = None
    connections: int | None = None
    body_bytes: int | None = None
    users: tuple[str, ...] = ()
    credentials: str = ""


class DoorSettings(NamedTuple):
    """What holds for all routes.

    Attributes:
        address: where the door listens.
        hold: the socket at which the door's keeper is asked: `GET /SERVICE` is answered by 204 and `X-Cordee-Target` once there is one.
        hold_s: how long a request waits.
        drain_s: how long connections live on that began before a route changed; then they are cut.
        certificate, key: files for TLS; empty: plain HTTP.
        user_header: in which a proxy in front names who asks; empty: none is in front. It is believed only beside
            `PROXY_HEADER` with the secret; what others write there comes to no service, and the secret neither.
        proxy_secret: letters and digits.
    """

    address: str
    hold: Path
    hold_s: float = 600.0
    drain_s: float = 86400.0
    certificate: str = ""
    key: str = ""
    user_header: str = ""
    proxy_secret: str = ""


class Door:
    """A proxy. The keeper alone calls it, one call at a time; all that it writes is below `folder`, mode 0700.

    It must stream both ways, pass websockets on, never send a request again once a connection to a service stood, keep what is under way when routes change, let requests wait at
    `hold` for a service that has no target or refuses the connection, and write one JSON line for each request into `access.log`:
    `at`, `service`, `user`, `status`, `sent`, `received`, `seconds`; no credentials.
    """

    program = ""
    package = ""
    finish_signal = signal.SIGTERM
    """Has a process of the proxy, whose first process is gone, take nothing new and end once it has finished what it has begun."""

    def __init__(self, folder: Path, settings: DoorSettings) -> None:
        self.folder, self.settings = folder, settings

    def argv(self) -> list[str]:
        """Return the command that runs the proxy in the foreground, after `write`.

        Raises:
            ServiceError: it is not installed.
        """
        found = shutil.which(self.program) or shutil.which(self.program, path="/usr/sbin:/usr/local/sbin")
        if found is None:
            raise ServiceError(
                f"the front door needs {self.program}, which is not installed",
                allowed=f"{self.program} on PATH",
                next=f"sudo apt-get install {self.package}",
            )
        return self._argv(found)

    def _argv(self, program: str) -> list[str]:
        raise NotImplementedError("a door has a command")

    def write(self, routes: list[DoorRoute]) -> None:
        """Write the configuration."""
        raise NotImplementedError("a door writes a configuration")

    def reload(self, pid: int) -> bool:
        """Have the running proxy take what was written; what is under way goes on as it began.

        Returns:
            Whether it was told; False: it cannot be told yet, or is gone.
        """
        raise NotImplementedError("a door takes a new configuration")

    def follows(self, pid: int) -> bool:
        """Return whether requests from now on go by what it was last told to take: nothing that works by what was before accepts any more."""
        raise NotImplementedError("a door says when it has taken a configuration")

    def reopen(self, pid: int) -> None:
        """Have it open `access.log` anew."""
        raise NotImplementedError("a door opens its log anew")
