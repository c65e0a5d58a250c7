"""One container held by the namespace engine for many commands."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EXIT_ENGINE, enter_argv
from cordee.testing.containers import ENV, environment_in, left_behind, mounts

KINDS = ["folder", "squashfs"]


class Held:
    """A container that is open."""

    def __init__(self, who: Sequence[str], holder: subprocess.Popen[bytes], said: dict[str, Any]) -> None:
        self.who = who
        self.holder = holder
        self.said = said

    def words(self, *argv: str, workdir: str = "/") -> list[str]:
        return [*self.who, *enter_argv(self.said["enter"], argv, workdir)]

    def run(self, *argv: str, workdir: str = "/", env: dict[str, str] = ENV) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*argv, workdir=workdir), env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )


@contextmanager
def held(who: Sequence[str], environment: Environment) -> Iterator[Held]:
    words = find_engine("namespace").hold(environment)
    with subprocess.Popen([*who, *words], env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        yield Held(who, holder, json.loads(holder.stdout.readline()))
        if not holder.stdin.closed:
            holder.stdin.close()


@pytest.mark.parametrize("kind", [*KINDS, "host"])
def test_commands_enter_as_the_same_process_and_share_what_they_write(images, who, place, kind):
    found = environment_in(images, kind, mounts=mounts(f"{place}:/mnt"))
    with held(who, found) as box:
        assert box.said["schema"] == "cordee.container/1"
        first = subprocess.Popen(box.words("sh", "-c", "echo $$ > /mnt/pid; exit 5"), env=ENV)
        assert first.wait() == 5
        assert int((place / "pid").read_text()) == first.pid
        if kind != "host":
            assert box.run("sh", "-c", "echo shared > /opt/x || echo shared > $HOME/x").returncode == 0
            assert box.run("sh", "-c", "cat /opt/x || cat $HOME/x").stdout == "shared\n"
    assert box.holder.returncode == 0
    assert left_behind(place.name) == []


def test_the_environment_the_folder_and_the_groups_of_processes_stay(images, who):
    odd = {**ENV, "ODD": "a\nb'\"", "EMPTY": ""}
    with held(who, environment_in(images)) as box:
        done = box.run("env", "-0", env=odd)
        assert dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair) == odd
        assert box.run("pwd", workdir="/usr/bin").stdout == "/usr/bin\n"
        uid = box.run("id", "-u").stdout.strip()
        assert uid == ("1000" if who else "0")
        assert os.readlink("/proc/self/ns/pid") in box.run("readlink", "/proc/self/ns/pid").stdout


def test_failures_to_enter_are_told_apart(images, who):
    with held(who, environment_in(images)) as box:
        assert box.run("no-such").returncode == 127
        assert box.run("/etc/passwd").returncode == 126
        nowhere = box.run("true", workdir="/no/such")
        assert (nowhere.returncode, "/no/such" in nowhere.stderr) == (EXIT_ENGINE, True)
        assert box.run("sh", "-c", "kill -9 $$").returncode == -signal.SIGKILL
    gone = box.run("true")
    assert gone.returncode == EXIT_ENGINE
    assert "the container is gone" in gone.stderr


@pytest.mark.usefixtures("real")
def test_sixty_four_ranks_share_one_container(images, who):
    kind = "squashfs" if who else "folder"
    with held(who, environment_in(images, kind)) as box, ThreadPoolExecutor(16) as pool:
        spaces = list(pool.map(lambda _: box.run("readlink", "/proc/self/ns/mnt").stdout, range(64)))
    assert len(set(spaces)) == 1
    assert spaces[0].startswith("mnt:")
    assert os.readlink("/proc/self/ns/mnt") not in spaces[0]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["stdin closed", "SIGTERM", "SIGKILL"])
def test_the_container_and_what_runs_in_it_end_with_the_holder(images, who, place, kind, how):
    found = environment_in(images, kind, mounts=mounts(f"{place}:/mnt"))
    with held(who, found) as box:
        rank = subprocess.Popen(box.words("sh", "-c", "touch /mnt/up; sleep 4321"), env=ENV)
        _until(lambda: (place / "up").exists())
        if how == "stdin closed":
            box.holder.stdin.close()
        else:
            box.holder.send_signal(getattr(signal, how))
        # What serves a user's squashfs file ends with a holder that is killed: a rank may miss a page of its program first.
        gone = {-signal.SIGKILL} if how == "stdin closed" else {-signal.SIGKILL, -signal.SIGBUS}
        assert rank.wait(30) in gone
        box.holder.wait(30)
    _until(lambda: left_behind(place.name) == [])


def test_the_signal_that_ends_a_rank_with_its_parent_is_kept(images, who):
    ask = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value)"
    with held(who, environment_in(images, "host")) as box:
        words = [
            "setpriv",
            "--pdeathsig",
            "USR1",
            *enter_argv(box.said["enter"], [box.said["enter"][0], "-c", ask], "/"),
        ]
        done = subprocess.run([*who, *words], env=ENV, capture_output=True, text=True, check=True)
    assert int(done.stdout) == signal.SIGUSR1


def test_a_container_that_cannot_be_had_is_said_as_a_document(images, who, place):
    for fields, given in (({"workdir": "/no/such"}, "/no/such"), ({"mounts": mounts(f"{place}/no:/x")}, f"{place}/no")):
        with held(who, environment_in(images, **fields)) as box:
            assert box.said["error"]["given"] == given
            assert box.said["error"]["next"]
            assert box.said["error"]["kind"] == "environment"
        assert box.holder.returncode == EXIT_ENGINE
    assert left_behind(place.name) == []


def test_plain_records_say_the_same_for_programs_without_json(images, who, place):
    found = environment_in(
        images,
        workdir="/usr",
        env={"A": "from edf\nsecond line", "GONE": ""},
        config=ImageConfig(env={"A": "image", "B": "from image", "GONE": "image"}),
    )
    (place / "document.json").write_text(json.dumps(found.document()))
    words = [*find_engine("namespace").hold(found)[:6], "hold", "--plain", "--document", str(place / "document.json")]
    with subprocess.Popen([*who, *words], env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        said = b""
        while not said.endswith(b"\0\0"):
            said += os.read(holder.stdout.fileno(), 4096)
        records = said[:-2].decode().split("\0")
        assert records[:3] == [f"pid={holder.pid}", f"user={int(bool(who))}", "workdir=/usr"]
        assert sorted(records[3:]) == ["env A=from edf\nsecond line", "env B=from image", "unset GONE"]
        holder.stdin.close()


def test_plain_records_say_what_is_wrong(images, who, place):
    (place / "document.json").write_text('{"schema": "other/1"}')
    words = [*find_engine("namespace").hold(environment_in(images))[:6], "hold", "--plain", "--document"]
    for path in (place / "document.json", place / "missing.json"):
        done = subprocess.run([*who, *words, str(path)], env=ENV, capture_output=True, stdin=subprocess.DEVNULL)
        assert done.returncode == EXIT_ENGINE
        assert done.stdout.startswith(b"error ")
        assert done.stdout.endswith(b"\0\0")


def _until(true: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, left_behind(str(Path("/tmp/cordee-engine-")))
        time.sleep(0.02)


def test_the_number_of_a_namespace_stays_taken_while_a_process_outside_looks_for_it(images, who):
    with held(who, environment_in(images)) as box:
        space = box.run("readlink", "/proc/self/ns/mnt").stdout.strip()
        links = map(Path, glob.glob("/proc/[0-9]*/fd/*"))  # passes over processes that end meanwhile
        watches = [link for link in links if _target(link) == space and _target(link.parents[1] / "ns/mnt") != space]
        assert len(watches) == 1


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""
