"""What a service finds on its node: ports, secrets, files, an environment, and what stands for the names in braces."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import socket
from pathlib import Path
from typing import Any

from cordee.backends.slurm.node.addresses import reachable_address
from cordee.core.errors import CordeeError
from cordee.runs.folder import write_atomically
from cordee.systems.services.node.probe import words_of
from cordee.systems.services.node.texts import filled
from cordee.wire.ports import pick_port

# Where a container has what is mounted for it.
SECRETS, FILES, GUARD = "/run/cordee/secrets", "/run/cordee/files", "/run/cordee/guard.py"
_NOT_THEIRS = ("CORDEE_", "SLURM_", "PMI", "OMPI_")
_ROOM_BYTES = 1 << 20
_OF_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


class ServiceFailed(CordeeError):
    """The service cannot be started, or has ended."""

    kind = "service"


class ServiceLocation:
    """Where one service runs; `choose_ports` and `fill` come before each start of its program.

    Args:
        spec: what the service is started from.
        folder: where its files are written.

    Attributes:
        address, ports: where it listens.
        known: what stands for the names in braces where the program is, in its container if it has one; `outside`: where its clients are; `values`: the same for the values of secrets.
        env, own: the program's environment; what of that the blueprint says.
    """

    def __init__(self, spec: dict[str, Any], folder: Path) -> None:
        self._spec, self.folder = spec, folder
        self.address: str = "127.0.0.1" if spec["bind"] == "loopback" else spec.get("address") or _own_address(spec)
        self.ports: dict[str, int] = dict(spec.get("ports_before", {}))
        self.known: dict[str, str] = {}
        self.outside: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self.env: dict[str, str] = {}
        self.own: dict[str, str] = {}

    def choose_ports(self) -> None:
        """Take the ports that are asked for, else those of before, else free ones.

        Raises:
            ServiceFailed: one that is asked for is taken.
        """
        known, self.ports = self.ports, {}
        for name, about in self._spec["ports"].items():
            number, before = about["number"], known.get(name, 0)
            if number is not None and not is_free(self.address, number):
                raise ServiceFailed(
                    f"the port {number} is taken",
                    given=f"{self.address}:{number}",
                    allowed="a free port",
                    next="deploy without --port: a free one is found",
                )
            again = before if before and is_free(self.address, before) else 0
            self.ports[name] = number or again or pick_port(self.address)

    def fill(self, write: bool = True) -> None:
        """Learn what stands for the names in braces, write the program's files, and make its environment.

        Args:
            write: False: the program runs, and has its files.

        Raises:
            ServiceFailed: a secret cannot be read, or a volume is gone.
        """
        spec, inside = self._spec, self._spec.get("container")
        known = {"host": self.address, "name": spec["service"]}
        within = {"host": "0.0.0.0"}
        for name, about in spec["secrets"].items():
            try:
                self.values[f"value.{name}"] = Path(about["path"]).read_text().rstrip("\n")
            except OSError as error:
                text = f"the secret {name} cannot be read: {words_of(error)}"
                raise ServiceFailed(text, given=about["path"], next="deploy the service again, or restore it") from None
            known[f"secret.{name}"], within[f"secret.{name}"] = about["path"], f"{SECRETS}/{name}"
        for name, number in self.ports.items():
            at, about = f"{self.address}:{number}", spec["ports"][name]
            known[f"port.{name}"], within[f"port.{name}"] = str(number), str(about["inside"])
            known[f"url.{name}"] = f"http://{at}" if about["protocol"] == "http" else at
        for name, about in spec["volumes"].items():
            if not os.path.isdir(about["path"]):
                raise ServiceFailed(f"the volume {name} is gone", given=about["path"], next="bring it back")
            known[f"volume.{name}"], within[f"volume.{name}"] = about["path"], about["inside"]
        known.update({f"parameter.{name}": value for name, value in spec["parameters"].items()})
        os.makedirs(self.folder, 0o700, exist_ok=True)
        for name in spec["files"]:
            known[f"file.{name}"], within[f"file.{name}"] = str(self.folder / name), f"{FILES}/{name}"
        self.outside = known
        if inside:
            known = {**known, **within}
        whole = {**known, **self.values}
        for name, text in spec["files"].items() if write else ():
            write_atomically(self.folder / name, filled(text, whole), durable=False)
        own = {name: filled(text, whole) for name, text in spec["env"].items()}
        for name, about in spec["secrets"].items():
            if about["env"]:
                own[about["env"]] = self.values[f"value.{name}"]
            if about["env_file"]:
                own[about["env_file"]] = known[f"secret.{name}"]
        self.known, self.own = known, own
        given = {} if inside else _plain_environment(spec["path"], spec["put_first"])
        # Whoever deploys it may be a client of it already: that is for clients, and no setting of the program.
        self.env = {**{name: value for name, value in given.items() if name not in spec["client"]}, **own}

    @property
    def stranger(self) -> dict[str, str]:
        """The environment of a command that has no credentials."""
        secrets = [value for value in self.values.values() if value]
        return {
            name: value
            for name, value in self.env.items()
            if name not in self.own and not any(secret in value for secret in secrets)
        }

    @property
    def telling(self) -> list[str]:
        """The variables of the blueprint that hold a secret or name its file."""
        given = {about[key] for about in self._spec["secrets"].values() for key in ("env", "env_file")}
        secrets = [value for value in self.values.values() if value]
        return [name for name, value in self.own.items() if name in given or any(one in value for one in secrets)]

    @property
    def full(self) -> str:
        """Which volume has no room left, in words that follow why a program ended; empty: none."""
        for name, about in self._spec["volumes"].items():
            with contextlib.suppress(OSError):
                if shutil.disk_usage(about["path"]).free < _ROOM_BYTES:
                    return f"; its volume {name} is full: {about['path']}"
        return ""

    @property
    def missing(self) -> str:
        """What brings the program and all that it needs, in words that follow why it could not begin; empty: the blueprint does not say."""
        install = self._spec["install"]
        return f"; what it needs is installed by: {install}" if install else ""

    @property
    def endpoints(self) -> list[dict[str, Any]]:
        """Where it listens, as the file of its state has it; none before `fill`."""
        return [
            {"name": name, "url": self.known[f"url.{name}"], "port": number, "token_file": self._spec["token_file"]}
            for name, number in self.ports.items()
            if f"url.{name}" in self.known
        ]


def is_free(address: str, port: int) -> bool:
    """Return whether a program can listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _own_address(spec: dict[str, Any]) -> str:
    """Return where other nodes reach this one."""
    return reachable_address(os.environ.get("SLURMD_NODENAME"), spec.get("network_interface"))


def _plain_environment(after: list[str], put_first: list[str]) -> dict[str, str]:
    """Return this environment without what is meant for ranks: the service is no part of their world.

    Args:
        after: folders, with wildcards, in which programs are looked for that PATH does not have.
        put_first: what a job puts before PATH, which the shell's own programs come before.
    """
    mine = [
        place
        for place in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if place and not place.endswith("node.zip")
    ]
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(_NOT_THEIRS) and name not in _OF_RANKS
    }
    env.pop("PYTHONPATH", None)
    if mine:
        env["PYTHONPATH"] = os.pathsep.join(mine)
    there = [place for pattern in after for place in sorted(glob.glob(pattern), reverse=True)]
    path = env.get("PATH", os.defpath).split(os.pathsep)
    own = path[len(put_first) :] if path[: len(put_first)] == put_first else path
    env["PATH"] = os.pathsep.join([*own, *there])
    return env
