"""The server of `com.hooks.ssh`, run beside a container for as long as that is open.

Standard input is one JSON document: `enter` (the words that lead into the container), `env` and `workdir` of sessions,
`settings` of the hook, `node`, whether only this machine may connect (`loopback`), and `told`, the file that says how to
connect once one can (empty: none). It ends by SIGTERM, or with who started it.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Mapping

from cordee.core.errors import CordeeError
from cordee.machine.node_folder import memory_places, name_of_user
from cordee.machine.private import private_folder
from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.hooks.host_program import host_program
from cordee.systems.environments.node.hooks.ssh import DEFAULT_PORT, SFTP_INSIDE, key_path, sftp_server

SCHEMA = "cordee.connect/1"
_PRIVILEGE_FOLDER = "/run/sshd"
# Ports that are tried when the first is taken, as by another job of this node.
_PORTS = 64
_UP_S, _TICK_S, _END_S = 10.0, 0.02, 2.0
_SUBSYSTEM = "cordee-sftp"
_SESSION = """
import json, os
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "session.json"), encoding="utf-8") as file:
    told = json.load(file)
env = dict(told["env"])
env.update({name: value for name, value in os.environ.items() if name in ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "TERM")})
given = os.environ.get("SSH_ORIGINAL_COMMAND")
if given == told["subsystem"]:
    command = [told["sftp"]]
elif given is not None:
    command = ["/bin/sh", "-c", 'command -v bash >/dev/null && exec bash -c "$1"; exec sh -c "$1"', "sh", given]
else:
    command = ["/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i"]
argv = [*told["enter"], "--workdir", told["workdir"], "--", *command]
os.execvpe(argv[0], argv, {**env, "PATH": env.get("PATH", os.defpath)})
"""


def serve(asked: Mapping[str, Any]) -> int:
    """Run the server until it is told to end, and return its exit code.

    Raises:
        CordeeError: it could not be started.
    """
    folder = _folder()
    try:
        port = _free_port(int(asked["settings"].get("port", DEFAULT_PORT)), bool(asked["loopback"]))
        _write_files(folder, asked, port)
        server = subprocess.Popen(
            [str(host_program("sshd")), "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: kernel.die_with_parent(kernel.SIGKILL),
        )
        try:
            _await(server, port)
            _tell(folder, asked, port)
            return server.wait()
        finally:
            _end(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path:
    """Return a new private folder; those of servers that were killed go."""
    place = private_folder(memory_places()[0], name_of_user())
    for old in place.glob("ssh-*"):
        if not os.path.exists(f"/proc/{old.name[4:]}"):
            shutil.rmtree(old, ignore_errors=True)
    folder = place / f"ssh-{os.getpid()}"
    folder.mkdir(mode=0o700)
    return folder


def _free_port(wanted: int, loopback: bool) -> int:
    for port in range(wanted, min(wanted + _PORTS, 65536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1" if loopback else "", port))
                probe.listen()  # two that only reuse an address may both bind it
            except OSError:
                continue
            return port
    raise CordeeError(
        f"the port of ssh is taken, and so are the {_PORTS} after it",
        given=str(wanted),
        next="write another com.hooks.ssh.port",
    )


def _write_files(folder: Path, asked: Mapping[str, Any], port: int) -> None:
    key = folder / "host_key"
    maker = [str(host_program("ssh-keygen")), "-q", "-t", "ed25519", "-N", "", "-C", "cordee", "-f", str(key)]
    subprocess.run(maker, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    keys = Path(key_path(asked["settings"], os.environ)).read_bytes()
    in_image = bool(asked["in_image"])
    session = {
        **{name: asked[name] for name in ("enter", "env", "workdir")},
        "subsystem": _SUBSYSTEM,
        "sftp": SFTP_INSIDE if in_image else sftp_server() or "sftp-server",
    }
    options = [
        f"ListenAddress {'127.0.0.1' if asked['loopback'] else '0.0.0.0'}:{port}",
        f"HostKey {key}",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        "PidFile none",
        "UsePAM no",
        "StrictModes no",  # the folder is private, and lies below one that everybody may write
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        f"PermitRootLogin {'prohibit-password' if os.geteuid() == 0 else 'no'}",
        f"AllowUsers {_user()}",
        "X11Forwarding no",
        "PrintMotd no",
        "PrintLastLog no",
        f"Subsystem sftp {_SUBSYSTEM}",
        f"ForceCommand {shlex.join([sys.executable, '-I', '-S', str(folder / 'session.py')])}",
    ]
    files = {
        "authorized_keys": keys,
        "session.json": json.dumps(session).encode("utf-8", "surrogateescape"),
        "session.py": _SESSION.encode(),
        "sshd_config": "\n".join([*options, ""]).encode(),
    }
    for name, content in files.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(content)
    if os.geteuid() == 0 and not os.path.isdir(_PRIVILEGE_FOLDER):
        os.mkdir(_PRIVILEGE_FOLDER, 0o755)


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _await(server: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _UP_S
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(_TICK_S)
    how = "took no connection" if server.poll() is None else f"ended with exit code {server.returncode}"
    raise CordeeError(f"sshd {how}", given=f"port {port}", next="its words stand above")


def _tell(folder: Path, asked: Mapping[str, Any], port: int) -> None:
    """Say how to connect: in the file that was asked for, complete or not at all, and on standard error."""
    host = "127.0.0.1" if asked["loopback"] else str(asked["node"])
    found = {
        "schema": SCHEMA,
        "node": asked["node"],
        "host": host,
        "port": port,
        "user": _user(),
        "host_key": (folder / "host_key.pub").read_text().split(" cordee")[0].strip(),
        "workdir": asked["workdir"],
    }
    wanted = int(asked["settings"].get("port", DEFAULT_PORT))
    instead = "" if port == wanted else f" ({wanted} is taken)"
    print(f"cordee: ssh -p {port} {found['user']}@{host}{instead}", file=sys.stderr, flush=True)
    if asked["told"]:
        path = Path(asked["told"])
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(found))
        fresh.rename(path)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server with all of its connections, which share its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
            server.wait(_END_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def main() -> int:
    """Do what standard input asks for; words on standard error when it cannot be done."""
    parent = os.getppid()
    kernel.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if os.getppid() != parent:
        return 0
    try:
        return serve(json.load(sys.stdin))
    except (CordeeError, OSError, subprocess.SubprocessError) as error:
        print(f"cordee: ssh into the container cannot be had: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
