"""`cordee advise` on runs of this machine."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("real")

NO_RETRIES = "[restart]\nretries = 0"


@pytest.mark.gate
def test_a_script_that_raised_is_named_and_the_code_is_1(cordee):
    cordee.job(script="raise ValueError('bad shape')", toml=NO_RETRIES)
    cordee("run")
    done = cordee("advise")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].endswith(": it failed because the script raised ValueError: bad shape")
    document = cordee.json("advise", "last", code=1)
    assert (document["schema"], document["state"]) == ("cordee.advise/1", "failed")
    assert document["facts"]["output"][-1] == "ValueError: bad shape"
    assert document["facts"]["disks"][0]["free_bytes"] > 0


def test_a_run_that_finished_has_nothing_to_advise(cordee):
    cordee.job(steps=2)
    cordee("run")
    assert cordee.json("advise")["verdict"] == "it finished; nothing to advise"


def test_a_run_that_goes_on_has_nothing_to_advise(cordee):
    cordee.job(steps=10_000, pause=0.1)
    cordee("run", "--detach")
    assert cordee.json("advise")["state"] in ("starting", "running")


def test_a_rank_killed_from_outside_is_not_put_down_to_the_script(cordee):
    cordee.job(script="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", toml=NO_RETRIES)
    cordee("run")
    assert cordee.json("advise", code=1)["findings"][0]["rule"] in ("killed", "memory")


def test_setup_lines_that_fail_are_named(cordee):
    cordee.job(toml='setup = ["no-such-command --now"]')
    cordee("run")
    document = cordee.json("advise", code=1)
    assert document["findings"][0]["rule"] == "vetting-setup"
    assert "no-such-command" in document["findings"][1]["text"]


def test_a_time_limit_proposes_a_longer_one(cordee):
    cordee.job(steps=1000, pause=0.1, toml='[need]\ntime = "3s"')
    cordee("run")
    finding = cordee.json("advise", code=1)["findings"][0]
    assert finding["evidence"]["change"] == {"need.time": "6s"}


def test_a_run_that_is_not_there_is_a_wrong_command(cordee):
    assert cordee.json("advise", "nothing", code=2)["error"]["kind"] == "run_not_found"
