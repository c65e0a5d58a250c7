"""Names that installed commands, compiled plug-ins, batch scripts and runs of earlier versions carry."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from cordee.control.pinned import module_of
from cordee.job.submit.bundle import write_node_zip
from cordee.runs.folder import RunFolder

STARTED = {
    "cordee.control.keeper": "cordee.supervise.keeper",
    "cordee.control.supervisor.supervisor": "cordee.supervise.supervisor",
    "cordee.control.agent.agent": "cordee.node.agent",
}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path, "a-run")


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("cordee.cli", "usage"),
        ("cordee.node.record", "usage"),
        ("cordee.environment.spank_render", "there is no edf --help"),
        ("cordee.environment.spank.hold", "the plugin is gone"),
    ],
)
def test_what_others_start_by_an_earlier_name_is_what_it_was(module, says):
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, input="")
    assert says in (done.stdout + done.stderr).lower()


def test_scripts_may_call_the_layout_of_their_ranks_their_place():
    import cordee

    assert cordee.place is cordee.layout


def test_a_check_of_ones_own_finds_what_it_is_made_from():
    from cordee.checks import Check, Result
    from cordee.systems.vetting.node import checks

    assert (Check, Result) == (checks.Check, checks.Result)


@pytest.mark.parametrize("module", STARTED)
def test_a_run_of_an_earlier_version_is_started_by_the_names_that_it_holds(folder, module):
    earlier = STARTED[module]
    with zipfile.ZipFile(folder.node_zip, "w") as archive:
        archive.writestr(f"{earlier.replace('.', '/')}.py", "")
    assert module_of(folder, module) == earlier


@pytest.mark.parametrize("module", STARTED)
def test_a_run_of_this_version_is_started_by_the_names_of_today(folder, module):
    assert module_of(folder, module) == module  # nothing can be read yet
    write_node_zip(folder.node_zip)
    assert module_of(folder, module) == module
    with zipfile.ZipFile(folder.node_zip) as archive:
        assert f"{module.replace('.', '/')}.py" in archive.namelist()
