"""This machine keeps the contract of the submit seam."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.errors import SubmitError
from cordee.node import processes
from cordee.runs.folder import RunFolder
from cordee.submit import Submitter, submitter
from cordee.submit.prepare import create_run, prepare
from cordee.testing.submitting import Site, SubmitterContract


class LocalSite(Site):
    """This machine: a run is held while its keeper lives."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.folders = folder, []
        job = folder / "job"
        job.mkdir()
        (job / "train.py").write_text("import time\ntime.sleep(1000)\n")
        (job / "cordee.toml").write_text('name = "t"\nrun = "python train.py"\nvet.max_load = 1000.0\n')

    def submitter(self) -> Submitter:
        return submitter("local")

    def run(self) -> tuple[RunFolder, dict[str, Any]]:
        prepared = prepare(str(self.folder / "job"), "local", {}, self.folder / "runs")
        self.folders.append(create_run(prepared))
        return self.folders[-1], prepared.plan.document()

    def held(self, folder: RunFolder) -> int:
        return len([pid for pid in processes.all_processes() if is_keeper_of(pid, folder)])


def is_keeper_of(pid: int, folder: RunFolder) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    return "cordee.supervise.keeper" in words and str(folder.root) in words


@pytest.mark.slow
class TestLocal(SubmitterContract):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[LocalSite]:
        site = LocalSite(tmp_path)
        yield site
        for folder in site.folders:
            for _ in range(2):
                site.submitter().cancel(folder)

    def test_a_keeper_that_cannot_start_is_an_error_with_its_log(self, site: LocalSite) -> None:
        folder, plan = site.run()
        (folder.control / "keepers").write_text("in the way")
        with pytest.raises(SubmitError) as caught:
            site.submitter().submit(folder, plan)
        assert "keeper.log" in caught.value.next
