"""The kind of MPI that a job names is held against what srun has; the words are those of Slurm 22.05."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.core.findings import Finding

LIST = """\
MPI plugin types are...
	pmix
	none
	pmi2
specific pmix plugin versions available: pmix_v4
"""
JOB = 'name = "a"\nrun = "python train.py"\nlaunch = "srun"\n[slurm]\nmpi = "{mpi}"\n'


@pytest.fixture
def findings(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Finding]]:
    """Return what is said of MPI about a document, on a cluster whose srun prints LIST."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "srun").write_text(f"#!/bin/sh\ncat <<'END'\n{LIST}END\n")
    (tools / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "local.toml").write_text('name = "local"\nscheduler = "slurm"\n')
    return lambda text: [found for found in make(text)[2] if found.rule in ("no-mpi", "no-meaning")]


@pytest.mark.parametrize("mpi", ["pmix", "pmi2", "pmix_v4"])
def test_a_kind_that_srun_lists_is_fine(findings, mpi: str) -> None:
    assert findings(JOB.format(mpi=mpi)) == []


def test_another_kind_is_refused_with_the_nearest(findings) -> None:
    (found,) = findings(JOB.format(mpi="pmi22"))
    assert (found.severity, found.rule, found.line, found.given) == ("error", "no-mpi", 5, "pmi22")
    assert found.allowed == ["pmix", "none", "pmi2", "pmix_v4"]
    assert found.next == "did you mean pmi2?"


def test_where_srun_does_not_answer_nothing_is_known(findings, tmp_path: Path) -> None:
    (tmp_path / "tools" / "srun").write_text("#!/bin/sh\necho 'srun: fatal: Could not establish' >&2\nexit 1\n")
    assert findings(JOB.format(mpi="pmi3")) == []


def test_without_srun_it_has_no_meaning(findings) -> None:
    (found,) = findings(JOB.replace("srun", "fork").format(mpi="pmix"))
    assert (found.severity, found.rule, found.line) == ("info", "no-meaning", 5)
