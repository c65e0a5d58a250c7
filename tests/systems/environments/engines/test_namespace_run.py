"""One command in a container of the namespace engine, as root and as a user."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.node.document import ContainerRoot, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EXIT_ENGINE, EngineError, EngineLaunch
from cordee.testing.containers import ENV, UID, environment_in, left_behind, mounts

KINDS = ["folder", "squashfs"]


@pytest.mark.parametrize("kind", [*KINDS, "host"])
def test_a_command_ends_with_its_own_exit_code(run, kind):
    assert [run("sh", "-c", f"exit {code}", kind=kind).returncode for code in (0, 7)] == [0, 7]
    assert run("sh", "-c", "kill -TERM $$", kind=kind).returncode == 128 + signal.SIGTERM


def test_a_command_that_is_not_there_is_127_and_one_that_cannot_be_executed_126(run, place):
    missing, forbidden = run("no-such-program"), run("/etc/passwd")
    assert (missing.returncode, forbidden.returncode) == (127, 126)
    assert "no command no-such-program" in missing.stderr
    assert "/etc/passwd cannot be executed" in forbidden.stderr


def test_a_program_for_another_architecture_is_named(run, place):
    program = bytearray(Path("/bin/busybox").read_bytes()[:4096])
    program[18:20] = (183 if os.uname().machine != "aarch64" else 62).to_bytes(2, "little")
    (place / "other").write_bytes(program)
    (place / "other").chmod(0o755)
    done = run("/there/other", mounts=mounts(f"{place}:/there"))
    assert done.returncode == 126
    assert "is made for aarch64" in done.stderr


def test_a_script_whose_interpreter_is_missing_says_so(run, place):
    (place / "script").write_text("#!/no/such/shell\n")
    (place / "script").chmod(0o755)
    done = run("/there/script", mounts=mounts(f"{place}:/there"))
    assert done.returncode == 127
    assert "its first line" in done.stderr


def test_the_user_is_the_same_inside_and_has_an_account_and_a_home(run, who):
    done = run("sh", "-c", "id -u; id -g; whoami; cd $HOME && pwd")
    uid, gid, name, home = done.stdout.split()
    assert (uid, gid, home) == ((str(UID), str(UID), "/home/me") if who else ("0", "0", "/home/me"))
    assert name


def test_a_user_has_no_rights_inside(run, who):
    done = run("grep", "CapEff", "/proc/self/status")
    assert (int(done.stdout.split()[1], 16) == 0) == bool(who)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_to_the_root_is_gone_with_the_container(run, kind, images):
    done = run("sh", "-c", "echo x > /new && echo y > $HOME/z && cat /new $HOME/z", kind=kind)
    assert done.stdout.split() == ["x", "y"], done.stderr
    assert not (images / "root/new").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_only_root_cannot_be_written_and_tmp_can(run, kind):
    done = run("sh", "-c", "touch /x; touch /tmp/y && echo fine", kind=kind, writable=False)
    assert done.stdout == "fine\n"
    assert "Read-only file system" in done.stderr


def test_the_environment_arrives_exactly(run):
    odd = {**ENV, "LINES_": "a\nb\n\nc", "QUOTES": "\"'`$(x)\\", "EMPTY": "", "SPACE D": " x ", "ACCENT": "cordée"}
    done = run("env", "-0", env=odd, kind="host")
    assert dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair) == odd


def test_values_of_variables_are_on_no_command_line(images):
    secret = environment_in(images, env={"TOKEN": "very-secret"})
    engine = find_engine("namespace")
    assert "very-secret" not in json.dumps(engine.argv(secret, EngineLaunch(("true",), secret.variables({}))))
    assert "very-secret" not in json.dumps(engine.hold(secret))


def test_commands_begin_in_the_workdir_and_a_missing_one_is_named(run):
    assert run("pwd", workdir="/usr/bin").stdout == "/usr/bin\n"
    assert run("pwd", config=ImageConfig(workdir="/opt")).stdout == "/opt\n"
    refused = run("pwd", workdir="/no/such")
    assert refused.returncode == EXIT_ENGINE
    assert "/no/such" in refused.stderr
    assert "set workdir" in refused.stderr


def test_without_an_image_the_host_is_seen_and_the_folder_stays(run, place, monkeypatch):
    monkeypatch.chdir(place)
    (place / "point").mkdir()
    (place / "here").write_text("text")
    done = run("sh", "-c", "pwd; cat point/here; echo $$", kind="host", mounts=mounts(f"{place}:{place}/point"))
    folder, text = done.stdout.splitlines()[0], done.stdout.splitlines()[1]
    assert (folder, text[:4]) == (str(place), "text")


def test_the_command_sees_only_its_own_processes_and_zombies_are_buried(run):
    script = "sh -c 'sleep 0.01 & exit' ; sleep 0.2; grep -l 'State:.*zombie' /proc/[0-9]*/status; ls -d /proc/[0-9]* | wc -l"
    done = run("sh", "-c", script)
    assert int(done.stdout) <= 5, done.stdout


def test_what_a_command_leaves_running_ends_with_it(run, place):
    started = time.monotonic()
    assert run("sh", "-c", f"sleep 1000{UID} & exit 3").returncode == 3
    assert time.monotonic() - started < 50
    assert left_behind(f"sleep 1000{UID}") == []


def test_ignored_signals_are_as_any_parent_leaves_them(run):
    ignored = int(run("grep", "SigIgn", "/proc/self/status").stdout.split()[1], 16)
    blocked = int(run("grep", "SigBlk", "/proc/self/status").stdout.split()[1], 16)
    assert (ignored & (1 << (signal.SIGPIPE - 1)), blocked) == (0, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGWINCH])
def test_signals_are_forwarded_once(images, who, number):
    script = f"trap 'echo got; n=1' {number.name[3:]}; n=0; echo ready; while [ $n = 0 ]; do sleep 0.02; done; sleep 0.1; exit 9"
    words = find_engine("namespace").argv(environment_in(images), EngineLaunch(("sh", "-c", script), ENV))
    with subprocess.Popen(
        [*who, *words], env=ENV, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "got\n"
    assert process.returncode == 9


def test_on_a_terminal_an_interrupt_reaches_the_command_once_and_a_stop_the_caller(images, who):
    script = (
        "n=0; trap 'n=$((n+1))' INT; echo ready; while [ $n = 0 ]; do sleep 0.05; done; sleep 0.2; echo got $n; exit 9"
    )
    words = find_engine("namespace").argv(environment_in(images), EngineLaunch(("sh", "-c", script), ENV))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe([*who, *words][0], [*who, *words], ENV)
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 100)
    os.write(terminal, b"\x1a")
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    os.killpg(pid, signal.SIGCONT)
    os.write(terminal, b"\x03")
    while True:
        try:
            part = os.read(terminal, 100)
        except OSError:
            break
        if not part:
            break
        seen += part
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert b"got 1" in seen
    os.close(terminal)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("victim", ["outside", "first inside"])
def test_nothing_is_left_when_a_process_of_the_engine_is_killed(images, who, place, kind, victim):
    image = place / "image"
    os.link(images / "root.sqsh", image) if kind == "squashfs" else image.symlink_to(images / "root")
    found = Environment("test", str(image), root=ContainerRoot(kind, str(image)), mounts=mounts(f"{place}:/there"))
    script = ["sh", "-c", "sleep 1234 & echo ready; sleep 1234"]
    words = find_engine("namespace").argv(found, EngineLaunch(tuple(script), ENV))
    with subprocess.Popen([*who, *words], env=ENV, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert any(place.name in line for line in left_behind(place.name))
        os.kill(process.pid if victim == "outside" else int(children[-1]), signal.SIGKILL)
        process.wait(30)
    assert process.returncode == (-signal.SIGKILL if victim == "outside" else 128 + signal.SIGKILL)
    _until(lambda: left_behind(place.name) == [])


def _until(true, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_unknown_flag_of_a_mount_is_refused_by_name(images):
    with pytest.raises(EngineError) as caught:
        find_engine("namespace").argv(environment_in(images, mounts=mounts("/tmp:/x:zz")), EngineLaunch(("true",), {}))
    assert "zz" in caught.value.given
    assert "ro" in caught.value.allowed


def test_an_image_that_was_not_looked_up_and_a_command_that_nobody_names_are_refused(images):
    engine = find_engine("namespace")
    with pytest.raises(EngineError, match="not been looked up"):
        engine.argv(Environment("x", "somewhere"), EngineLaunch(("true",), {}))
    with pytest.raises(EngineError, match="no command"):
        engine.argv(environment_in(images), EngineLaunch((), {}))
    named = environment_in(images, config=ImageConfig(command=("true",), entrypoint=("env",)), entrypoint=True)
    assert engine.argv(named, EngineLaunch((), {}))[-3:] == ["--", "env", "true"]


def test_the_engine_starts_without_the_rest_of_the_library(images):
    words = find_engine("namespace").argv(environment_in(images), EngineLaunch(("true",), ENV))
    heavy = {"json", "re", "typing", "dataclasses", "enum", "ctypes", "signal", "subprocess", "cordee.core.errors"}
    boot = words[4].replace("main(sys.argv[2:])", "import os; os.write(1, ' '.join(sys.modules).encode())")
    with_run = f"{boot}\nimport cordee.systems.environments.node.engines.namespace.run\nos.write(1, ' '.join(sys.modules).encode())"
    done = subprocess.run([*words[:4], with_run, words[5]], capture_output=True, text=True, check=True)
    assert heavy & set(done.stdout.split()) == set()
    assert words[0] == sys.executable
