"""Services in an allocation when something befalls it: a node is lost, the job is requeued, its time is over; and the way to them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.slurm.test_services import CALM, ON_SLURM, data, name_network, services  # noqa: F401
from tests.systems.services.conftest import BLUEPRINT

from cordee.wire.ports import pick_port

COUNTING = """
import http.server, os, sys, threading
port, host, secret_file, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
token, lock = open(secret_file).read().strip(), threading.Lock()
path = os.path.join(folder, "count")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers.get("Authorization") == "Bearer " + token
        code = 200 if self.path == "/health" or known else 401
        said = b""
        if known and self.path == "/data":
            with lock, open(path, "a+") as file:
                file.seek(0)
                number = len(file.read().split()) + 1
                file.write(f"{number}\\n"); file.flush(); os.fsync(file.fileno())
                said = str(number).encode()
        self.send_response(code); self.end_headers(); self.wfile.write(said)
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer((host, port), Handler).serve_forever()
"""


@pytest.fixture
def counting(services):  # noqa: F811
    """A service that counts what it is asked, in its volume, before it answers; `ask` returns the number."""
    services.program.write_text(COUNTING)

    def deploy(*more: str):
        code, now, said = services.call("deploy", str(services.blueprint), *ON_SLURM, *CALM, *more, "--json")
        assert code == 0, said
        return now

    def ask() -> int:
        url = services.call("status", "echo", "--json")[1]["services"][0]["endpoints"][0]["url"]
        return int(data(url, (services.root() / "secrets" / "token").read_text()))

    services.deploy, services.ask = deploy, ask
    return services


def now_of(services) -> dict:  # noqa: F811
    return services.call("status", "echo", "--json")[1]["services"][0]


def until(condition, seconds: float = 120.0) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(0.2)
    return time.monotonic() - began


def job_of(slurm) -> str:
    return slurm.command("squeue", "--noheader", "--format=%i").strip()


def answers(services, more_than: int) -> bool:  # noqa: F811
    """Return whether the service counts on after what it has acknowledged: a new number, and not the first."""
    try:
        return services.ask() > more_than
    except (OSError, IndexError, ValueError):
        return False


@pytest.mark.parametrize("fault", ["killed", "down"])
def test_a_service_whose_node_is_lost_comes_up_on_another_with_its_data(counting, slurm, fault):
    before = counting.deploy()
    assert before["node"] == "n1"
    assert [counting.ask() for _ in range(3)] == [1, 2, 3]
    if fault == "killed":
        slurm.kill_node("n1")
    else:
        slurm.drain("n1", "broken")  # or its daemon, which lives, brings it back at once
        slurm.command("scontrol", "update", "nodename=n1", "state=down", "reason=broken")
    lasted_s = until(lambda: now_of(counting)["node"] == "n2" and now_of(counting)["ready"])
    print(f"{fault}: ready on n2 after {lasted_s:.0f} s")
    assert counting.ask() == 4
    assert now_of(counting)["run"] == before["run"]


def test_a_requeued_service_comes_back_at_the_same_folder(counting, slurm):
    before = counting.deploy()
    assert [counting.ask() for _ in range(3)] == [1, 2, 3]
    slurm.command("scontrol", "requeue", job_of(slurm))
    until(lambda: "RUNNING" not in slurm.command("squeue", "--noheader", "--format=%T"))
    until(lambda: answers(counting, 3))
    now = now_of(counting)
    assert (now["run"], now["endpoints"]) == (before["run"], before["endpoints"])
    assert (counting.root() / "volumes" / "data" / "count").read_text().split() == ["1", "2", "3", "4"]


def test_a_service_whose_time_is_over_says_so_and_is_deployed_again_with_its_data(counting):
    counting.deploy("--time", "60s")
    assert counting.ask() == 1
    until(
        lambda: now_of(counting)["why"].startswith("the time of its allocation was over: `cordee service deploy echo`")
    )
    assert now_of(counting)["state"] == "stopped"
    code, _, said = counting.call("deploy", "echo", *ON_SLURM, *CALM, "--json")
    assert code == 0, said
    assert counting.ask() == 2


def test_a_service_goes_on_in_the_next_segment_of_a_chain(counting, slurm):
    before = counting.deploy("--time", "2h", "--job", "need.partition=debug", "--job", "restart.forget=1s")
    assert [counting.ask() for _ in range(3)] == [1, 2, 3]
    time.sleep(2)
    slurm.command("scancel", "--signal=USR1", "--batch", job_of(slurm))
    until(lambda: "RUNNING" not in slurm.command("squeue", "--noheader", "--format=%T"))
    until(lambda: answers(counting, 3))
    now = now_of(counting)
    assert (now["run"], now["endpoints"]) == (before["run"], before["endpoints"])


# Another machine, as far as a network goes: a name and a loopback of its own, and the file system that both share.
ELSEWHERE = ["unshare", "--user", "--map-root-user", "--uts", "--net"]
ENTER = """
import fcntl, os, socket, struct, sys
socket.sethostname("laptop")
with socket.socket() as probe:
    fcntl.ioctl(probe, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
os.execvp(sys.argv[1], sys.argv[1:])
"""
# Opens a service, asks it through the tunnel with its token and without, and interrupts the tunnel.
OPEN_AND_ASK = """
import signal, subprocess, sys, urllib.error, urllib.request, socket
taken = socket.create_server(("127.0.0.1", int(sys.argv[2]))) if sys.argv[2] != "0" else None
opened = subprocess.Popen([sys.executable, "-m", "cordee.faces.cli", "service", "open", "echo"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
url = opened.stdout.readline().strip()
said = [url]
for line in opened.stderr:
    said.append(line.strip())
    if "the tunnel is there" in line:
        for token in (sys.argv[1], "wrong"):
            request = urllib.request.Request(url + "/data", headers={"Authorization": "Bearer " + token})
            try: said.append(urllib.request.urlopen(request, timeout=20).read().decode())
            except urllib.error.HTTPError as error: said.append(str(error.code))
        opened.send_signal(signal.SIGINT)
said.append(f"exit code {opened.wait()}")
try: socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])))
except ConnectionRefusedError: said.append("closed")
except OSError as error: said.append(repr(error))
print("\\n".join(said))
"""
PROXY = """
import os, socket, sys, threading
there = socket.socket(socket.AF_UNIX)
there.connect(sys.argv[1])
def up():
    while sent := os.read(0, 65536):
        there.sendall(sent)
    there.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while got := there.recv(65536):
    os.write(1, got)
"""
SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
SSH = """
Host {host}
  HostName 127.0.0.1
  ProxyCommand {python} {folder}/proxy.py {folder}/way
  IdentityFile {folder}/key
  IdentitiesOnly yes
  BatchMode yes
  StrictHostKeyChecking accept-new
  UserKnownHostsFile {folder}/known_hosts
"""


class OtherMachine:
    """A real sshd of this machine, and the way to it from a namespace whose network is none of this machine's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        for name in ("host", "key", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        (folder / "proxy.py").write_text(PROXY)
        (folder / "enter.py").write_text(ENTER)
        (folder / "ask.py").write_text(OPEN_AND_ASK)
        known = {"folder": folder, "host": socket.gethostname(), "python": sys.executable}
        (folder / "config").write_text(SSH.format(**known))
        (folder / "bin").mkdir()
        (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
        (folder / "bin" / "ssh").chmod(0o755)
        port = pick_port("127.0.0.1")
        (folder / "sshd_config").write_text(SSHD.format(port=port, folder=folder))
        sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or "sshd"
        self._sshd = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=(folder / "log").open("w")
        )
        self._way = socket.socket(socket.AF_UNIX)
        self._way.bind(str(folder / "way"))
        self._way.listen()
        threading.Thread(target=self._lead, args=(port,), daemon=True).start()

    def _lead(self, port: int) -> None:
        while True:
            try:
                here = self._way.accept()[0]
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", port))
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket) -> None:
        try:
            while got := one.recv(65536):
                other.sendall(got)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def run(self, *words: str) -> list[str]:
        """Run a Python script of the other machine; return its lines."""
        path = f"{self.folder}/bin:{Path(sys.executable).parent}:/usr/bin:/bin"
        argv = [
            *ELSEWHERE,
            sys.executable,
            str(self.folder / "enter.py"),
            "env",
            f"PATH={path}",
            sys.executable,
            *words,
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr + (self.folder / "log").read_text()
        return done.stdout.splitlines()

    def open_and_ask(self, token: str, taken: int = 0) -> list[str]:
        return self.run(str(self.folder / "ask.py"), token, str(taken))

    def end(self) -> None:
        self._sshd.terminate()
        self._sshd.wait()
        self._way.close()


@pytest.fixture
def laptop(tmp_path, slurm, monkeypatch):
    for name, value in slurm.impatient().items():  # no controller is reached from there
        monkeypatch.setenv(name, value)
    machine = OtherMachine(tmp_path / "laptop")
    yield machine
    machine.end()


@pytest.mark.parametrize("bind", ["loopback", "network"])
def test_the_tunnel_to_a_service_on_another_machine_carries_requests(counting, laptop, tmp_path, monkeypatch, bind):
    address = name_network(tmp_path, monkeypatch) if bind == "network" else "127.0.0.1"
    counting.write(BLUEPRINT.replace("port = 8080", "port = 8080\n[ports.more]\nport = 9090"))
    there, more = (one["url"] for one in counting.deploy("--bind", bind)["endpoints"])
    assert there.startswith(f"http://{address}:")
    token = (counting.root() / "secrets" / "token").read_text()
    port, second = (url.rsplit(":", 1)[1] for url in (there, more))
    said = laptop.open_and_ask(token)
    assert said[0] == f"http://127.0.0.1:{port}", said
    ways = f"-L 127.0.0.1:{port}:{address}:{port} -L 127.0.0.1:{second}:{address}:{second} {socket.gethostname()}"
    assert any(line.endswith(ways) for line in said), said
    assert said[-5:] == ["cordee: the tunnel is there; Ctrl-C ends it", "1", "401", "exit code 0", "closed"], said
    # The number of the port is taken there by something else.
    said = laptop.open_and_ask(token, taken=int(port))
    assert said[0].startswith("http://127.0.0.1:"), said
    assert not said[0].endswith(f":{port}"), said
    assert said[-4:] == ["2", "401", "exit code 0", "closed"], said


def test_a_tunnel_that_cannot_be_made_says_why(counting, laptop):
    counting.deploy()
    (laptop.folder / "key").write_bytes((laptop.folder / "other").read_bytes())
    said = "\n".join(laptop.open_and_ask("x"))
    assert "Permission denied" in said
    assert f"the tunnel to {socket.gethostname()} has ended: ssh says why, exit code 255" in said
    assert "exit code 1" in said.splitlines()
