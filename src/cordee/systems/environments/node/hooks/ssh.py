"""`com.hooks.ssh`: a way into the container by OpenSSH, for shells, files, tunnels and editors."""

from __future__ import annotations

import os
import stat
from typing import Mapping, Optional

from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import MissingCapability
from cordee.systems.environments.node.hooks._base import Hook
from cordee.systems.environments.node.hooks.host_program import host_program, program_mounts, with_mounts

DEFAULT_PORT = 15263
SFTP_INSIDE = "/run/cordee/sftp-server"
_SFTP = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")
_PROGRAMS = ("sshd", "ssh-keygen")
_KEY = "authorize_ssh_key"
_PRIVATE, _MOST_BYTES = "PRIVATE KEY-----", 1 << 20


class SshHook(Hook):
    """The server is the host's and runs beside the container, as whoever runs that: an image needs nothing for it. Each session
    enters the container; `ssh_server` is what runs."""

    name = "ssh"

    def missing(self, settings: Mapping[str, str], host: Mapping[str, str]) -> list[MissingCapability]:
        found = [
            MissingCapability("openssh-server", f"{name} is not installed on this machine", "install openssh-server")
            for name in _PROGRAMS
            if host_program(name) is None
        ]
        wrong = port_fault(settings) or key_fault(settings, host)
        return [*found, *([wrong] if wrong else [])]

    def apply(self, environment: Environment, settings: Mapping[str, str], host: Mapping[str, str]) -> Environment:
        server = sftp_server()
        if server is None or environment.root is None or environment.root.kind == "host":
            return environment
        return with_mounts(environment, program_mounts([(server, SFTP_INSIDE)]))


def sftp_server() -> Optional[str]:
    """Return the host's program that serves files to sftp and scp; None: it has none."""
    return next((path for path in _SFTP if os.path.exists(path)), None)


def port_fault(settings: Mapping[str, str]) -> Optional[MissingCapability]:
    """Return what is wrong with the port; None: nothing."""
    given = settings.get("port", str(DEFAULT_PORT))
    if given.isascii() and given.isdigit() and 1024 <= int(given) <= 65535:
        return None
    return MissingCapability(
        "ssh-port", f"the port of ssh is no number from 1024 to 65535: {given}", "write 15263", given
    )


def key_path(settings: Mapping[str, str], host: Mapping[str, str]) -> str:
    """Return the file of the keys that may enter; empty: none is given."""
    given = settings.get(_KEY, "")
    return host.get("HOME", "~") + given[1:] if given.startswith("~/") else given


def key_fault(settings: Mapping[str, str], host: Mapping[str, str]) -> Optional[MissingCapability]:
    """Return why nobody could enter by the file of keys, or somebody could who should not; None: all is well."""
    path, what = key_path(settings, host), f"com.hooks.ssh.{_KEY}"
    if not path:
        text = f"nobody could enter: there is no {what}"
        return MissingCapability("ssh-key", text, f'write {what} = "${{HOME}}/.ssh/id_ed25519.pub"')
    try:
        state = os.stat(path)
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
    except OSError as error:
        hint = "name a file with public keys; ssh-keygen -t ed25519 makes a pair"
        return MissingCapability("ssh-key", f"the file of keys cannot be read: {error.strerror}", hint, path)
    if _PRIVATE in text:
        hint = f"name the public one, {path}.pub, and let nobody read this one"
        return MissingCapability("ssh-key", "this is a private key", hint, path)
    if state.st_uid not in (0, os.geteuid()) or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        hint = f"chmod go-w {path}"
        return MissingCapability("ssh-key", "others may write the file of keys, and so let themselves in", hint, path)
    if not any(line.strip() and not line.startswith("#") for line in text.splitlines()):
        return MissingCapability("ssh-key", "there is no key in the file", "name a file with public keys", path)
    return None
