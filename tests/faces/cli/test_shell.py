"""Where `cordee shell` may open: what is typed can be read between hosts, unless the profile trusts the network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cordee.control.identity import agent_file, identity
from cordee.core.errors import UsageError
from cordee.faces.cli.shell import way_to
from cordee.runs.folder import RunFolder

HERE = identity()
ELSEWHERE = {**HERE, "host": "nid000009"}
OTHER_BOOT = {**HERE, "boot": "another machine of the same name"}


def a_run(place: Path, owner: Any, agents: dict[str, Any], backend: str = "slurm", **plan: Any) -> RunFolder:
    folder = RunFolder(place / "t-20261122T134308Z-zddd")
    (folder.control / "epochs/1").mkdir(parents=True)
    folder.plan.write_text(json.dumps({"schema": "cordee.plan/1", "backend": backend, **plan}))
    if owner is not None:
        (folder.control / "epochs/1/owner.json").write_text(json.dumps(owner))
    for node, record in agents.items():
        agent_file(folder, node).write_text(json.dumps(record))
    return folder


def test_a_shell_opens_on_the_host_that_it_is_typed_on(tmp_path):
    folder = a_run(tmp_path, HERE, {"n0": ELSEWHERE, "n1": HERE, "n2": HERE})
    assert way_to(folder, ["n0", "n1", "n2"], "n2") == "n2"
    assert way_to(folder, ["n0", "n1", "n2"], None) == "n1"


@pytest.mark.parametrize(
    ("owner", "agent"),
    [(HERE, ELSEWHERE), (ELSEWHERE, HERE), (HERE, OTHER_BOOT), (OTHER_BOOT, HERE), (HERE, {}), ({}, HERE)],
)
@pytest.mark.parametrize("node", ["n0", None])
def test_a_way_over_another_host_or_an_unknown_one_is_refused(tmp_path, owner, agent, node):
    folder = a_run(tmp_path, owner, {"n0": agent})
    with pytest.raises(UsageError) as refused:
        way_to(folder, ["n0"], node)
    assert node is None or node in refused.value.given
    assert "this host" in refused.value.allowed
    assert "network_trusted = true" in refused.value.next


def test_a_trusted_network_and_a_run_on_one_machine_leave_the_choice_to_the_supervisor(tmp_path):
    trusted = a_run(tmp_path / "a", ELSEWHERE, {"n0": ELSEWHERE}, network_trusted=True)
    assert (way_to(trusted, ["n0"], "n0"), way_to(trusted, ["n0"], None)) == ("n0", None)
    assert way_to(a_run(tmp_path / "b", None, {}, backend="local"), [], "local-0") == "local-0"
