"""Shared by all tests: what is real, what shares a worker, and that no test sees the settings of the person who runs it.

A test is *real* when it takes the fixture `real`, by itself, by `pytestmark = pytest.mark.usefixtures("real")`, or by a fixture that
does; `make test` runs those that are marked `gate`. A test that starts a real thing without it fails.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hypothesis
import pytest

# What contract suites assert says what it saw, as tests here do.
pytest.register_assert_rewrite("cordee.testing", "support")

if TYPE_CHECKING:
    from cordee.testing.htcondor import DisposablePool
    from cordee.testing.slurm import DisposableSlurm
    from support.open_python import OpenPython


ROOT = Path(__file__).parents[1]
DURATIONS = ROOT / "tests" / "durations.txt"
FAILED = pytest.StashKey[bool]()
# What makes a test a real one, by programs and modules on the command lines that it starts.
REAL_THINGS = frozenset(
    [
        "slurmctld",
        "slurmd",
        "condor_master",
        "slurmdbd",
        "mariadbd",
        "chromium",
        "podman",
        "buildah",
        "nginx",
        "sshd",
        "docker-registry",
        "mpirun",
        "cordee.control.keeper",
        "cordee.control.supervisor.supervisor",
        "cordee.control.agent.agent",
    ]
)
# `--quick` leaves out files that take longer.
QUICK_S = 1.5
# What a file takes that has no place there yet: those who write one see it run.
UNRECORDED_S = QUICK_S

# Where a person's Python may write no bytecode, each of the thousands of processes that tests start would compile all of it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What must pass before anything lands tries the same examples every time; other runs look for new ones. How long it takes decides nothing.
hypothesis.settings.register_profile(
    "examples",
    derandomize=bool(os.environ.get("CORDEE_FORBID_SKIPS")),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("examples")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--no-skips`; the variable CORDEE_FORBID_SKIPS=1 means the same."""
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=bool(os.environ.get("CORDEE_FORBID_SKIPS")),
        help="a test or module that is skipped or expected to fail is a failure",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help=f"leave out the files that take more than {QUICK_S:g} s, as {DURATIONS.relative_to(ROOT)} has them",
    )
    parser.addoption(
        "--list-failed",
        metavar="FILE",
        help="write the names of the tests that failed into FILE, a line each, once all tests have run",
    )
    parser.addoption(
        "--record-durations",
        action="store_true",
        help=f"write what the files of these tests took into {DURATIONS.relative_to(ROOT)}; on a machine with nothing else to do",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage when all tests are collected, and not again in them: next to nothing of them and their modules is."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what a fixture makes a real test."""
    if "real" in getattr(item, "fixturenames", ()):
        item.add_marker("real")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files that take longest in front, so that no worker ends long after the others (xdist is told not to reorder)."""
    seconds = recorded_durations()

    def takes(item: pytest.Item) -> float:
        return seconds.get(file_of(item.nodeid), UNRECORDED_S)

    items.sort(key=lambda item: -takes(item))
    if config.getoption("quick"):
        left_out = [item for item in items if takes(item) > QUICK_S]
        items[:] = [item for item in items if takes(item) <= QUICK_S]
        config.hook.pytest_deselected(items=left_out)


class SharedBy(NamedTuple):
    """Tests that one worker runs, so that there is one of what they bring on the machine, whatever else runs.

    Attributes:
        words: found in the file of a test, or in the page of the documentation that it follows.
        under: what the names of its files begin with.
    """

    name: str
    words: re.Pattern[str]
    under: str = ""


THE_SLURM = re.compile(r"\bdef [^\n]*\bslurm\b[,:)]|usefixtures\([^)]*\"slurm\"")
THE_POOL = re.compile(r"\bdef [^\n]*\bhtcondor\b[,:)]|usefixtures\([^)]*\"htcondor\"")
# Two of them: one worker would still be at it when the others have long been done.
SHARED = (
    SharedBy("the Slurm of tests/slurm", THE_SLURM, "tests/slurm/"),
    SharedBy("the Slurm of all others", THE_SLURM),
    SharedBy("a Slurm of its own", re.compile(r"\bDisposableSlurm\([^)]|cordee testing slurm up")),
    SharedBy("the HTCondor pool", THE_POOL),
    SharedBy("a browser", re.compile(r"\bimport [^\n]*\bchromium\b")),
)
PAGE = re.compile(r"test_docs\.py::\w*page\w*\[([\w.-]+\.md)\]")


@functools.cache
def scope_of(name: str) -> str:
    """Return what the tests that one worker runs one after the other have in common: a file, a page, or something shared.

    Args:
        name: a file of tests, or a test that follows a page.
    """
    page = PAGE.search(name)
    places = (ROOT / page[1], *(ROOT / "docs").rglob(page[1])) if page else (ROOT / name,)
    text = next((path.read_text(errors="replace") for path in places if path.exists()), "")
    return next((one.name for one in SHARED if name.startswith(one.under) and one.words.search(text)), name)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Let files share a worker where they share a thing, and pages of the documentation none."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid if PAGE.search(nodeid) else file_of(nodeid))

    return Scheduler(config, log) if config.getoption("dist") == "loadfile" else None


def recorded_durations() -> dict[str, float]:
    """Return the seconds that each file of tests took when they were last recorded, by its path."""
    text = DURATIONS.read_text() if DURATIONS.exists() else ""
    lines = (line.split() for line in text.splitlines())
    return {path: float(seconds) for seconds, path in lines}


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class DurationRecorder:
    """Adds up what the tests of each file take, and keeps it in the file of durations."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = file_of(report.nodeid)
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        known = {path: seconds for path, seconds in recorded_durations().items() if (ROOT / path).exists()}
        found = sorted((known | self._seconds).items(), key=lambda pair: (-round(pair[1], 1), pair[0]))
        DURATIONS.write_text("".join(f"{seconds:.1f} {path}\n" for path, seconds in found))


class FailureLister:
    """Keeps the names of tests that failed, for who runs them once more; a run that was cut short leaves no list."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._names[report.nodeid] = None

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED:
            self._path.write_text("".join(f"{name}\n" for name in self._names))


def pytest_configure(config: pytest.Config) -> None:
    """Record durations and failures if asked, and let children take signals that this process was started to ignore, as under nohup."""
    if config.getoption("record_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationRecorder())
    listed = config.getoption("list_failed")
    if listed and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureLister(Path(listed)))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            # A handler ends with exec, what is ignored does not.
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session")
def real() -> None:
    """What brings a real thing, and takes a second or more, takes this: a process of Cordée's own, Slurm, a browser, an engine, torch."""


STARTED: list[str] = []
"""Words of the command lines that the test that runs has started."""


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        words = arguments[1]
        STARTED.extend(words.split() if isinstance(words, str) else map(os.fsdecode, words))


sys.addaudithook(_listen)


@pytest.fixture(scope="session")
def _interpreters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `python` and `python3` themselves: what a version manager puts in their place takes longer than they do."""
    folder = tmp_path_factory.mktemp("interpreters")
    for name in ("python", "python3"):
        (folder / name).symlink_to(os.path.realpath(sys.executable))
    return folder


@pytest.fixture(autouse=True)
def _clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, _interpreters: Path
) -> None:
    monkeypatch.setenv("PATH", str(_interpreters), prepend=os.pathsep)
    for name in list(os.environ):
        if name.startswith("CORDEE_") and name not in ("CORDEE_FORBID_SKIPS", "CORDEE_SLURM_SUITE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))


@pytest.fixture(scope="session")
def _cluster(real: None) -> Iterator[DisposableSlurm]:
    from cordee.testing.slurm import DisposableSlurm

    # A short name: Slurm has sockets below it.
    folder = Path(tempfile.mkdtemp(prefix="cordee-slurm-"))
    with DisposableSlurm(folder, gpus=4, settings={"SlurmdTimeout": "15", "MessageTimeout": "10"}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _pool(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DisposablePool]:
    from cordee.testing.htcondor import DisposablePool

    folder = Path(tempfile.mkdtemp(prefix="cordee-htcondor-"))
    with DisposablePool(folder, hidden=[tmp_path_factory.getbasetemp()]) as pool:
        yield pool


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with nothing but the node side, compiled: what every first run in a new one would do."""
    from cordee.job.submit.bundle import write_node_zip

    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("XDG_CACHE_HOME", str(folder))
        write_node_zip(folder / "node.zip")
    (folder / "node.zip").unlink()
    return folder


@pytest.fixture
def slurm(
    _cluster: DisposableSlurm,
    compiled: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[DisposableSlurm]:
    """A real Slurm of four healthy, idle nodes with 8 CPUs and 4 GPUs each, which the environment leads to."""
    from cordee.testing.slurm.daemons import clean_environment

    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    for name, value in _cluster.env.items():
        monkeypatch.setenv(name, value)
    # What Slurm said in another test is no answer in this one.
    shutil.copytree(compiled, tmp_path / "cache", dirs_exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _cluster.heal()
    yield _cluster
    if request.node.stash.get(FAILED, False):
        print(_cluster.words())
    _cluster.heal()
    _cluster.clear()


@pytest.fixture
def htcondor(
    _pool: DisposablePool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[DisposablePool]:
    """A real HTCondor pool of two healthy, idle machines with 2 CPUs each, which the environment leads to.

    Its jobs see nothing below the folders that tests write to: what they need has to travel.
    """
    for name in list(os.environ):
        if name.upper().startswith(("CONDOR_", "_CONDOR_")):
            monkeypatch.delenv(name)
    for name, value in _pool.env.items():
        monkeypatch.setenv(name, value)
    _pool.heal()
    yield _pool
    if request.node.stash.get(FAILED, False):
        print(_pool.words())
    _pool.heal()
    _pool.clear()


@pytest.fixture(scope="session")
def open_to_all() -> Iterator[OpenPython]:
    """A Python with Cordée for tests that act as another user, who cannot read a closed home."""
    from support.open_python import open_python

    with open_python() as opened:
        yield opened


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fake NVML library, compiled once; `FakeGpus(tmp_path, library=fake_nvml)` makes GPUs."""
    from support.nvml import build

    return build(tmp_path_factory.mktemp("fake-nvml"))


@pytest.fixture(scope="session")
def _fake_nvml_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.nvml import build

    name = "libcordee-fake-nvml.so"
    return build(tmp_path_factory.mktemp("fake-nvml-apart"), name) / name


@pytest.fixture
def fake_library(_fake_nvml_built: Path, tmp_path: Path) -> str:
    """The path of a fake NVML that only this test's process has loaded, under a name that is not NVML's own."""
    return str(shutil.copy(_fake_nvml_built, tmp_path / _fake_nvml_built.name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """Make a failure of a test that is real without saying so, and of a skipped or expected-to-fail one when skips are forbidden."""
    report = yield
    told = next((word for word in STARTED if os.path.basename(word) in REAL_THINGS), None)
    if call.when == "teardown":
        STARTED.clear()
    elif report.passed and told and not item.get_closest_marker("real"):
        report.outcome, report.longrepr = "failed", f"it takes no fixture `real`, and started {told}"
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    expected = getattr(report, "wasxfail", None)
    if item.config.getoption("no_skips") and (report.skipped or expected is not None):
        reason = f"expected to fail: {expected}" if expected is not None else f"skipped: {report.longrepr[2]}"
        report.outcome, report.longrepr = "failed", f"skips are forbidden; {reason}"
        if expected is not None:
            del report.wasxfail
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Make a failure of a module that skips itself when skips are forbidden."""
    report = yield
    if collector.config.getoption("no_skips") and report.skipped:
        report.outcome, report.longrepr = "failed", f"skips are forbidden; skipped: {report.longrepr[2]}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _servers_of_other_tests_are_spared() -> Iterator[None]:
    """Who runs tasks ends what else lies below its process: in pytest's own that would be the servers of other tests.

    For the whole session, since fixtures of modules run tasks, too.
    """
    from cordee.machine.processes.tree import all_processes
    from cordee.machine.tasks.task import TaskRunner

    begin = TaskRunner.__init__

    def begin_and_spare(self: TaskRunner, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        self.spared |= {process.pid for process in all_processes().values() if process.parent == os.getpid()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskRunner, "__init__", begin_and_spare)
        yield
