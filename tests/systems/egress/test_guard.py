"""The site's command for root, in a network namespace of its own: it counts exactly, cuts off at once, and gives back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.systems.egress.node import guard

GUARDED = Path(__file__).with_name("guarded.sh")


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_job_is_counted_cut_off_and_let_go():
    if os.geteuid() != 0:  # nftables and control groups are root's
        refused = subprocess.run([sys.executable, guard.__file__, "revoke", "node"], capture_output=True, check=False)
        assert (refused.returncode, b"you must be root" in refused.stderr) == (1, True)
        return
    folder = Path(__file__).parent
    command = ["unshare", "-n", "bash", str(GUARDED), sys.executable, guard.__file__, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    counted = json.loads(told["counted"])["destinations"]["198.51.100.2"]
    assert 2_000_000 <= counted[0] <= 2_000_000 * 1.05
    assert int(told["revoked-sent"]) == 0
    assert int(told["restored-sent"]) > 0
    assert json.loads(told["held"])["revoked"]["t7"] > 0
    assert int(told["node-sent"]) == 0
    assert json.loads(told["after"]) == {"counted": [], "revoked": {}}
    assert "nothing is revoked for t7" in done.stderr
    assert int(told["user-sent"]) > 100_000
    assert "all that user 65534 does on this node" in told["user-revoked"]
    assert int(told["user-revoked-sent"]) == 0
    assert "no process of Slurm's job 89 runs here" in done.stderr


def processes(folder, told):
    """Make a folder as /proc, of (pid, parent, user, command, control group)."""
    for pid, parent, user, command, group in told:
        (folder / str(pid)).mkdir(parents=True)
        (folder / str(pid) / "cmdline").write_bytes(command.encode() + b"\0")
        (folder / str(pid) / "status").write_text(f"Name:\tx\nPPid:\t{parent}\nUid:\t{user}\t{user}\t{user}\t{user}\n")
        (folder / str(pid) / "cgroup").write_text(f"4:memory:/slurm\n0::{group}\n")
    return str(folder)


def test_the_processes_of_slurm_tell_which_groups_and_users_a_job_has(tmp_path):
    scope = "/system.slice/slurmstepd.scope"
    proc = processes(
        tmp_path,
        [
            (10, 1, 0, "slurmstepd: [7.batch]", f"{scope}/job_7/step_batch/slurm"),
            (11, 10, 1000, "bash", f"{scope}/job_7/step_batch/user/task_0"),
            (12, 11, 1000, "python", f"{scope}/job_7/step_batch/user/task_0"),
            (20, 1, 0, "slurmstepd: [77.0]", "/"),
            (21, 20, 1001, "python", "/"),
            (30, 1, 1002, "slurmstepd: [77.0]", "/"),  # a user's own, which only says so
            (31, 30, 1002, "python", "/job_77"),
            (40, 1, 0, "slurmstepd: [8.0]", "/"),
            (41, 40, 0, "python", "/"),
        ],
    )
    assert guard.slurm_job("7", proc) == ({f"{scope}/job_7"}, {1000})
    assert guard.slurm_job("77", proc) == (set(), {1001})
    for job, said in (("8", "is root's"), ("9", "no process")):
        with pytest.raises(guard.GuardError, match=said):
            guard.slurm_job(job, proc)


@pytest.fixture
def tree(tmp_path):
    for folder in ("system.slice/job_7", "unified/slurm/job_8"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "cgroup.procs").write_text("")
        (tmp_path / folder / "cgroup.events").write_text("")
    return str(tmp_path)


def test_a_control_group_is_found_in_both_layouts(tree):
    assert guard.matched("/system.slice/job_7", tree) == 'socket cgroupv2 level 2 "system.slice/job_7"'
    assert guard.matched("/slurm/job_8", tree) == 'socket cgroupv2 level 2 "unified/slurm/job_8"'
    assert guard.matched(f"{tree}/unified/slurm/job_8", tree) == 'socket cgroupv2 level 2 "unified/slurm/job_8"'


@pytest.mark.parametrize("given", ["", "/", "../x", "a//b", 'a"b', "a/./b", "not/there"])
def test_what_is_no_control_group_is_refused(tree, given):
    with pytest.raises(guard.GuardError):
        guard.matched(given, tree)


@pytest.mark.parametrize("words", [["revoke"], ["count", "a;b", "/x"], ["nothing"]])
def test_wrong_words_end_with_2(words):
    with pytest.raises(SystemExit) as ended:
        guard.main(words)
    assert ended.value.code == 2


def test_a_network_to_keep_must_be_one():
    with pytest.raises(guard.GuardError):
        guard._kept("10.0.0.0/8 accept; flush ruleset")
    assert guard._kept("10.0.0.1/8") == "ip daddr 10.0.0.0/8 accept"
