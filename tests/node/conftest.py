"""An agent ends whatever below it is no task of its own; here it lives in pytest's process, with servers of other tests."""

from __future__ import annotations

import os
from typing import Any

import pytest

from cordee.node.processes import all_processes
from cordee.node.tasks import TaskRunner


@pytest.fixture(autouse=True)
def _what_other_tests_have_started_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {process.pid for process in all_processes().values() if process.parent == os.getpid()}
    begin = TaskRunner.__init__

    def begin_and_spare(self: TaskRunner, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        self.spared |= there

    monkeypatch.setattr(TaskRunner, "__init__", begin_and_spare)
