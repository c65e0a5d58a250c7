"""A run from its first to its last line, on real processes."""

from __future__ import annotations

import fcntl
import json
import os

import pytest

from cordee.faces.cli.cancel import cancel
from cordee.runs.journal import client_journal
from cordee.runs.news import NewsReader
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

TWO = "[need]\nnodes = 2"


@pytest.mark.gate
def test_two_nodes_run_and_finish_and_leave_nothing(job, start):
    run = start(job(toml=TWO), reported=True)
    state = run.wait_end()
    assert (state.state, state.exit_code, state.restarts, state.segments) == ("finished", 0, 0, 1)
    assert [node.verdict for node in state.nodes] == ["healthy", "healthy"]
    assert state.step == 19
    assert state.total == 20
    assert b"counted to 20" in run.output(0)
    assert run.processes() == []
    news = NewsReader(run.folder.root).read()
    assert news is not None
    assert news.ending
    assert news.journal == len((run.folder.journal / "supervisor-1.jsonl").read_text().splitlines())


def test_ranks_see_the_whole_world(job, start):
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    run = start(job(script, TWO, run="python train.py"), need__ranks_per_node=2)
    run.wait_end()
    worlds = [json.loads(run.output(rank)) for rank in range(4)]
    assert [world["RANK"] for world in worlds] == ["0", "1", "2", "3"]
    assert [world["LOCAL_RANK"] for world in worlds] == ["0", "1", "0", "1"]
    assert {world["WORLD_SIZE"] for world in worlds} == {"4"}
    assert {world["LOCAL_WORLD_SIZE"] for world in worlds} == {"2"}
    assert [world["GROUP_RANK"] for world in worlds] == ["0", "0", "1", "1"]
    assert len({world["MASTER_PORT"] for world in worlds}) == 1
    assert int(worlds[0]["MASTER_PORT"]) < 32768
    assert worlds[3]["JAX_PROCESS_ID"] == "3"
    assert json.loads(worlds[2]["TF_CONFIG"])["task"]["index"] == 2
    assert worlds[1]["CORDEE_RUN_DIR"] == str(run.folder.root)
    assert "token" not in json.dumps(worlds)


def test_of_128_ranks_on_a_node_each_ends_in_its_own_time(job, start, tmp_path):
    waits = f'[ "$RANK" -lt 10 ] || flock -s {tmp_path}/gate true; echo done'
    with open(tmp_path / "gate", "wb") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        run = start(job(run=["sh", "-c", waits]), need__ranks_per_node=128)
        state = run.wait(lambda state: sum(rank.status == "exited" for rank in state.ranks) >= 10)
        assert {rank.rank for rank in state.ranks if rank.status == "exited"} == set(range(10))
    state = run.wait_end()
    assert (state.state, state.exit_code, state.restarts) == ("finished", 0, 0), state.text
    assert run.output() == b"done\n" * 128


@pytest.mark.gate
def test_a_failing_rank_ends_the_run_with_its_code_and_message(job, start):
    script = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit('no data here')\ntime.sleep(60)"
    run = start(job(script, TWO, run="python train.py"), restart__retries=0)
    state = run.wait_end()
    assert (state.state, state.exit_code) == ("failed", 1)
    assert [(failure["rank"], failure["code"]) for failure in state.failures] == [(1, 1)]
    assert "no data here" in state.text
    assert "rank 1 on local-1" in state.text


def test_the_same_failure_twice_is_a_crash_loop_and_not_repeated(job, start):
    run = start(job("raise ValueError('step 17 is bad')", run="python train.py"), restart__retries=50)
    state = run.wait_end()
    assert state.reason == "crash_loop"
    assert state.restarts == 1
    assert "ValueError: step 17 is bad" in state.text
    assert run.events("crash_loop")[0]["rank"] == 0


def test_a_checkpoint_that_is_written_again_is_no_progress(job, start):
    script = (
        "import os, pathlib, sys\nfolder = pathlib.Path('checkpoints')\nfolder.mkdir(exist_ok=True)\n"
        "(folder / 'step-7').write_text(os.environ['CORDEE_ATTEMPT'])\nraise ValueError('it always fails')"
    )
    toml = '[checkpoint]\npath = "checkpoints"\npattern = "step-*"\nresume = "--resume {checkpoint}"'
    state = start(job(script, toml, run="python train.py"), restart__retries=50).wait_end()
    assert (state.reason, state.restarts) == ("crash_loop", 1)


def test_a_command_that_vanishes_before_it_starts_says_so(job, start, tmp_path):
    folder = job()
    tool = folder / "tool"
    tool.write_text("#!/bin/sh\nexit 7\n")
    tool.chmod(0o755)
    (folder / "cordee.toml").write_text('name = "t"\nrun = ["./tool"]\n')
    with LocalRun(folder, tmp_path / "runs", restart__retries=0) as run:
        state = run.wait_end()
    assert (state.state, state.exit_code) == ("failed", 7)
    run = LocalRun(folder, tmp_path / "runs")
    tool.chmod(0o644)
    with run:
        state = run.wait_end()
    assert (state.reason, state.exit_code, state.restarts) == ("not_started", 126, 0)
    tool.chmod(0o755)
    run = LocalRun(folder, tmp_path / "runs")
    tool.unlink()
    with run:
        state = run.wait_end()
    assert (state.reason, state.exit_code, state.restarts) == ("not_started", 127, 0)
    assert "cannot start './tool'" in state.text


@pytest.mark.gate
def test_set_up_lines_reach_the_ranks(job, start):
    script = "import os; print(os.environ['FROM_SETUP'], os.environ['MULTI'])"
    lines = 'setup = ["export FROM_SETUP=yes", "MULTI=$(printf \'a b\')\\nexport MULTI"]'
    run = start(job(script, lines, run="python train.py"))
    assert run.wait_end().state == "finished"
    assert run.output(0) == b"yes a b\n"


def test_a_failing_set_up_line_ends_the_run_by_vetting_with_its_words(job, start):
    run = start(job(toml='setup = ["echo ready", "nonexistent-module load cuda"]'))
    state = run.wait_end()
    assert state.reason == "vetting"
    assert "set-up line 2 ended with exit code 127" in state.text


def test_a_set_up_line_that_ends_the_shell_is_refused_as_ranks_would_have_no_environment(job, start):
    state = start(job(toml='setup = ["export A=1", "exit 0"]')).wait_end()
    assert state.reason == "vetting"
    assert "set-up line 2 of 2 ended the shell with exit code 0" in state.text


def test_a_node_that_lacks_a_module_is_bad_and_the_run_is_aborted(job, start):
    run = start(job(toml='[vet]\nmodules = ["json", "no_such_module"]\ncommands = ["bash"]'))
    state = run.wait_end()
    assert state.reason == "vetting"
    assert "no_such_module" in state.text
    assert {result["check"] for result in state.nodes[0].results} >= {"host.modules", "host.commands", "host.disk"}


def test_ten_megabytes_in_one_line_and_binary_output_are_kept(job, start):
    script = (
        "import os, sys\nout = sys.stdout.buffer\n"
        "out.write(bytes(range(256)) * 16)\nout.write(b'x' * 10_000_000)\nout.write(b'\\n')\nout.flush()\n"
        "sys.stderr.buffer.write(b'\\xff\\xfe bad \\x00 utf-8\\n')"
    )
    run = start(job(script, run="python train.py"))
    assert run.wait_end().state == "finished"
    output = run.output(0)
    assert bytes(range(256)) * 16 in output
    assert output.count(b"x") >= 10_000_000
    assert b"\xff\xfe bad \x00 utf-8\n" in output


@pytest.mark.gate
def test_ranks_that_ignore_sigterm_and_fork_daemons_leave_nothing(job, start):
    script = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
subprocess.Popen(["sleep", "613"], start_new_session=True, env={})
print("ready", flush=True)
time.sleep(1 if os.environ["RANK"] == "0" else 600)
sys.exit(3)
"""
    run = start(job(script, TWO, run="python train.py"), restart__retries=0)
    state = run.wait_end()
    assert state.exit_code == 3
    assert run.processes() == []
    table = os.popen("ps -eo args").read()
    assert "sleep 613" not in table


def test_a_kill_is_told_as_one_whatever_the_rank_printed_before(job, start):
    script = (
        "import os, sys\nprint('wandb: Syncing run calm-sea-3', file=sys.stderr, flush=True)\nos.kill(os.getpid(), 9)"
    )
    state = start(job(script, run="python train.py"), restart__retries=0).wait_end()
    assert state.text.endswith("rank 0 on local-0 was ended by SIGKILL")


@pytest.mark.gate
def test_cancel_lets_ranks_stop_at_one_agreed_step(job, start):
    run = start(job(toml=TWO, run="python train.py 100000 0.01"))
    run.wait(lambda state: (state.step or 0) > 5)
    from cordee.faces.cli.follow import request_cancel

    request_cancel(run.folder, by="the test")
    state = run.wait_end()
    assert state.state == "cancelled"
    agreed = run.events("stop_agreed")[0]["step"]
    for rank in (0, 1):
        assert f"stopped at {agreed}".encode() in run.output(rank)
    assert state.checkpoint == f"step-{agreed + 1:06d}"


@pytest.mark.gate
def test_a_time_limit_stops_in_time_and_resume_goes_on(job, start):
    run = start(job(run="python train.py 100000 0.01"), need__time="4s", checkpoint__grace="2s")
    state = run.wait_end()
    assert (state.state, state.reason) == ("failed", "time_limit")
    assert state.checkpoint is not None


@pytest.mark.gate
def test_resume_goes_on_from_the_newest_checkpoint_in_a_new_segment(job, start):
    folder = job(run="python train.py 60 0.1")
    run = start(folder)
    run.wait(lambda state: state.checkpoint is not None)
    cancel(run.folder, now=True, wait_s=30)
    run.wait_end()
    client_journal(run.folder.journal).append("resume_requested")
    run.start()
    run.wait(lambda state: state.segments == 2)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2)
    assert state.resume_step
    assert b"counted to 60" in run.output(0)


def test_a_run_that_had_run_and_is_cancelled_before_it_is_led_again_does_not_say_that_it_never_started(job, start):
    run = start(job(run="python train.py 60 0.1"))
    run.wait(lambda state: state.checkpoint is not None)
    cancel(run.folder, now=True, wait_s=30)
    run.wait_end()
    client_journal(run.folder.journal).append("resume_requested")
    client_journal(run.folder.journal).append("cancel_requested", by="you")
    run.start()
    state = run.wait_end()
    assert (state.state, state.text) == ("cancelled", "cancelled before it went on")
