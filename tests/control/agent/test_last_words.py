"""The line that says why a program ended, among those that say nothing of it."""

from __future__ import annotations

import pytest

from cordee.control.agent.output import LastOutput
from cordee.machine.tasks.last_words import reason_in
from cordee.machine.tasks.task import STDERR, STDOUT

TRACEBACK = """\
step 3 loss 0.5
Traceback (most recent call last):
  File "/job/train.py", line 3, in <module>
    main()
ValueError: no samples in /data
"""
WANDB = """\
wandb: \U0001f680 View run calm-sea-3 at: https://wandb.ai/me/p/runs/x
wandb: Find logs at: wandb/run-2026/logs
"""
PROGRESS = " 80%|########  | 80/100 [00:03<00:00, 26.3it/s]"
TORCHRUN = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 3, in <module>
[rank0]: ValueError: no samples in /data
E1122 12:00:00.000000 77 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_12:00:00
  exitcode  : 1 (pid: 78)
============================================================
"""
SAID = "ValueError: no samples in /data"


@pytest.mark.parametrize(
    ("printed", "signal", "reason"),
    [
        (TRACEBACK, None, SAID),
        (TRACEBACK + WANDB, None, SAID),
        (TRACEBACK + PROGRESS, None, SAID),
        (TRACEBACK + "2026-11-22 12:00:00 INFO closing the writer\n", None, SAID),
        (TRACEBACK + "/venv/lib/x.py:7: UserWarning: leaked\n  warnings.warn(\n", None, SAID),
        (TORCHRUN, None, SAID),
        ("step 3\nno such data set: corpus\n" + WANDB, None, "no such data set: corpus"),
        (WANDB, None, None),
        ("step 3 loss 0.5\n" + WANDB, "SIGKILL", None),
        (TRACEBACK, "SIGKILL", None),
        ("step 3 loss 0.5\n" + WANDB, "SIGSEGV", None),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n" + WANDB, "SIGABRT", "terminate called"),
        ("", None, None),
    ],
)
def test_the_reason_is_the_last_line_that_can_be_one(printed: str, signal: str | None, reason: str | None) -> None:
    found = reason_in(printed.split("\n"), signal)
    assert found == reason if reason is None else (found or "").startswith(reason)


def test_standard_error_goes_before_standard_output() -> None:
    tail = LastOutput()
    tail.add(STDOUT, b"done\n")
    assert tail.message() == "done"
    tail.add(STDERR, WANDB.encode())
    assert tail.message() is None
    tail.add(STDOUT, b"could not read the corpus\nbye\n")
    assert tail.message() == "could not read the corpus"
    tail.add(STDERR, (TRACEBACK + WANDB).encode())
    assert tail.message() == SAID
