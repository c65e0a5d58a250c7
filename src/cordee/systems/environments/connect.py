"""How to connect to a run whose environment has `com.hooks.ssh`: a configuration of ssh, and what editors are told."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cordee.core.errors import UsageError
from cordee.core.words import did_you_mean
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import write_atomically
from cordee.systems.environments.node.ssh_access import CONNECT
from cordee.systems.environments.node.ssh_server import SCHEMA

_KEYS = {"node": str, "host": str, "port": int, "user": str, "host_key": str, "workdir": str}


class RunAccess:
    """The way to one node of a run.

    Args:
        folder: the run's.
        node: its name; None: the first that can be connected to.
        jump: a host to go through.
        identity: the file of a private key.

    Raises:
        UsageError: that node, or any, cannot be connected to.
    """

    def __init__(self, folder: Path, node: str | None, jump: str | None, identity: Path | None) -> None:
        self._folder, self._jump, self._identity = folder / CONNECT, jump, identity
        self.nodes = _told_by_nodes(self._folder)
        if not self.nodes:
            raise UsageError(
                "no node of this run can be connected to by ssh",
                given=folder.name,
                next="its environment has to ask for it: com.hooks.ssh.enabled and .authorize_ssh_key in [annotations]; "
                "where it does, `cordee logs` says why not, or it is not up yet",
            )
        if node is not None and node not in self.nodes:
            hint = did_you_mean(node, self.nodes, "name one of these")
            raise UsageError(f"{node} cannot be connected to", given=node, allowed=sorted(self.nodes), next=hint)
        self.node = self.nodes[node or min(self.nodes)]
        self.name = f"cordee-{folder.name}-{self.node['node']}"

    @property
    def config(self) -> Path:
        """The configuration file of ssh that `write` makes."""
        return self._folder / "ssh_config"

    def write(self) -> None:
        """Write the configuration for all nodes of the run, and the keys by which they are known."""
        known = self._folder / "known_hosts"
        lines = []
        for each in self.nodes.values():
            lines += [
                f"Host cordee-{self._folder.parent.name}-{each['node']}",
                f"  HostName {each['host']}",
                f"  Port {each['port']}",
                f"  User {each['user']}",
                f'  UserKnownHostsFile "{known}"',
                f"  HostKeyAlias {each['node']}:{each['port']}",
                "  StrictHostKeyChecking yes",
                *([f'  IdentityFile "{self._identity}"', "  IdentitiesOnly yes"] if self._identity else []),
                *([f"  ProxyJump {self._jump}"] if self._jump else []),
            ]
        keys = [f"{each['node']}:{each['port']} {each['host_key']}" for each in self.nodes.values()]
        write_atomically(known, "\n".join([*keys, ""]))
        write_atomically(self.config, "\n".join([*lines, ""]))

    def ssh(self) -> list[str]:
        """Return the command line of a shell."""
        return ["ssh", "-F", str(self.config), self.name]

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        nodes = [{key: each[key] for key in _KEYS} for each in self.nodes.values()]
        return {"schema": SCHEMA, "ssh": self.ssh(), "name": self.name, "config": str(self.config), "nodes": nodes}

    def text(self) -> str:
        """Return what to type, for people."""
        config, folder = shlex.quote(str(self.config)), shlex.quote(self.node["workdir"])
        at = f"{self.node['user']}@{self.node['host']}, port {self.node['port']}"
        rows = [
            ("shell", shlex.join(self.ssh())),
            ("files", f"scp -F {config} FILE {self.name}:{folder}/"),
            ("tunnel", f"cordee env connect {self._folder.parent.name} --tunnel 8888"),
            ("VS Code", f"code --remote ssh-remote+{self.name} {folder}"),
            ("JetBrains", f"Gateway, SSH: {at}; project {folder}"),
        ]
        lines = [f"{name:<10} {words}\n" for name, words in rows]
        lines.append(f"Editors read ~/.ssh/config: put this line at its top.\n  Include {config}\n")
        return "".join(lines)


def tunnel_words(tunnels: Iterable[str]) -> list[str]:
    """Return the words by which ssh makes ports of a node ports of this machine, for this machine alone.

    Raises:
        UsageError: one is no port.
    """
    found = []
    for given in tunnels:
        local, _, port = given.rpartition(":")
        local = local or port
        if not all(each.isascii() and each.isdigit() and 0 < int(each) < 65536 for each in (local, port)):
            raise UsageError("a tunnel is a port, or two with a colon", given=given, allowed="PORT or LOCAL:PORT")
        found += ["-L", f"127.0.0.1:{local}:127.0.0.1:{port}"]
    return found


def _told_by_nodes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what nodes have said of themselves; what is damaged is passed over."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            told = read_json(path, folder)
        except (OSError, ValueError):
            continue
        fits = isinstance(told, dict) and all(isinstance(told.get(key), kind) for key, kind in _KEYS.items())
        # They become lines of a configuration: a line end in one would be a line of its own.
        if fits and not any(letter in str(told[key]) for key in _KEYS for letter in "\n\r\0"):
            found[told["node"]] = told
    return found
