"""A person at a terminal: Ctrl-C, detaching, a killed client, following logs, a shell inside the job."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from cordee.testing.patience import wait_until

COMMAND = [sys.executable, "-m", "cordee.faces.cli"]


class Terminal:
    """`cordee ARGUMENTS` on a pseudo terminal."""

    def __init__(self, folder, *arguments: str) -> None:
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execv(COMMAND[0], [*COMMAND, *arguments])
        self.seen = b""

    def expect(self, text: bytes, seconds: float = 30.0) -> None:
        """Read until `text` has appeared."""
        os.set_blocking(self.descriptor, False)

        def seen() -> bool:
            with contextlib.suppress(BlockingIOError, OSError):
                self.seen += os.read(self.descriptor, 65536)
            return text in self.seen

        wait_until(seen, seconds, said=lambda: self.seen.decode(errors="replace"))

    def type(self, text: bytes) -> None:
        """Press keys."""
        os.write(self.descriptor, text)

    def code(self) -> int:
        """Return the exit code, reading what is printed meanwhile."""
        while True:
            with contextlib.suppress(BlockingIOError, OSError):
                self.seen += os.read(self.descriptor, 65536)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)


@pytest.mark.usefixtures("real")
def test_ctrl_c_asks_and_detaching_leaves_the_run_going(cordee):
    cordee.job(steps=3000, pause=0.02)
    terminal = Terminal(cordee.folder, "run")
    terminal.expect(b"step 3")
    terminal.type(b"\x03")
    terminal.expect(b"[d]etach")
    terminal.type(b"d\n")
    assert terminal.code() == 0
    assert cordee.json("show")["state"] == "running"
    assert cordee("cancel").returncode == 0
    assert cordee.json("show")["state"] == "cancelled"


def test_ctrl_c_asks_and_cancelling_stops_at_a_step(cordee):
    cordee.job(steps=3000, pause=0.02)
    terminal = Terminal(cordee.folder, "run")
    terminal.expect(b"step 3")
    terminal.type(b"\x03")
    terminal.expect(b"[d]etach")
    terminal.type(b"c\n")
    assert terminal.code() == 1
    assert b"cancelled by Ctrl-C" in terminal.seen


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_terminal_that_goes_away_and_a_killed_client_do_not_end_the_run(cordee):
    cordee.job(steps=150, pause=0.02)
    terminal = Terminal(cordee.folder, "run")
    terminal.expect(b"step 3")
    os.close(terminal.descriptor)
    client = subprocess.Popen([*COMMAND, "logs", "-f"], cwd=cordee.folder, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    client.send_signal(signal.SIGKILL)
    client.wait()
    os.waitpid(terminal.pid, 0)
    assert wait_until(lambda: (state := cordee.json("show")["state"]) != "running" and state) == "finished"


def test_detach_returns_at_once_and_logs_follow_to_the_end(cordee):
    cordee.job(steps=60, pause=0.02)
    done = cordee("run", "--detach")
    assert done.returncode == 0
    followed = cordee("logs", "-f", timeout=60)
    assert followed.stdout.splitlines() == [f"step {step}" for step in range(60)]


@pytest.mark.usefixtures("real")
def test_a_shell_opens_inside_the_job(cordee):
    cordee.job(steps=3000, pause=0.02, toml='setup = ["export FROM_SETUP=yes"]\n[need]\nnodes = 2')
    assert cordee("run", "--detach").returncode == 0
    wait_until(lambda: cordee.json("show")["ranks"])
    terminal = Terminal(cordee.folder, "shell", "last", "--node", "local-1", "--", "bash", "--norc", "-i")
    terminal.type(b"echo at $CORDEE_NODE $FROM_SETUP; exit 7\n")
    terminal.expect(b"at local-1 yes")
    assert terminal.code() == 7
    missing = cordee("shell", "last", "--node", "local-9", "--", "true", stdin=subprocess.DEVNULL)
    assert missing.returncode == 5
    assert "connected: local-0, local-1" in missing.stderr


@pytest.mark.usefixtures("real")
def test_watch_leaves_with_q_and_the_run_goes_on(cordee):
    cordee.job(steps=3000, pause=0.02)
    assert cordee("run", "--detach").returncode == 0
    terminal = Terminal(cordee.folder, "watch")
    terminal.expect(b"q leaves")
    terminal.expect(b"host memory")
    terminal.type(b"q")
    assert terminal.code() == 0
    assert cordee.json("show")["state"] == "running"
