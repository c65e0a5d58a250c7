"""Every back end keeps the contract of the seam: this machine, a real Slurm, a real pool of HTCondor, and one that is not Cordée's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.testing.backends import BackendContract, QueueContract
from cordee.testing.htcondor import DisposablePool
from cordee.testing.slurm import DisposableSlurm

from .sites import OUTSIDE, CondorSite, LocalSite, SlurmSite, SpoolSite, spool_environment

pytestmark = pytest.mark.usefixtures("real")


@pytest.mark.gate
class TestLocal(BackendContract):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[LocalSite]:
        site = LocalSite(tmp_path)
        yield site
        site.end()


class TestSlurm(QueueContract):
    @pytest.fixture
    def site(self, tmp_path: Path, slurm: DisposableSlurm) -> Iterator[SlurmSite]:
        site = SlurmSite(tmp_path, slurm)
        yield site
        site.end()


class TestHTCondor(QueueContract):
    @pytest.fixture
    def site(self, tmp_path: Path, htcondor: DisposablePool) -> Iterator[CondorSite]:
        site = CondorSite(tmp_path, htcondor)
        yield site
        site.end()


class TestOfOthers(QueueContract):
    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SpoolSite]:
        monkeypatch.syspath_prepend(str(OUTSIDE))
        for name, value in spool_environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        site = SpoolSite(tmp_path, dict(os.environ))
        yield site
        site.end()
