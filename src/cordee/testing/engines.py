"""The contract of engines: what every one must do, ours and yours.

A test of an engine has one fixture and subclasses the contract; it is run for everybody who may use the engine:

```python
class TestMyEngine(EngineContract):
    @pytest.fixture(params=["folder", "squashfs"])
    def case(self, request, images):
        return EngineCase(find_engine("my-engine"), images, kind=request.param)
```

`images` is a folder that every user can read with what `contract_images` makes.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment
from cordee.systems.environments.node.engines._base import (
    CONTAINER_SCHEMA,
    EXIT_ENGINE,
    Engine,
    EngineLaunch,
    enter_argv,
)
from cordee.testing.containers import ENV, environment_in
from cordee.testing.images import busybox_root, squashfs_of

_PATIENCE_S = 60.0
# More than there are processors: ranks of one node start at once.
_AT_ONCE = 64
_ODD = {
    "NEWLINES": "a\nb\n\nc",
    "QUOTES": "\"'`$(x)\\",
    "EMPTY": "",
    "SPACES": " x  y ",
    "EQUALS": "a=b=c",
    "ACCENT": "cordée",
}


@dataclass(frozen=True)
class EngineCase:
    """An engine and what the contract needs to try it.

    Attributes:
        engine: the engine.
        images: what `contract_images` made.
        kind: of the root: `folder` or `squashfs`.
        prefix: words before every command line, as those of `setpriv`, to run it as somebody else.
    """

    engine: Engine
    images: Path
    kind: str = "folder"
    prefix: list[str] = field(default_factory=list)

    def environment(self, **fields: Any) -> Environment:
        """Return an environment of the test image with other fields set."""
        return environment_in(self.images, self.kind, **fields)

    def line(self, argv: tuple[str, ...], env: Mapping[str, str] = ENV, **fields: Any) -> list[str]:
        """Return the command line that runs `argv` in a container of its own."""
        return [*self.prefix, *self.engine.argv(self.environment(**fields), EngineLaunch(argv, env))]

    def run(self, *argv: str, env: Mapping[str, str] = ENV, **fields: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.line(argv, env, **fields),
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    @contextmanager
    def held(self, **fields: Any) -> Iterator[HeldContainer]:
        """Hold a container; it ends with the block."""
        line = [*self.prefix, *self.engine.hold(self.environment(**fields))]
        with subprocess.Popen(line, env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            try:
                yield HeldContainer(holder, json.loads(holder.stdout.readline()), self.prefix)
            finally:
                holder.stdin.close()
                holder.wait(_PATIENCE_S)


@dataclass(frozen=True)
class HeldContainer:
    """A container that is held: its holder, what that said, and the words before commands."""

    holder: subprocess.Popen[str]
    said: dict[str, Any]
    prefix: list[str]

    def start(self, *argv: str, workdir: str = "/", env: Mapping[str, str] = ENV) -> subprocess.Popen[str]:
        """Start a command in it."""
        assert "enter" in self.said, self.said
        line = [*self.prefix, *enter_argv(self.said["enter"], argv, workdir)]
        return subprocess.Popen(line, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *argv: str, **options: Any) -> tuple[int, str, str]:
        """Run a command in it; return its exit code and what it printed."""
        with self.start(*argv, **options) as process:
            out, err = process.communicate(timeout=_PATIENCE_S)
            return process.returncode, out, err


def contract_images(folder: Path) -> Path:
    """Make in `folder` what the contract runs in: `root`, a folder, and `root.sqsh`; return it."""
    folder.chmod(0o755)
    squashfs_of(busybox_root(folder / "root"), folder / "root.sqsh")
    return folder


class EngineContract:
    """What every engine must do; a subclass has a fixture `case` that returns an `EngineCase`, and is marked slow."""

    @pytest.fixture
    def case(self) -> EngineCase:
        raise NotImplementedError

    @pytest.fixture
    def place(self) -> Iterator[Path]:
        """A folder that every user can reach and write."""
        with tempfile.TemporaryDirectory(prefix="cordee-place-") as name:
            folder = Path(name)
            folder.chmod(0o777)
            yield folder

    def test_this_machine_lacks_nothing(self, case: EngineCase) -> None:
        assert case.engine.missing(case.environment()) == []

    def test_a_missing_source_of_a_mount_is_said_beforehand(self, case: EngineCase) -> None:
        (missing,) = case.engine.missing(case.environment(mounts=(ContainerMount("/no/such", "/x"),)))
        assert "/no/such" in missing.text
        assert missing.next

    def test_a_command_ends_with_its_own_exit_code(self, case: EngineCase) -> None:
        assert case.run("sh", "-c", "exit 7").returncode == 7
        assert case.run("sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM

    def test_a_command_that_is_not_there_is_127_and_one_that_cannot_be_executed_126(self, case: EngineCase) -> None:
        missing, forbidden = case.run("no-such-program"), case.run("/etc/passwd")
        assert (missing.returncode, forbidden.returncode) == (127, 126), missing.stderr + forbidden.stderr
        assert "no-such-program" in missing.stderr

    def test_the_environment_arrives_exactly_and_is_on_no_command_line(self, case: EngineCase) -> None:
        odd = {**ENV, **_ODD}
        done = case.run("env", "-0", env=odd)
        assert dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair) == odd, done.stderr
        assert not any(_ODD["QUOTES"] in word for word in case.line(("true",), odd))
        assert not any("secret-value" in word for word in case.engine.hold(case.environment(env={"A": "secret-value"})))

    def test_commands_begin_in_the_workdir_and_a_missing_one_is_named(self, case: EngineCase) -> None:
        assert case.run("pwd", workdir="/usr/bin").stdout == "/usr/bin\n"
        assert case.run("pwd", config=ImageConfig(workdir="/opt")).stdout == "/opt\n"
        refused = case.run("pwd", workdir="/no/such")
        assert refused.returncode == EXIT_ENGINE
        assert "/no/such" in refused.stderr

    def test_the_entrypoint_is_run_when_asked_for(self, case: EngineCase) -> None:
        config = ImageConfig(entrypoint=("sh", "-c", 'echo entry "$@"', "name"))
        assert case.run("echo", "x", config=config).stdout == "x\n"
        assert case.run("word", config=config, entrypoint=True).stdout == "entry word\n"

    def test_mounts_can_be_written_or_not_and_need_no_mount_point(self, case: EngineCase, place: Path) -> None:
        (place / "file").write_text("text")
        mounts = (
            ContainerMount(str(place), "/opt/new/place"),
            ContainerMount(str(place), "/ro", ("ro",)),
            ContainerMount(str(place / "file"), "/a/b"),
        )
        done = case.run("sh", "-c", "cat /a/b; echo x > /opt/new/place/made; echo y > /ro/never", mounts=mounts)
        assert done.stdout == "text", done.stderr
        assert "Read-only file system" in done.stderr
        assert (place / "made").read_text() == "x\n"
        assert not (place / "never").exists()

    def test_squashfs_files_are_mounted(self, case: EngineCase) -> None:
        mount = ContainerMount(str(case.images / "root.sqsh"), "/data/set", ("sqsh",))
        done = case.run("cat", "/data/set/etc/os-release", mounts=(mount,))
        assert "busybox" in done.stdout, done.stderr

    def test_a_thousand_mounts(self, case: EngineCase, place: Path) -> None:
        (place / "file").write_text("text\n")
        mounts = tuple(ContainerMount(str(place), f"/many/mount-{number}") for number in range(1000))
        done = case.run("sh", "-c", "cat /many/*/file | wc -l", mounts=mounts)
        assert int(done.stdout or 0) == 1000, done.stderr

    def test_links_in_the_image_lead_to_no_place_outside(self, case: EngineCase, place: Path) -> None:
        root = place / "image"
        shutil.copytree(case.images / "root", root, symlinks=True)
        (root / "mnt").rmdir()
        (root / "mnt").symlink_to(place)
        inside = replace(
            case.environment(mounts=(ContainerMount("/usr", "/mnt/inside"),)), root=ContainerRoot("folder", str(root))
        )
        line = [*case.prefix, *case.engine.argv(inside, EngineLaunch(("test", "-d", "/mnt/inside/bin"), ENV))]
        assert subprocess.run(line, env=ENV, timeout=_PATIENCE_S, check=False).returncode == 0
        assert not (place / "inside").exists()

    @pytest.mark.parametrize("writable", [True, False])
    def test_the_image_is_never_changed(self, case: EngineCase, writable: bool) -> None:
        done = case.run("sh", "-c", "echo x > /new && cat /new", writable=writable)
        assert done.stdout == ("x\n" if writable else ""), done.stderr
        assert ("Read-only file system" in done.stderr) != writable
        assert not (case.images / "root/new").exists()
        assert case.run("sh", "-c", "echo y > /tmp/new && cat /tmp/new", writable=writable).stdout == "y\n"

    def test_a_signal_reaches_the_command(self, case: EngineCase) -> None:
        script = "trap 'echo got; exit 9' USR1; echo ready; while true; do sleep 0.02; done"
        with subprocess.Popen(case.line(("sh", "-c", script)), env=ENV, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.read() == "got\n"
        assert process.returncode == 9

    def test_on_a_terminal_an_interrupt_reaches_the_command_once_and_a_stop_the_caller(self, case: EngineCase) -> None:
        # Short sleeps: a shell that is about to start a program may lose what comes just then on its behalf.
        script = "trap 'echo got; n=1' INT; n=0; echo ready; while [ $n = 0 ]; do sleep 0.05; done; sleep 0.1; exit 9"
        line = case.line(("sh", "-c", script))
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe(line[0], line, ENV)
        seen = b""
        while b"ready" not in seen:
            seen += os.read(terminal, 100)
        os.write(terminal, b"\x1a")
        assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
        os.killpg(pid, signal.SIGCONT)
        os.write(terminal, b"\x03")
        seen += _rest(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
        assert seen.count(b"got") == 1, seen

    def test_nothing_is_left_when_the_caller_is_killed(self, case: EngineCase, place: Path) -> None:
        line = case.line(
            ("sh", "-c", "echo ready; sleep 1000 & sleep 1000"), mounts=(ContainerMount(str(place), "/there"),)
        )
        with subprocess.Popen(line, env=ENV, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            inside = namespaces_of(process.pid)
            assert processes_in(inside)
            process.kill()
        _await(lambda: processes_in(inside) == [])
        assert str(place) not in Path("/proc/self/mountinfo").read_text()

    def test_a_container_is_held_for_many_commands_at_once(self, case: EngineCase) -> None:
        with case.held() as held:
            assert held.said["schema"] == CONTAINER_SCHEMA
            held.run("sh", "-c", "echo shared > /shared")
            started = [held.start("sh", "-c", f"cat /shared; exit {number}") for number in range(_AT_ONCE)]
            ended = [(process.communicate(timeout=_PATIENCE_S)[0], process.returncode) for process in started]
            assert ended == [("shared\n", number) for number in range(_AT_ONCE)]

    def test_what_enters_is_the_same_process_with_its_own_environment_and_workdir(self, case: EngineCase) -> None:
        with case.held() as held:
            process = held.start("sh", "-c", "echo $$; pwd; echo $ODD", workdir="/usr/bin", env={**ENV, "ODD": "a\tb"})
            with process:
                assert process.communicate()[0] == f"{process.pid}\n/usr/bin\na b\n"
            code, _, err = held.run("true", workdir="/no/such")
            assert code == EXIT_ENGINE
            assert "/no/such" in err
            assert held.run("no-such-program")[0] == 127

    def test_a_container_that_cannot_be_held_says_why(self, case: EngineCase) -> None:
        with case.held(workdir="/no/such") as held:
            assert held.said["schema"] == CONTAINER_SCHEMA
            assert "/no/such" in held.said["error"]["text"]
            assert held.holder.wait(_PATIENCE_S) == EXIT_ENGINE

    @pytest.mark.parametrize("how", ["closed", "killed"])
    def test_a_held_container_ends_with_its_holder_and_leaves_nothing(self, case: EngineCase, how: str) -> None:
        with case.held() as held:
            inside = namespaces_of(held.holder.pid)
            with held.start("sh", "-c", "echo ready; sleep 1000") as command:
                assert command.stdout is not None
                assert command.stdout.readline() == "ready\n"
                inside |= {os.readlink(f"/proc/{command.pid}/ns/mnt")}
                if how == "killed":
                    held.holder.kill()
                else:
                    assert held.holder.stdin is not None
                    held.holder.stdin.close()
                command.wait(_PATIENCE_S)
            _await(lambda: processes_in(inside) == [])
            enter = [*held.prefix, *enter_argv(held.said["enter"], ("true",), "/")]
            assert subprocess.run(enter, env=ENV, capture_output=True, check=False).returncode == EXIT_ENGINE


def namespaces_of(pid: int) -> set[str]:
    """Return the mount namespaces, other than ours, of a process and of those that it started."""
    ours, found, pending = os.readlink("/proc/self/ns/mnt"), set(), [pid]
    while pending:
        each = pending.pop()
        try:
            found.add(os.readlink(f"/proc/{each}/ns/mnt"))
            pending += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
        except OSError:
            continue
    return found - {ours}


def processes_in(namespaces: set[str]) -> list[str]:
    """Return the processes that are in mount namespaces; without one the kernel takes their mounts away."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "ns/mnt") in namespaces:
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def _rest(terminal: int) -> bytes:
    """Return what is still written to a terminal until nobody has it open."""
    seen = b""
    while True:
        try:
            part = os.read(terminal, 1000)
        except OSError:
            part = b""
        if not part:
            os.close(terminal)
            return seen
        seen += part


def _await(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
