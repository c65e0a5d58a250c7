"""Farms as they run: real supervisors, agents and tasks, ended by nobody or by SIGKILL."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cordee.core.errors import DocumentError, UsageError
from cordee.faces.cli.logs import command as logs_of
from cordee.job.submit.prepare import create_run, prepare
from cordee.job.terminal.run_args import state_of
from cordee.machine.inventory import read_slots
from cordee.machine.slots import SlotAllocator
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.systems.trials.farm_life import add_tasks, begin_again, follow, leave_tasks, retry_tasks, submit_run
from cordee.systems.trials.shown import Farm
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

# Writes when it begins and ends; of two at once of one task the second says so.
# A lock that is held has a code of its own: where a task is killed, its shell may live for a moment longer than its flock.
_TRACED = (
    "flock -n -E 9 {folder}/lock-$CORDEE_TASK_ID sh -c 'echo $CORDEE_TASK_ID begin >> {folder}/trace; sleep {seconds}; "
    "echo $CORDEE_TASK_ID end >> {folder}/trace'; code=$?; test $code -ne 9 || echo $CORDEE_TASK_ID twice >> {folder}/trace; exit $code"
)
_QUICK = {"timeouts__lost": 4.0, "timeouts__heartbeat": 0.2}


def farm_of(folder: Path, lines: list[str], **flags: object) -> LocalRun:
    job = folder / "job"
    job.mkdir()
    (job / "cordee.toml").write_text('name = "farm"\nrun = ["sh", "-c", "{line}"]\n[farm]\nfile = "tasks.txt"\n')
    (job / "tasks.txt").write_text("\n".join(lines) + "\n")
    return LocalRun(job, folder / "runs", reported=False, **{**_QUICK, **flags})


def ends_of(run: LocalRun) -> list[list[object]]:
    events = read_journal(run.folder.root / "tasks" / "journal")
    return [row for event in events if event["event"] == "tasks_ended" for row in event["ended"]]


@pytest.mark.gate
def test_each_line_is_run_once_and_what_became_of_it_is_known(tmp_path: Path) -> None:
    lines = [f"echo out-{number}; echo err >&2" for number in range(6)] + ["exit 3", "kill -9 $$", "no-such-command"]
    with farm_of(tmp_path, lines) as run:
        state = run.wait_end()
        farm = Farm(run.folder.root)
        assert farm.document("x") == {
            "schema": "cordee.farm/1",
            "run": "x",
            "tasks": 9,
            "done": 6,
            "failed": 3,
            "running": 0,
            "seconds": farm.seconds,
        }
        assert [(row["id"], row["code"], row["signal"]) for row in farm.rows("failed")] == [
            (6, 3, None),
            (7, None, "SIGKILL"),
            (8, 127, None),
        ]
        assert (state.state, state.exit_code, state.text) == ("failed", 1, "3 of 9 tasks failed")
        assert sorted(run.output(rank=4).splitlines()) == [b"err", b"out-4"]


@pytest.mark.gate
def test_each_task_has_checkpoints_of_its_own(tmp_path: Path) -> None:
    with farm_of(tmp_path, ["echo $CORDEE_CHECKPOINT_DIR $CORDEE_TASK_ID"] * 3) as run:
        assert run.wait_end().state == "finished"
        folders = [run.output(rank=number).decode().split() for number in range(3)]
        assert [Path(folder).name for folder, _ in folders] == [f"task-{number}" for _, number in folders]
        assert {Path(folder).parent for folder, _ in folders} == {run.folder.root / "checkpoints"}


def test_keys_that_lines_hold_or_tasks_print_are_shown_nowhere(tmp_path: Path) -> None:
    body = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
    wandb, token = "a3f90b1c2d4e5f60718293a4b5c6d7e8f9012345", "correct-horse"
    keys = [wandb, token, f"hf_{body[:34]}", f"ghp_{body}", "AKIAQ3EGRT5UZH7KWXYM", f"sk-proj-{body}", f"{body}{body}"]
    lines = [
        f"WANDB_API_KEY={wandb} sh -c 'echo $WANDB_API_KEY'; echo shown",
        f"python3 -c 'import sys; sys.exit(sys.argv[2])' --my-token {token}",
        *(f"echo {key}" for key in keys[2:6]),
        f"printf -- '-----BEGIN PRIVATE KEY-----\\n{body}{body}\\n-----END PRIVATE KEY-----\\n'",
        f"echo of another task: {token}",
    ]
    with farm_of(tmp_path, lines) as run:
        run.wait_end()
        assert all(key.encode() in run.output() for key in keys)
        shell = {**os.environ, "CORDEE_RUNS": str(tmp_path / "runs")}
        for command in ("logs last", "farm show last", "farm show last --json", "report last --json", "show last"):
            argv = [sys.executable, "-m", "cordee.faces.cli", *command.split()]
            done = subprocess.run(argv, env=shell, capture_output=True, text=True)
            shown = done.stdout.replace(f"of another task: {token}", "")
            assert done.stdout, done.stderr
            assert not [key for key in keys if key in shown], command
            assert "***" in shown or not command.startswith(("logs", "farm")), command
        page = (run.folder.root / "report" / "index.html").read_text()
        assert not [key for key in keys if key in page]


def test_tasks_have_cores_of_their_own_and_no_more_run_than_there_are(tmp_path: Path) -> None:
    ask = "python3 -c \"import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'], 'RANK' in os.environ)\""
    traced = _TRACED.format(folder=tmp_path, seconds=0.2)
    with farm_of(tmp_path, [ask, *[traced] * 6]) as run:
        assert run.wait_end().state == "finished"
        cores = len({tuple(row) for row in [json.loads(run.output(rank=0).split(b"] ")[0] + b"]")]})
        assert cores == 1
        assert run.output(rank=0).endswith(b" 1 False\n")
        most = running = 0
        for line in (tmp_path / "trace").read_text().splitlines():
            running += 1 if line.endswith("begin") else -1
            most = max(most, running)
        assert 1 <= most <= len(os.sched_getaffinity(0))


def test_a_task_is_tried_again_and_ended_when_its_time_is_over(tmp_path: Path) -> None:
    lines = [f"test -e {tmp_path}/there || {{ touch {tmp_path}/there; exit 1; }}", "#cordee time=1s", "sleep 60"]
    with farm_of(tmp_path, lines, farm__retries=1) as run:
        run.wait_end()
        first, second = Farm(run.folder.root).rows()
        assert (first["state"], first["tries"]) == ("done", 2)
        assert (second["state"], second["tries"], second["reason"]) == ("failed", 2, "deadline")
        assert 1 <= second["seconds"] < 5


@pytest.mark.parametrize("victim", ["agent local-0", "supervisor"])
@pytest.mark.gate
def test_what_ended_before_a_kill_stays_ended_and_what_ran_runs_on_or_again_alone(tmp_path: Path, victim: str) -> None:
    count = 16
    with farm_of(tmp_path, [_TRACED.format(folder=tmp_path, seconds=0.4)] * count) as run:
        deadline = time.monotonic() + 30
        while len(ends_of(run)) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        run.kill(victim)
        before = {row[0]: row[1] for row in ends_of(run)}
        assert len(before) >= 4
        assert run.wait_end().state == "finished"
        done = [row for row in ends_of(run) if row[2] == "done"]
        assert sorted(row[0] for row in done) == list(range(count))
        trace = (tmp_path / "trace").read_text().splitlines()
        assert not [line for line in trace if line.endswith("twice")]
        begun = Counter(line.split()[0] for line in trace if line.endswith("begin"))
        assert {task: begun[str(task)] for task in before} == dict.fromkeys(before, 1)
        assert max(begun.values()) == (1 if victim == "supervisor" else 2)
        assert run.processes() == []


def test_failed_tasks_are_run_again_and_others_are_added_to_a_farm_that_has_ended(tmp_path: Path) -> None:
    with farm_of(tmp_path, ["true", f"test -e {tmp_path}/there"]) as run:
        assert run.wait_end().state == "failed"
        (tmp_path / "there").touch()
        (tmp_path / "more.txt").write_text("true\ntrue\n")
        listed = f"echo new\ntest -e {tmp_path}/there\ntrue\ntrue\ntrue\n"
        (tmp_path / "job" / "tasks.txt").write_text(listed)
        assert add_tasks(run.folder, tmp_path / "more.txt") == (2, 1)
        leave_tasks(run.folder, "tasks_retried", tasks=[1])
        begin_again(run.folder)
        assert run.wait_end().state == "finished"
        assert [(row["id"], row["state"], row["tries"]) for row in Farm(run.folder.root).rows()] == [
            (0, "done", 1),
            (1, "done", 2),
            (2, "done", 1),
            (3, "done", 1),
        ]
        said = [one for one in run.state.findings if one.rule == "farm-file"]
        assert [one.text.split(",")[0] for one in said] == ["tasks.txt is another file than when this farm was made"]
        assert add_tasks(run.folder, tmp_path / "job" / "tasks.txt", only_new=True) == (1, 4)
        begin_again(run.folder)
        assert run.wait_end().state == "finished"
        rows = [(row["values"]["line"], row["tries"]) for row in Farm(run.folder.root).rows()]
        assert rows == [("true", 1), (f"test -e {tmp_path}/there", 2), ("true", 1), ("true", 1), ("echo new", 1)]
        assert [one for one in run.state.findings if one.rule == "farm-file"] == said
        with pytest.raises(UsageError, match="has all lines"):
            add_tasks(run.folder, tmp_path / "job" / "tasks.txt", only_new=True)
        (tmp_path / "array.sh").write_text("#!/bin/bash\n#SBATCH --array=0-3\ntrue\n")
        with pytest.raises(UsageError, match="array script cannot be added"):
            add_tasks(run.folder, tmp_path / "array.sh")


def test_a_task_that_could_not_end_in_time_is_not_started_and_the_job_does_not_wait_for_its_limit(
    tmp_path: Path,
) -> None:
    cores = len(SlotAllocator(read_slots).has.cores)
    lines = [f"#cordee cores={cores}", "sleep 3", f"#cordee cores={cores} time=13s", "true"]
    with farm_of(tmp_path, lines, need__time="17s", checkpoint__grace="2s") as run:
        state = run.wait_end()
        assert (state.state, state.reason) == ("failed", "time_limit")
        assert state.text == "of the tasks that are left, 1, none could end in the time that the job has left"
        assert [(row["state"], row["tries"]) for row in Farm(run.folder.root).rows()] == [("done", 1), ("waiting", 0)]


def test_tasks_that_fork_print_ignore_signals_or_eat_memory_harm_nobody_beside_them(tmp_path: Path) -> None:
    eats = f"{sys.executable} -c 'x = bytearray(300_000_000); x[::4096] = bytes(len(x[::4096]))'"
    bad = ["setsid sleep 300 & echo forked", "head -c 10000000 /dev/zero | tr '\\0' x", eats]
    lines = [*bad, *["true"] * 4, "#cordee time=1s", "trap '' TERM; setsid sleep 300 & sleep 300"]
    with farm_of(tmp_path, lines) as run:
        assert run.wait_end().text == "1 of 8 tasks failed"
        rows = Farm(run.folder.root).rows()
        assert [row["state"] for row in rows] == ["done"] * 7 + ["failed"]
        assert (rows[7]["reason"], rows[7]["tries"]) == ("deadline", 1)
        assert rows[2]["peak_bytes"] >= 300_000_000
        assert run.output(rank=0) == b"forked\n"
        assert len(run.output(rank=1)) == 10_000_000
        assert run.processes() == []


def test_a_thousand_tasks_that_fail_at_once_are_told_as_one_failure_and_each_by_itself(tmp_path: Path) -> None:
    with farm_of(tmp_path, ["exit 3"] * 1000) as run:
        assert run.wait_end().text == "1000 of 1000 tasks failed"
        assert len(run.state.findings) < 5
        assert {(row["code"], row["tries"]) for row in Farm(run.folder.root).rows("failed")} == {(3, 1)}
        assert sorted(row[0] for row in ends_of(run)) == list(range(1000))


def test_a_task_longer_than_any_job_of_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="asks for more time than a job of this run has") as error:
        farm_of(tmp_path, ["true", "#cordee time=30s", "true"], need__time="12s", checkpoint__grace="2s")
    assert (error.value.given, error.value.allowed) == ("30 s", "at most 10 s")


def test_failed_tasks_of_a_farm_over_jobs_run_again_where_they_lie_once_all_jobs_have_ended(tmp_path: Path) -> None:
    job, flag = tmp_path / "job", tmp_path / "flag"
    job.mkdir()
    (job / "cordee.toml").write_text(
        'name = "farm"\nrun = ["sh", "-c", "{line}"]\n[farm]\nfile = "tasks.txt"\njobs = 2\n'
    )
    (job / "tasks.txt").write_text(f"true\ntest -e {flag}\ntrue\n")
    folder = create_run(prepare(str(job), "local", {"vet.max_load": 1000.0}, tmp_path / "runs"))
    with pytest.raises(UsageError, match="have not all ended"):
        retry_tasks(folder, [1])
    submit_run(folder)
    assert follow(folder, quiet=True).state == "failed"
    (part,) = (one for one in (folder.root / "children").iterdir() if "part-2" in one.name)
    with pytest.raises(UsageError, match="one of the jobs of a farm"):
        retry_tasks(RunFolder(part), [1])
    flag.touch()
    retry_tasks(folder, [1])
    begin_again(folder)
    assert follow(folder, quiet=True).state == "finished"
    assert [(row["state"], row["tries"]) for row in Farm(folder.root).rows()] == [("done", 1), ("done", 2), ("done", 1)]


def test_a_farm_without_its_line_or_its_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="holds no task"):
        farm_of(tmp_path, ["# nothing"])
    (tmp_path / "job" / "cordee.toml").write_text('name = "farm"\nrun = "true"\n[farm]\nfile = "gone.txt"\n')
    with pytest.raises(DocumentError) as refused:
        LocalRun(tmp_path / "job", tmp_path / "runs")
    texts = [finding.text for finding in refused.value.findings]
    assert texts == [
        "the file of tasks cannot be read: No such file or directory",
        "every task would run the same command: run has no {line}",
    ]


def test_tasks_that_are_dealt_out_over_jobs_are_told_together_and_stay_as_they_are(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "cordee.toml").write_text(
        'name = "farm"\nrun = ["sh", "-c", "{line}"]\n[farm]\nfile = "tasks.txt"\njobs = 2\n'
    )
    (job / "tasks.txt").write_text("echo zero\nexit 3\ntrue\necho three\necho four\n")
    folder = create_run(prepare(str(job), "local", {"vet.max_load": 1000.0}, tmp_path / "runs"))
    submit_run(folder)
    deadline = time.monotonic() + 60
    while not state_of(folder).ended and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state_of(folder).state == "failed"
    farm = Farm(folder.root)
    assert [(row["id"], row["state"], row["tries"]) for row in farm.rows()] == [
        (0, "done", 1),
        (1, "failed", 1),
        (2, "done", 1),
        (3, "done", 1),
        (4, "done", 1),
    ]
    parts = [Farm(part).tasks for part in sorted((folder.root / "children").iterdir())]
    assert [[task.id for task in tasks] for tasks in parts] == [[0, 2, 4], [1, 3]]
    with pytest.raises(UsageError, match="stay as they are"):
        leave_tasks(folder, "tasks_retried", tasks=[1])

    def logs(*words: str) -> Result:
        return CliRunner().invoke(logs_of, [str(folder.root), *words])

    assert [logs("--rank", str(number)).output for number in range(5)] == ["zero\n", "", "", "three\n", "four\n"]
    assert logs("--rank", "3", "-f").output == "three\n"
    assert sorted(logs().output.split()) == ["four", "three", "zero"]
    assert len(json.loads(logs("--json", "-n", "2").output)["lines"]) == 2
    with pytest.raises(UsageError, match=f"cordee logs {folder.id}/part-1 -f"):
        CliRunner().invoke(logs_of, [str(folder.root), "-f"], catch_exceptions=False)
