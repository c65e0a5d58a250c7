"""Every place keeps the contract of the submit seam: this machine, Slurm's recorded answers, a real Slurm, and a real pool of HTCondor."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.core.errors import SubmitError
from cordee.testing.htcondor import DisposablePool
from cordee.testing.slurm import DisposableSlurm
from cordee.testing.submitting import SchedulerContract, SubmitterContract, wait_for

from .sites import FakeSlurmSite, LocalSite, RealCondorSite, RealSlurmSite

pytestmark = pytest.mark.usefixtures("real")


@pytest.mark.gate
class TestLocal(SubmitterContract):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[LocalSite]:
        site = LocalSite(tmp_path)
        yield site
        for folder in site.folders:
            for _ in range(2):
                site.submitter().cancel(folder)

    def test_a_keeper_that_cannot_start_is_an_error_with_its_log(self, site):
        folder, plan = site.run()
        (folder.control / "keepers").write_text("in the way")
        with pytest.raises(SubmitError) as caught:
            site.submitter().submit(folder, plan)
        assert "keeper.log" in caught.value.next


class TestFakeSlurm(SchedulerContract):
    @pytest.fixture(params=["works", "disabled", "missing"])
    def site(self, request, tmp_path, monkeypatch, compiled) -> FakeSlurmSite:
        shutil.copytree(compiled, tmp_path / "cache")
        return FakeSlurmSite(tmp_path, monkeypatch, accounting=request.param)

    def test_a_job_that_the_controller_has_forgotten_is_gone(self, site):
        folder, plan = site.run()
        site.submitter().submit(folder, plan)
        wait_for(site, folder, "running")
        site.forget()
        assert site.submitter().standing(folder, age_s=0).state == "gone"

    def test_an_id_that_was_given_to_another_run_says_nothing_of_this_one(self, site):
        folder, plan = site.run()
        job = site.submitter().submit(folder, plan)
        wait_for(site, folder, "running")
        jobs = site.jobs()
        jobs[job]["comment"] = "cordee:another"
        (site.state / "jobs.json").write_text(json.dumps(jobs))
        assert site.submitter().standing(folder, age_s=0).state == "gone"

    def test_while_the_controller_is_away_the_accounting_knows_what_runs(self, site):
        folder, plan = site.run()
        site.submitter().submit(folder, plan)
        with site.controller_away():
            state = site.submitter().standing(folder, age_s=0).state
        assert state == ("running" if site.accounting == "works" else "unknown")


class TestRealSlurm(SchedulerContract):
    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: DisposableSlurm) -> Iterator[RealSlurmSite]:
        # What cleans up behind the test asks without the recorder.
        with monkeypatch.context() as changed:
            yield RealSlurmSite(tmp_path, changed, slurm)


class TestRealHTCondor(SchedulerContract):
    @pytest.fixture
    def site(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, htcondor: DisposablePool
    ) -> Iterator[RealCondorSite]:
        with monkeypatch.context() as changed:
            yield RealCondorSite(tmp_path, changed, htcondor)
