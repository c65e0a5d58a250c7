"""The container of a node: opened once, entered by all, ended with its agent. The engine here is a small shell script."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cordee.control.agent.enclosure import AgentSurroundings, Enclosure, EnclosureDown
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import Task, TaskExit, TaskRunner
from cordee.runs.plan import Checkpoints, RunEnvironment, RunPlan, RunSampling, RunStep, RunTasks, RunTimeouts
from cordee.systems.environments.node.container import NodeContainer
from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment
from cordee.systems.environments.node.engines import ENGINES
from cordee.systems.environments.node.engines._base import CONTAINER_SCHEMA, Engine, MissingCapability
from cordee.systems.environments.node.mounts import with_own_mounts
from cordee.wire import messages

ENTER = ["/bin/sh", "-c", 'cd "$2" && shift 3 && exec "$@"', "enter"]
UP = f"""
import json, sys
print("words beside the answer", file=sys.stderr)
print(json.dumps({{"schema": "{CONTAINER_SCHEMA}", "enter": {ENTER!r}}}), flush=True)
sys.stdin.read()
"""
BROKEN = f"""
import json
error = {{"text": "no overlay here", "next": "another engine"}}
print(json.dumps({{"schema": "{CONTAINER_SCHEMA}", "error": error}}))
raise SystemExit(125)
"""
SILENT = "raise SystemExit('it broke')"
HANGING = "import sys; sys.stdin.read()"

# What has it is killed where a task ends: no other process of this machine, as of another test, may have the same.
OWNER = f"run-{os.getpid()}/node/1"


class ScriptEngine(Engine):
    """Holds nothing, by a script that `NodeUnderTest` chooses."""

    name = "script"
    script = UP
    lacks: list[MissingCapability] = []
    held: list[Environment] = []

    def missing(self, environment: Environment) -> list[MissingCapability]:
        return self.lacks

    def hold(self, environment: Environment) -> list[str]:
        self.held.append(environment)
        return [sys.executable, "-c", self.script]


class NodeUnderTest:
    """A container with the parts of an agent that it needs."""

    def __init__(self, tmp_path: Path, argv: list[str], **environment: Any) -> None:
        self.sent: list[Any] = []
        self.gone = 0
        watched = WatchedTasks(lambda **told: TaskRunner(OWNER, **told))
        self.tasks, self.start = watched.tasks, watched.run_task
        self.folder = tmp_path / "runs/r"
        (tmp_path / "job").mkdir()
        self.folder.mkdir(parents=True)
        document = Environment("e", root=ContainerRoot("folder", "/"), **environment).document()
        job, checkpoints = str(tmp_path / "job"), Checkpoints(str(tmp_path / "job/checkpoints"))
        step = RunStep(RunTasks(tuple(argv), {}), checkpoints, environment=RunEnvironment("script", document))
        timeouts = RunTimeouts(60.0, 1.0, 10.0, 60.0, 2.0, 6.0)
        plan = RunPlan("r", "local", job, job, str(self.folder), (step,), timeouts, RunSampling(1.0))
        own = [str(self.folder)]
        self.around = AgentSurroundings(plan, own, watched, self.sent.append, lambda *said: None, self._lost)
        self.container = NodeContainer(self.around)

    def _lost(self) -> None:
        self.gone += 1

    async def open(self, deadline_s: float = 20.0) -> messages.ContainerDone:
        self.container.handlers[messages.Container](messages.Container("1", deadline_s), b"")
        return await self.told(messages.ContainerDone)

    async def told(self, kind: type) -> Any:
        deadline = time.monotonic() + 120
        while not any(isinstance(message, kind) for message in self.sent):
            assert time.monotonic() < deadline, self.sent
            await asyncio.sleep(0.01)
        found = next(message for message in self.sent if isinstance(message, kind))
        self.sent.remove(found)
        return found


@pytest.fixture(autouse=True)
def script_engine(monkeypatch: pytest.MonkeyPatch) -> type[ScriptEngine]:
    monkeypatch.setitem(ENGINES, "script", f"{__name__}:ScriptEngine")
    monkeypatch.setattr(ScriptEngine, "held", [])
    return ScriptEngine


def with_node(tmp_path: Path, during: Any, argv: tuple[str, ...] = ("true",), **environment: Any) -> None:
    async def live() -> None:
        node = NodeUnderTest(tmp_path, list(argv), **environment)
        try:
            await during(node)
        finally:
            await node.container.close()
            assert node.tasks.running() == []
            node.tasks.kill_everything()

    asyncio.run(live())


@pytest.mark.usefixtures("real")
def test_commands_run_inside_from_the_moment_the_engine_says_that_it_is_up(tmp_path):
    async def during(node):
        with pytest.raises(EnclosureDown):
            node.container.wrap(["pwd"])
        done = await node.open()
        assert (done.status, done.text) == ("pass", "")
        argv = node.container.wrap(["sh", "-c", "pwd"])
        assert argv[-6:-3] == ("--workdir", str(tmp_path / "job"), "--")
        ended: asyncio.Future[TaskExit] = asyncio.get_running_loop().create_future()
        node.start(Task("t", argv, dict(os.environ), "/"), ended.set_result)
        assert (await ended).code == 0

    with_node(tmp_path, during)


def test_a_container_that_is_open_is_not_opened_again(tmp_path, script_engine):
    async def during(node):
        await node.open()
        await node.open()
        assert len(script_engine.held) == 1

    with_node(tmp_path, during)


def test_the_workdir_of_the_edf_goes_before_that_of_the_job(tmp_path):
    async def during(node):
        await node.open()
        assert node.container.wrap(["x"])[-3:] == ("/usr", "--", "x")

    with_node(tmp_path, during, workdir="/usr")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (BROKEN, "no overlay here (another engine)"),
        (SILENT, "the container did not come up: exit code 1: it broke"),
        (HANGING, "the container was not up within 0.5 s"),
    ],
    ids=["error", "silent", "hanging"],
)
def test_a_container_that_does_not_come_up_is_told_with_its_reason(tmp_path, monkeypatch, script, words):
    monkeypatch.setattr(ScriptEngine, "script", script)

    async def during(node):
        done = await node.open(0.5 if script == HANGING else 20)
        assert (done.status, done.text) == ("fail", words)

    with_node(tmp_path, during)


def test_a_machine_that_lacks_something_is_told_before_anything_starts(tmp_path, monkeypatch, script_engine):
    lack = MissingCapability("user-namespaces", "they are switched off", "engine = podman")
    monkeypatch.setattr(ScriptEngine, "lacks", [lack])

    async def during(node):
        done = await node.open()
        text = "the engine script cannot run here: user-namespaces: they are switched off (engine = podman)"
        assert (done.status, done.text, script_engine.held) == ("fail", text, [])

    with_node(tmp_path, during)


def test_a_container_that_ends_by_itself_is_told_and_opened_again_at_most_three_times(tmp_path):
    async def during(node):
        for count in (1, 2, 3):
            assert (await node.open()).status == "pass"
            os.kill(node.tasks.pid("container"), 9)
            lost = await node.told(messages.ContainerLost)
            assert lost.text == "its container ended: ended by SIGKILL" == node.container.lost
            assert node.gone == count
            with pytest.raises(EnclosureDown, match="SIGKILL"):
                node.container.wrap(["true"])
        done = await node.open()
        assert done.status == "fail"
        assert "3 times within an hour" in done.text

    with_node(tmp_path, during)


def test_what_is_no_part_of_the_container_outlives_it(tmp_path):
    keeper = subprocess.Popen(["sleep", "600"])

    async def during(node):
        node.tasks.spared.add(keeper.pid)
        await node.open()
        node.tasks.stop("container", 5.0)
        await node.told(messages.ContainerLost)
        ended: asyncio.Future[TaskExit] = asyncio.get_running_loop().create_future()
        node.start(Task("t", ("true",), dict(os.environ), "/"), ended.set_result)
        await ended

    try:
        with_node(tmp_path, during)
        assert keeper.poll() is None
    finally:
        keeper.kill()
        keeper.wait()


def test_an_image_without_python_runs_python3_instead(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)

    async def during(node):
        await node.open()
        assert node.container.wrap_rank(["python", "train.py"])[-2:] == ("python3", "train.py")
        assert node.container.wrap_rank(["./python", "x"])[-2:] == ("./python", "x")

    with_node(tmp_path, during, argv=("python", "train.py"), env={"PATH": str(folder)})


def test_without_an_environment_nothing_stands_in_front_of_a_command(tmp_path):
    async def during(node):
        host = Enclosure(node.around)
        assert host.wrap_rank(["python", "x"]) == ("python", "x")
        assert host.wrap(["a"]) == ("a",)
        assert host.cwd == host.workdir == str(tmp_path / "job")
        assert (await node.open()).status == "pass"

    with_node(tmp_path, during)


def test_folders_of_the_run_are_mounted_at_their_own_paths_unless_they_are_there(tmp_path):
    for name in ("run", "job/checkpoints", "shared/run2", "elsewhere", "readonly"):
        (tmp_path / name).mkdir(parents=True)
    at = {name: str(tmp_path / name) for name in ("run", "job", "shared", "elsewhere", "readonly")}
    edf = (
        ContainerMount(at["shared"], at["shared"]),
        ContainerMount("/opt", at["elsewhere"]),
        ContainerMount(at["readonly"], at["readonly"], ("ro",)),
    )
    environment = Environment("e", mounts=edf, root=ContainerRoot("folder", "/image"))
    paths = [at["run"], f"{at['job']}/checkpoints", at["job"], f"{at['shared']}/run2", at["elsewhere"], "/not/there"]
    mounts = with_own_mounts(environment, paths).mounts
    assert mounts == (*edf, ContainerMount(at["job"], at["job"]), ContainerMount(at["run"], at["run"]))
    below = f"{at['readonly']}/run"
    Path(below).mkdir()
    assert with_own_mounts(environment, [below]).mounts[-1] == ContainerMount(below, below)


def test_on_the_hosts_own_root_only_what_the_edf_covers_is_mounted(tmp_path):
    (tmp_path / "run").mkdir()
    host = Environment("e", root=ContainerRoot("host"))
    assert with_own_mounts(host, [str(tmp_path / "run")]).mounts == ()
    covered = Environment("e", mounts=(ContainerMount("/opt", str(tmp_path)),), root=ContainerRoot("host"))
    run = str(tmp_path / "run")
    assert with_own_mounts(covered, [run]).mounts == (ContainerMount("/opt", str(tmp_path)), ContainerMount(run, run))


def test_the_answer_of_the_engine_is_found_among_other_lines(tmp_path, monkeypatch):
    noisy = f"""
import json, sys
print("loading"); print(json.dumps({{"schema": "other"}}))
print(json.dumps({{"schema": "{CONTAINER_SCHEMA}", "enter": {json.dumps(ENTER)}}}), flush=True)
sys.stdin.read()
"""
    monkeypatch.setattr(ScriptEngine, "script", noisy)

    async def during(node):
        assert (await node.open()).status == "pass"

    with_node(tmp_path, during)
