"""Shared by all tests: skips can be forbidden, and no test sees the settings of the person who runs it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from cordee.testing.slurm import DisposableSlurm


# What must pass before anything lands tries the same examples every time; other runs look for new ones.
hypothesis.settings.register_profile("landing", derandomize=True)
if os.environ.get("CORDEE_FORBID_SKIPS"):
    hypothesis.settings.load_profile("landing")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--no-skips`; the variable CORDEE_FORBID_SKIPS=1 means the same."""
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=bool(os.environ.get("CORDEE_FORBID_SKIPS")),
        help="a test or module that is skipped or expected to fail is a failure",
    )


# Files with tests that wait for daemons, time-outs and training, longest first. They are begun first (xdist is told not to
# reorder): what is short and needs the cores fills up the rest of the time, and no worker ends long after the others. What
# measures nodes comes before all others, while the cores have little to do.
LONGEST = (
    "tests/slurm/test_vetting.py",
    "tests/vetting/test_pairing.py",
    "tests/slurm/test_runs.py",
    "tests/slurm/test_faults.py",
    "tests/web/test_heat_map.py",
    "tests/slurm/test_frameworks.py",
    "tests/vetting/test_faults.py",
    "tests/submit/test_contract.py",
    "tests/test_docs.py",
    "tests/supervise/test_faults.py",
    "tests/vetting/test_standalone.py",
    "tests/supervise/test_life.py",
    "tests/testing/test_disposable_slurm.py",
    "tests/test_install.py",
    "tests/slurm/test_char_gpt.py",
    "tests/checkpoint/test_save.py",
    "tests/client/adapters/test_real_libraries.py",
    "tests/slurm/test_advise.py",
    "tests/data/dataset/test_training.py",
    "tests/environment/test_demo.py",
    "tests/slurm/test_faces.py",
    "tests/web/test_pages.py",
    "tests/supervise/test_vetting.py",
    "tests/supervise/test_environment_runs.py",
    "tests/spec/test_prepared.py",
    "tests/cli/test_terminal.py",
    "tests/fleet/test_act_on_slurm.py",
    "tests/slurm/test_spank.py",
    "tests/slurm/test_vet.py",
    "tests/checks/test_compute.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest in front."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def pytest_configure() -> None:
    """Let children take signals that this process was started to ignore, as in the background and under nohup."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            # A handler ends with exec, what is ignored does not.
            signal.signal(number, lambda *_: None)


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
        if name.startswith("CORDEE_") and name != "CORDEE_FORBID_SKIPS":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))


@pytest.fixture(scope="session")
def _cluster() -> Iterator[DisposableSlurm]:
    from cordee.testing.slurm import DisposableSlurm

    # A short name: Slurm has sockets below it.
    folder = Path(tempfile.mkdtemp(prefix="cordee-slurm-"))
    with DisposableSlurm(folder, gpus=4, settings={"SlurmdTimeout": "15", "MessageTimeout": "10"}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with nothing but the node side, compiled: what every first run in a new one would do."""
    from cordee.submit.bundle import write_node_zip

    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("XDG_CACHE_HOME", str(folder))
        write_node_zip(folder / "node.zip")
    (folder / "node.zip").unlink()
    return folder


@pytest.fixture
def slurm(
    _cluster: DisposableSlurm, compiled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
    _cluster.heal()
    _cluster.clear()


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fake NVML library, compiled once; `FakeGpus(tmp_path, library=fake_nvml)` makes GPUs."""
    from cordee.testing.nvml import build

    return build(tmp_path_factory.mktemp("fake-nvml"))


@pytest.fixture(scope="session")
def _fake_nvml_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from cordee.testing.nvml import build

    name = "libcordee-fake-nvml.so"
    return build(tmp_path_factory.mktemp("fake-nvml-apart"), name) / name


@pytest.fixture
def fake_library(_fake_nvml_built: Path, tmp_path: Path) -> str:
    """The path of a fake NVML that only this test's process has loaded, under a name that is not NVML's own."""
    return str(shutil.copy(_fake_nvml_built, tmp_path / _fake_nvml_built.name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Make a failure of a skipped or expected-to-fail test when skips are forbidden."""
    report = yield
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
