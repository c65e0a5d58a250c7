"""The numbers on the page for operators: each is that of the code, or one that a benchmark has measured."""

from __future__ import annotations

import re
from pathlib import Path

from cordee.backends.slurm import job_states
from cordee.backends.slurm.node import rescue, starters
from cordee.control.supervisor import allocation, closing_findings, run_end
from cordee.control.supervisor.telemetry import news
from cordee.control.supervisor.timing import progress, ticker
from cordee.control.supervisor.timing.paces import SHARED
from cordee.faces.web.runs import library
from cordee.runs import budget, logtail, lookout, waiting_clients
from cordee.wire import channel

PAGE = Path(__file__).parents[3] / "docs" / "footprint.md"
CHECKPOINTS, REQUESTS = SHARED["checkpoints"], SHARED["requests"]
LISTED_EVERY = allocation._LISTED_EVERY

OF_THE_CODE = (
    f"looks for requests {'five' if REQUESTS.least_s == 0.2 else '?'} times a second for a moment",
    f"one line in {ticker._SHARED_PROGRESS_S:.0f} s at first",
    f"one in {'a minute' if progress._MOST_S == 60 else '?'} after some hours",
    f"2 every {2 / CHECKPOINTS.per_s:.0f} to {CHECKPOINTS.most_s:.0f} s, for any number",
    f"`run`, `logs --follow`* | at most one in {1 / lookout.SHARED_PER_S:.0f} s each | {lookout.SHARED_BURST:.0f} at once |",
    f"`watch`* | at most {lookout.WATCHED_PER_S:.0f} a second | {lookout.SHARED_BURST:.0f} at once |",
    f"however many people watch* | at most {lookout.WATCHED_PER_S:.0f} a second | {lookout.SHARED_BURST:.0f} at once |",
    f"however many* | at most {budget.TOGETHER_PER_S:.0f} a second | {lookout.SHARED_BURST:.0f} at once, or "
    f"{budget.LEAST_BURST:.0f} for each",
    f"at most {library._SHARED_PER_S:.0f} a second for one server",
    f"writes {waiting_clients._SLOT.size} bytes into every {waiting_clients._TURN_S:.0f} s",
    f"asks as if {waiting_clients._MANY} waited: at most one operation in "
    f"{waiting_clients._MANY / budget.TOGETHER_PER_S:.0f} s*",
    f"at most {logtail._MOST_OPEN} for each reader",
    f"`control/waiting`: {waiting_clients._SLOTS * waiting_clients._SLOT.size >> 10} kB at most",
    f"every {news._SELDOM_S:.0f} s at most where there are more than {news._MANY} nodes",
    f"at most {lookout.LOCAL_PER_S:.0f} operations a second for a command that waits",
    f"for all runs | at most {job_states._PER_MINUTE} a minute |",
    f"tried again in halves, after {starters._FIRST_RETRY_S:.0f} s, {2 * starters._FIRST_RETRY_S:.0f} s and so on up to "
    f"{starters._LONGEST_RETRY_S / 60:.0f} minutes",
    f"at most {120 / rescue._LOOK_S:.0f} a minute; one of them has the job requeued",
    f"by the first {'three' if rescue._ASKING_NODES == 3 else '?'} nodes",
    f"all others after {'five and a half' if rescue._NOTICE_S == 330 else '?'} minutes",
    f"ask\nagain after {'half a minute' if rescue._UNANSWERED_S == 30 else '?'}",
    f"every {closing_findings._SEAL_S / 60:.0f} minutes if anything is to be sealed, at `nice` "
    f"{closing_findings.LAST_IN_TURN} ({closing_findings.PROMPT} once the run has ended)",
    f"{channel.RING_BYTES >> 20} MiB in `/dev/shm` for each rank",
    f"at most {run_end.GIVE_BACK_S:.0f} seconds*",
    f"sleeps for {lookout._LONGEST_PAUSE_S:.0f} s between its looks where nothing happens, and for "
    f"{lookout._QUICKEST_PAUSE_S:.1f} s for {lookout._QUICK_S:.0f} s after",
    f"the supervisor finds the request within {REQUESTS.most_s:.0f} s, or\n{LISTED_EVERY * REQUESTS.most_s:.0f} s where",
)
# Held by tests that count: tests/control/supervisor/test_quiet.py, tests/control/agent/test_supervisor_search.py,
# tests/backends/slurm/test_rescue_questions.py, tests/runs/test_lookout.py and test_waiting_clients.py.
COUNTED = (
    "| supervisor: its looks* | at most 1 a second |",
    "| 2 for each line of progress",
    "| 8 for a new one;",
    "at most 1 a second, on average over half an hour also at first | 60 in the first ten seconds, then 25 in any ten |",
    "at most 2 a second after the first minute",
    "at most 2 a second after the first three minutes",
    "at most 21 times in the first minute and 11 times in each later one where there are 500 nodes and more",
    "about 25 bytes a node",
    "| 1 where slurmctld knows why; otherwise at most 13 in half a minute, by the first three nodes",
    "| at most 6 in half a minute, by all three together |",
)
# By benchmarks/scale.py, benchmarks/rank_end.py and benchmarks/telemetry_store.py.
MEASURED = (
    "60 % of a slow, shared core and 350 MB at 10,000 nodes of 10 ranks",
    "under 1 ms of the agent, beside 4,000 other processes; 0.1 s where",
    "at most 500\n  files of sealed telemetry for each day",
)


def test_the_page_for_operators_has_the_numbers_that_hold_and_no_other():
    page = PAGE.read_text().replace("ext4", "").replace("`kill -9`", "")
    for text in (*OF_THE_CODE, *COUNTED, *MEASURED):
        assert text in page
    for text in sorted((*OF_THE_CODE, *COUNTED, *MEASURED), key=len, reverse=True):
        page = page.replace(text, "")
    assert re.findall(r".*\d.*", page) == []
