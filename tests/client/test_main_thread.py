"""What another thread sees of the main thread: real processes that do one thing for a while."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.client.kinds import COMMUNICATION, COMPUTE, DATA, SAVING, UNKNOWN, kind_of_frames

BEGIN = """
import json, os, sys, threading, time
from cordee.client.main_thread import MainThread
found, over = [], threading.Event()
def looks():
    main = MainThread()
    while not over.wait(0.02):
        glance = main.look(0, GROUPED, DEVICE)
        found.append([glance.kind, glance.runs, glance.used_ns])
    main.close()
looking = threading.Thread(target=looks)
looking.start()
"""
END = """
over.set()
looking.join()
print(json.dumps(found))
"""
TIMED = """
import ctypes, os, signal, subprocess, sys, threading, time
from cordee.client.timer import Timer
def wait():
    timer, due_ns = Timer(), time.monotonic_ns() + 1_000_000_000
    about_to.set()
    late_ns = timer.sleep_until(due_ns)
    print(late_ns / 1e9, (time.monotonic_ns() - due_ns) / 1e9)
    timer.close()
about_to = threading.Event()
waiting = threading.Thread(target=wait)
waiting.start()
about_to.wait()
time.sleep(0.3)
BODY
waiting.join()
"""
GO_ON = "os.kill(os.getppid(), 18)"
WORK = "until = time.thread_time() + 0.4\nwhile time.thread_time() < until: sum(range(1000))"
PIPE = "ends = os.pipe()\nthreading.Timer(0.5, os.write, (ends[1], b'x')).start()\nos.read(ends[0], 1)"
LOCK = "lock = threading.Lock()\nlock.acquire()\nthreading.Timer(0.5, lock.release).start()\nlock.acquire()"
SLEEP = "time.sleep(0.5)"


def seen(body: str, grouped: bool = True, device: bool = False) -> list[tuple[int, bool, int]]:
    program = BEGIN.replace("GROUPED", str(grouped)).replace("DEVICE", str(device)) + body + END
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def most(looks: list[tuple[int, bool, int]]) -> tuple[int, bool]:
    kinds = [(kind, runs) for kind, runs, _ in looks]
    return max(set(kinds), key=kinds.count)


@pytest.mark.parametrize(
    ("body", "grouped", "device", "expected"),
    [
        (WORK, True, False, (COMPUTE, True)),
        (LOCK, True, False, (COMMUNICATION, False)),
        (LOCK, False, False, (UNKNOWN, False)),
        (PIPE, True, False, (DATA, False)),
        (SLEEP, True, False, (UNKNOWN, False)),
        (WORK, True, True, (UNKNOWN, True)),
        (LOCK, True, True, (UNKNOWN, False)),
    ],
    ids=["work", "a wait", "a wait alone", "a pipe", "a sleep", "work for a device", "a wait for a device"],
)
def test_the_kind_is_what_the_main_thread_does_where_no_frame_tells(body, grouped, device, expected):
    looks = seen(body, grouped, device)
    assert most(looks) == expected
    used = [used for _, _, used in looks]
    assert used == sorted(used)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize(
    ("path", "function", "kind"),
    [
        ("torch/utils/data/dataloader.py", "next_one", DATA),
        ("torch/serialization.py", "save", SAVING),
        ("torch/serialization.py", "load", None),
        ("torch/distributed/checkpoint/saver.py", "plan", SAVING),
        ("torch/distributed/distributed_c10d.py", "all_reduce", COMMUNICATION),
        ("train.py", "main", None),
    ],
)
def test_frames_tell_the_kind_whether_their_thread_runs_or_not(tmp_path: Path, path, function, kind, runs):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(f"def {function}(work):\n    work()\n")
    body = f"""
def work():
    {(WORK if runs else LOCK).replace(chr(10), chr(10) + "    ")}
space = {{}}
exec(compile(open({str(tmp_path / path)!r}).read(), {str(tmp_path / path)!r}, "exec"), space)
space[{function!r}](work)
"""
    expected = kind if kind is not None else (COMPUTE if runs else COMMUNICATION)
    assert most(seen(body)) == (expected, runs)
    for_device = kind if kind in (DATA, SAVING) else UNKNOWN
    assert most(seen(body, device=True)) == (for_device, runs)


def test_collectives_of_a_rank_that_is_alone_are_no_communication(tmp_path: Path):
    path = str(tmp_path / "torch/distributed/distributed_c10d.py")
    body = f"space = {{'work': lambda: time.sleep(0.5)}}\nexec(compile('work()', {path!r}, 'exec'), space)\n"
    assert most(seen(body, grouped=False)) == (UNKNOWN, False)
    assert most(seen(body, grouped=True)) == (COMMUNICATION, False)


@pytest.mark.parametrize(
    ("body", "is_late"),
    [
        ("subprocess.Popen([sys.executable, '-c', GO_ON]); os.kill(os.getpid(), signal.SIGSTOP)", True),
        ("ctypes.PyDLL(None).usleep(1_800_000)", False),
    ],
    ids=["stopped", "its interpreter is held"],
)
def test_a_timer_tells_of_a_process_that_was_stopped_and_of_no_other_wait(body: str, is_late: bool):
    program = TIMED.replace("BODY", body).replace("GO_ON", repr(f"import os, time; time.sleep(2); {GO_ON}"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    woken_late_s, went_on_late_s = map(float, done.stdout.split())
    assert went_on_late_s > 0.3
    assert (woken_late_s > went_on_late_s / 2) == is_late


def test_no_stack_is_too_deep_and_none_is_no_kind():
    def down(depth: int) -> object:
        return kind_of_frames(sys._getframe()) if depth == 0 else down(depth - 1)

    assert down(300) is None
    assert kind_of_frames(None) is None


def test_what_was_opened_is_let_go_of():
    body = "time.sleep(0.2)\nbefore = len(os.listdir('/proc/self/fd'))\nover.set(); looking.join()\n"
    body += "after = len(os.listdir('/proc/self/fd'))\nfound[:] = [[before - after, False, 0]]"
    ((closed, _, _),) = seen(body)
    assert closed == 3
