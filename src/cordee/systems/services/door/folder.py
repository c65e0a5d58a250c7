"""The folder of a person's front door: what it was started with, what it does, and whether it lives."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cordee.core.clock import monotonic
from cordee.core.errors import UsageError
from cordee.machine.processes.module_command import module_argv
from cordee.machine.processes.tree import is_same_process
from cordee.runs.folder import write_atomically
from cordee.systems.services.instance import ServiceError, ServiceFailing, new_secret, services_folder
from cordee.systems.services.node.texts import read_state

# The proxies that can be the door, by name.
DOORS = {"nginx": "cordee.systems.services.door.nginx:NginxDoor"}
_UNIT = """\
[Unit]
Description=Front door of the services of {user}

[Service]
Environment=CORDEE_SERVICES={services}
ExecStart={argv}
Restart=always
KillMode=mixed

[Install]
WantedBy=default.target
"""


class DoorFolder:
    """`.door` below the folder of services, mode 0700.

    ```
    .door/
      door.json       how the door was started: address, certificate, key, user_header
      proxy-secret    what the centre's proxy in front shows, mode 0600
      keeper.json     the keeper: pid, start, targets by service, at
      nginx.conf, nginx.pid, access.log, error.log, keeper.log
      hold.sock       where requests wait
    ```
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or services_folder() / ".door"

    @property
    def hold(self) -> Path:
        """The socket at which requests wait; its name must be short."""
        return self.root / "hold.sock"

    def proxy_secret(self) -> Path:
        """Return the file by whose content the proxy in front shows that it is the one, made when it is wanted first."""
        path = self.root / "proxy-secret"
        if not path.exists():
            self.root.mkdir(0o700, parents=True, exist_ok=True)
            write_atomically(path, new_secret(40))
        return path

    def settings(self) -> dict[str, Any]:
        """Return what the door was started with; empty: it never was."""
        return read_state(self.root / "door.json")

    def keeper(self) -> dict[str, Any]:
        """Return what the keeper says, empty where none lives."""
        told = self.left()
        return told if told and is_same_process(told["pid"], told["start"]) else {}

    def _answering(self, wait_s: float) -> dict[str, Any]:
        """Return what the keeper says, once it has answered a question: one that was just killed may look alive for a moment.

        Raises:
            ServiceFailing: it lives and does not answer.
        """
        until = monotonic() + wait_s
        while told := self.keeper():
            with socket.socket(socket.AF_UNIX) as asking, suppress(OSError):
                asking.settimeout(max(0.1, until - monotonic()))
                asking.connect(str(self.hold))
                asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
                if asking.recv(1):
                    return told
            if monotonic() > until:
                what = f"kill -9 {told['pid']}, then `cordee service door start`"
                raise ServiceFailing(f"the door's keeper {told['pid']} does not answer", next=what)
            time.sleep(0.05)
        return {}

    def left(self) -> dict[str, Any]:
        """Return what the last keeper said, who may be gone without having ended the proxy."""
        return read_state(self.root / "keeper.json")

    def url(self, port: int) -> str:
        """Return the address of a service behind the door."""
        settings = self.settings()
        scheme = "https" if settings.get("certificate") else "http"
        return f"{scheme}://{settings.get('address', '127.0.0.1')}:{port}"

    def argv(self) -> list[str]:
        """Return the command of the keeper."""
        return module_argv("cordee.systems.services.door.keeper", str(self.root), user_site=True)

    def unit(self, user: str) -> str:
        """Return a unit of systemd that runs it."""
        return _UNIT.format(user=user, services=self.root.parent, argv=" ".join(_quoted(word) for word in self.argv()))

    def start(self, settings: dict[str, Any], wait_s: float = 20.0) -> dict[str, Any]:
        """Start the keeper, which starts the proxy, unless both run; return what the keeper says.

        Raises:
            UsageError: it runs with other settings.
            ServiceFailing: it does not start; why is in its log.
        """
        self.root.mkdir(0o700, parents=True, exist_ok=True)
        now = self._answering(wait_s)
        if now:
            if self.settings() != settings:
                raise UsageError(
                    "the door is open already, with other settings",
                    given=settings,
                    allowed=self.settings(),
                    next="`cordee service door stop` first",
                )
            return now
        if len(os.fsencode(self.hold)) > 100:
            raise ServiceError(
                "the name of the door's folder is too long for a socket",
                given=str(self.hold),
                allowed="at most 100 bytes",
                next="set CORDEE_SERVICES to a shorter one",
            )
        write_atomically(self.root / "door.json", json.dumps(settings))
        with (self.root / "keeper.log").open("ab") as log:
            child = subprocess.Popen(
                self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        until = monotonic() + wait_s
        while monotonic() < until and child.poll() is None:
            told = self.keeper()
            if told:
                return told
            time.sleep(0.05)
        child.terminate()
        words = (self.root / "keeper.log").read_text(errors="replace").strip().splitlines()[-3:]
        raise ServiceFailing(
            f"the front door does not open: {' '.join(words) or 'it said nothing'}", given=str(self.root / "keeper.log")
        )

    def stop(self, wait_s: float = 15.0) -> bool:
        """End the keeper and the proxy; return whether they ran.

        Raises:
            ServiceFailing: they have not ended in time.
        """
        told = self.keeper()
        if not told:
            return False
        os.kill(told["pid"], signal.SIGTERM)
        until = monotonic() + wait_s
        while self.keeper():
            if monotonic() > until:
                raise ServiceFailing(f"the door's keeper {told['pid']} has not ended", next=f"kill -9 {told['pid']}")
            time.sleep(0.05)
        return True


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%") + '"'
