"""Shared by all tests: skips can be forbidden, and no test sees the settings of the person who runs it."""

from __future__ import annotations

import os

import pytest

_skipped: list[str] = []


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in list(os.environ):
        if name.startswith("CORDEE_") and name != "CORDEE_FORBID_SKIPS":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what was skipped or expected to fail."""
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the session when something was skipped and skips are forbidden."""
    if _skipped and os.environ.get("CORDEE_FORBID_SKIPS") and not hasattr(session.config, "workerinput"):
        print("\nskips are forbidden:", *_skipped, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
