"""Shared by all tests: skips can be forbidden, and no test sees the settings of the person who runs it."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cordee.testing.slurm import DisposableSlurm


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--no-skips`; the variable CORDEE_FORBID_SKIPS=1 means the same."""
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=bool(os.environ.get("CORDEE_FORBID_SKIPS")),
        help="a test or module that is skipped or expected to fail is a failure",
    )


def pytest_configure() -> None:
    """Have interrupts back where the shell in front of the tests, in the background, ignores them: so would all children."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
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


@pytest.fixture
def slurm(_cluster: DisposableSlurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DisposableSlurm]:
    """A real Slurm of four healthy, idle nodes with 8 CPUs and 4 GPUs each, which the environment leads to."""
    from cordee.testing.slurm.daemons import clean_environment

    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    for name, value in _cluster.env.items():
        monkeypatch.setenv(name, value)
    # What Slurm said in another test is no answer in this one.
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
