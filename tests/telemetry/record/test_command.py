"""What a command sees of being recorded: nothing. And what is left of it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios

import numpy as np
import pytest

import cordee
from cordee.machine.processes.tree import is_same_process, read_process
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.testing.patience import wait_until


def test_exit_code_input_and_output_pass_through_byte_for_byte(record, recording):
    process = record("--", "sh", "-c", "cat; echo words >&2; exit 42")
    out, said = process.communicate("a\0b\nend")
    assert (process.returncode, out) == (42, "a\0b\nend")
    shown = "cordee: recording into recording; then: cordee score recording\nwords\n"
    assert said == shown
    (recorder,) = recording.closed()
    (rank,) = recorder.ranks
    assert (rank.pid, rank.exit_code, rank.argv[0]) == (process.pid, 42, "sh")


def test_the_command_has_the_environment_files_and_signals_it_would_have_had(record):
    seen = (
        "import json, os; print(json.dumps([open('/proc/self/environ').read().split(chr(0)), "
        "sorted(os.listdir('/proc/self/fd')), [line for line in open('/proc/self/status') if line[:6] == 'SigBlk'], "
        "os.getpgid(0), os.getsid(0), os.getcwd()]))"
    )
    program = [sys.executable, "-I", "-S", "-c", seen]
    plain = subprocess.run(program, capture_output=True, text=True, check=True, cwd=record.folder, env={**os.environ})
    variables, *others = json.loads(record("-q", "--", *program).communicate()[0])
    expected, *without = json.loads(plain.stdout)
    assert [one for one in variables if not one.startswith("CORDEE_CHANNEL=")] == expected
    assert others == without


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_the_command_itself(record, recording, number):
    process = record("-q", "--", "sleep", "60")
    recording.until(lambda found: found and found[0].ranks)
    process.send_signal(number)
    assert process.wait() == -number
    (recorder,) = recording.closed()
    assert recorder.ranks[0].signal == number


def test_a_killed_command_leaves_all_samples_that_were_taken(record, recording):
    process = record("-q", "--interval", "100ms", "--", sys.executable, "-c", "while True: pass")
    taken = recording.measured("rank-0.1s", "cpu_cores_ratio")
    process.kill()
    recording.closed()
    grid = cordee.open_run(recording.root).grid("rank-0.1s", ["cpu_cores_ratio"])
    assert grid.devices == [0]
    assert list(grid.times[: len(taken.times)]) == list(taken.times)
    np.testing.assert_array_equal(grid.values[:, : len(taken.times)], taken.values)


def test_a_killed_sampler_leaves_what_it_has_written_and_harms_nobody(record, recording):
    process = record("-q", "--interval", "100ms", "--", "sh", "-c", "read line; exit 5")
    (recorder,) = recording.until(lambda found: found and found[0].ranks)
    recording.sampled("rank-0.1s", 1)
    os.kill(recorder.pid, signal.SIGKILL)
    process.communicate("go on\n")
    assert process.returncode == 5
    assert cordee.open_run(recording.root).groups() == ["node-0.1s", "rank-0.1s"]
    assert recording.recorders()[0].ended_at is None


def test_the_sampler_is_not_the_commands_child_and_holds_none_of_its_files(record, recording):
    process = record("-q", "--", "sh", "-c", "echo $$; read line; wait")
    pid = int(process.stdout.readline())
    assert pid == process.pid
    (recorder,) = recording.until(lambda found: found and found[0].ranks)
    sampler = read_process(recorder.pid)
    assert sampler.session == sampler.group != os.getsid(0)
    assert sampler.parent != pid
    held = {os.readlink(f"/proc/{recorder.pid}/fd/{name}") for name in ("0", "1", "2")}
    assert held == {"/dev/null"}
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(recorder.pid, number)
    process.communicate("\n")
    recording.closed()
    assert not is_same_process(recorder.pid, sampler.start_ticks) or recording.recorders()[0].ended_at


def test_a_terminal_stays_the_commands(record, recording):
    control, terminal = pty.openpty()
    # The kernel ends it: Python's own handler misses a signal that comes just before `input` begins to wait.
    talk = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
        "print(sys.stdin.isatty(), os.tcgetpgrp(0) == os.getpgid(0), flush=True); input()"
    )
    process = record(
        "-q", "--", sys.executable, "-c", talk, stdin=terminal, stdout=terminal, stderr=terminal,
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    while b"\n" not in shown:
        shown += os.read(control, 100)
    assert shown.split() == [b"True", b"True"]
    os.write(control, b"\x03")  # Ctrl-C
    assert process.wait() == -signal.SIGINT
    (recorder,) = recording.closed()
    assert recorder.ranks[0].signal == signal.SIGINT
    os.close(control)


def test_ranks_of_one_start_share_one_recording_and_one_sampler(record, recording):
    world = {"WORLD_SIZE": "3", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    ranks = [record("--", "sh", "-c", f"read line; exit {rank}", env={**world, "RANK": str(rank)}) for rank in range(3)]
    (recorder,) = recording.until(lambda found: found and len(found[0].ranks) == 3)
    said = [process.communicate("\n")[1] for process in ranks]
    assert [bool(text) for text in said] == [True, False, False]
    (recorder,) = recording.closed()
    assert sorted((rank.rank, rank.exit_code) for rank in recorder.ranks) == [(0, 0), (1, 1), (2, 2)]
    assert recorder.world_size == 3


def test_what_the_command_logs_is_in_the_recording(record, recording):
    script = "import cordee\nfor step in range(3): cordee.log(step=step, tokens=100.0)"
    process = record("--", sys.executable, "-c", script)
    assert process.communicate()[1].count("\n") == 1
    recording.closed()
    run = cordee.open_run(recording.root)
    assert run.events("tokens")["tokens"]["value"].tolist() == [100.0] * 3
    channel = record("--", "sh", "-c", "echo $CORDEE_CHANNEL", "-o", "x", env={"CORDEE_CHANNEL": "/given"})
    channel.communicate()


def test_a_second_start_into_one_folder_is_refused_and_nothing_is_run(record, recording):
    assert record("-q", "--", "true").wait() == 0
    process = record("-q", "--", "touch", "ran")
    said = process.communicate()[1]
    assert process.returncode == 125
    assert "holds another recording" in said
    assert "-o DIR" in said
    assert not (recording.root.parent / "ran").exists()


def test_a_rank_that_was_recorded_already_is_refused(record, recording):
    world = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    assert record("-q", "--", "true", env=world).wait() == 0
    recording.closed()
    process = record("-q", "--", "true", env=world)
    assert "holds a recording of rank 1 already" in process.communicate()[1]
    assert process.returncode == 125
    assert record("-q", "--", "true", env={**world, "RANK": "0"}).wait() == 0
    assert len(recording.closed(2)) == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "no-such-program"], 127, "there is no such command"),
        (["--", "/etc/passwd"], 126, "is not executable"),
        (["--", "/etc"], 126, "is a folder"),
        (["--interval", "1ms", "--", "true"], 125, "too short or too long"),
        (["--source", "magic", "--", "true"], 125, "no such source"),
        (["--nonsense", "--", "true"], 125, "--help"),
        (["--"], 125, "no command to record"),
        (["-o", "/proc/nowhere", "--", "true"], 125, "cannot write the recording"),
    ],
)
def test_what_cannot_be_started_is_told_with_its_own_exit_code(record, recording, words, code, said):
    process = record(*words)
    text = process.communicate()[1]
    assert (process.returncode, said in text) == (code, True), text
    assert not recording.root.exists()


def test_a_script_without_a_first_line_runs_as_from_a_shell(record, recording, tmp_path):
    (tmp_path / "script").write_text("echo from the shell $1\n")
    (tmp_path / "script").chmod(0o755)
    assert record("-q", "--", "./script", "x").communicate()[0] == "from the shell x\n"
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    process = record("-q", "-o", "other", "--", "./script")
    assert "cannot be executed" in process.communicate()[1]
    assert process.returncode == 127


def test_json_is_the_only_thing_on_standard_output(record, recording):
    process = record("--json", "-q", "--", "sh", "-c", "echo words; kill -9 $$")
    out, said = process.communicate()
    document = json.loads(out)
    assert said == "words\n"
    assert (process.returncode, document["exit_code"], document["signal"]) == (137, 137, 9)
    assert document["closed"]
    assert document["recording"] == str(recording.root)
    assert document["sources"] == ["proc"]


def test_a_full_disk_or_a_deleted_folder_does_not_end_the_command(record, recording):
    # Moved first: what is written into it meanwhile would keep it.
    script = (
        "import os, shutil, sys; sys.stdin.readline(); os.rename('recording', 'gone'); shutil.rmtree('gone', True); "
        "sys.stdin.readline()"
    )
    process = record("-q", "--interval", "100ms", "--", sys.executable, "-c", script)
    (recorder,) = recording.until(lambda found: found and found[0].ranks)
    sampler = read_process(recorder.pid)
    process.stdin.write("\n")
    process.stdin.flush()
    wait_until(lambda: not recording.root.exists())
    process.communicate("\n")
    assert process.returncode == 0
    wait_until(lambda: not is_same_process(recorder.pid, sampler.start_ticks))


def test_inside_a_run_the_agent_samples_and_record_only_passes_on(record, recording, tmp_path):
    process = record("--", "sh", "-c", "exit 6", env={"CORDEE_RUN_DIR": str(tmp_path)})
    assert "this run's agent samples already" in process.communicate()[1]
    assert process.returncode == 6
    assert not recording.root.exists()
    folder = RunFolder.create(tmp_path, "a-run")
    assert read_journal(folder.journal) is not None
    process = record("-o", str(folder.root), "--", "true")
    assert "the folder of a run" in process.communicate()[1]


def test_as_the_first_process_of_a_container_it_stays_and_hands_on_signals(recording):
    script = "trap 'echo told; exit 9' TERM; read line; kill -TERM 1; while true; do sleep 0.01; done"
    namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    command = [*namespace, sys.executable, "-m", "cordee.telemetry.node.record", "-o", str(recording.root), "-q", "--"]
    done = subprocess.run([*command, "sh", "-c", script], input="\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (9, "told\n"), done.stderr
    (recorder,) = recording.recorders()
    assert recorder.ended_at is not None
    assert recorder.ranks[0].exit_code == 9


def test_without_standard_streams_the_command_still_runs(record, recording, tmp_path):
    closed = "exec 0<&- 1>&- 2>&-; exec " + " ".join(
        [sys.executable, "-m", "cordee.telemetry.node.record", "-o", "recording"]
    )
    done = subprocess.run(["sh", "-c", f"{closed} -- sh -c 'ls -l /proc/$$/fd > seen'"], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "seen").exists()
    assert recording.closed()[0].ranks[0].exit_code == 0
