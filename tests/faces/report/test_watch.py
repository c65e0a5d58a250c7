"""The live view: worst first, within the screen, reading only what is new, and deaf to what ranks print."""

from __future__ import annotations

import math
import time

import pytest
from rich.console import Console

from cordee.core.errors import RunFolderError
from cordee.core.terminal.draw import sparkline
from cordee.faces.cli.watch.output import OutputTail
from cordee.faces.cli.watch.screen import WatchScreen, watch
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.logframes import LogWriter
from cordee.runs.state import replay
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events, encode_grid, encode_schema

METRICS = [{"name": name, "unit": "", "source": "proc"} for name in ("cpu_cores_ratio", "memory_rss_bytes")]


class Made:
    """A run folder whose writers stay open.

    Args:
        parent: where it is made.
        ranks: four to a node.
    """

    def __init__(self, parent, ranks=2):
        self.folder = RunFolder.create(parent, "w-20260101T000000Z-abcd")
        self.journal = JournalWriter(self.folder.journal, "supervisor-1", 1)
        self.telemetry = BlockLogWriter(self.folder.telemetry, 1)
        self.log = LogWriter(self.folder.logs / "n-0-1.log")
        self.journal.append("supervisor_started", pid=1, host="h", segment=1)
        nodes = [
            {"node": f"n-{at}", "ranks": list(range(4 * at, min(ranks, 4 * at + 4)))} for at in range(-(-ranks // 4))
        ]
        self.journal.append("attempt_started", attempt=1, world_size=ranks, nodes=nodes)
        for rank in range(ranks):
            self.journal.append(
                "rank_started", durable=False, attempt=1, rank=rank, node=f"n-{rank // 4}", pid=rank + 10
            )

    def step(self, rank, step):
        """Let a rank log a step."""
        values = {"loss": 1 / (step + 1), "tokens_per_s": 1000.0}
        self.telemetry.append(encode_events("n-0", rank, 1, 0, [(step, time.time(), step, values)]))
        self.telemetry.flush()

    def sample(self, *values):
        """Let node n-0 sample its first two ranks."""
        schema, record = encode_schema("n-0", "rank", 1.0, [0, 1], METRICS, 1)
        self.telemetry.append(record + encode_grid(schema, time.time(), values))
        self.telemetry.flush()

    def print(self, rank, data):
        """Let a rank print."""
        self.log.write(rank, 0, 1, data, time.time())


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def drawn(view, height=30, width=100):
    console = Console(width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(view.picture(height, width))
    return capture.get()


def test_one_picture_has_state_nodes_ranks_steps_use_and_output(made, capsys):
    made.journal.append("progress", step=7, total=20)
    made.step(0, 7)
    made.sample(0.75, 2e9, math.nan, 3e9)
    made.print(0, b"hello from rank 0\n")
    watch(made.folder.root, once=True)
    text = capsys.readouterr().out
    for part in ("running", "n-0", "step 7 of 20", "0.75", "2 GB", "3 GB", "hello from rank 0", "loss", "tokens_per_s"):
        assert part in text


def test_what_is_new_is_seen_at_the_next_read(made):
    view = WatchScreen(made.folder)
    view.read()
    assert "step 3" not in drawn(view)
    made.step(0, 3)
    made.print(1, b"10%\r20%")
    made.journal.append("attempt_ended", attempt=1, outcome="finished", reason="", failure=None)
    made.journal.append("ended", state="finished", exit_code=0, reason="", text="all is well")
    assert view.read().state == "finished"
    text = drawn(view)
    assert "step 3" in text
    assert "20%" in text
    assert "10%" not in text
    assert "all is well" in text


def test_a_screen_is_never_overfull_and_failed_and_slow_ranks_come_first(tmp_path):
    made = Made(tmp_path, ranks=400)
    for rank in range(400):
        made.step(rank, 5 if rank == 333 else 9)
    made.journal.append("rank_exited", attempt=1, rank=222, node="n-55", code=None, signal="SIGKILL", message="")
    view = WatchScreen(made.folder)
    view.read()
    for height in (12, 16, 24, 60):
        assert len(drawn(view, height).splitlines()) <= height
    rows = drawn(view, 24).splitlines()
    first = next(at for at, row in enumerate(rows) if row.startswith("rank"))
    assert rows[first + 1].startswith("222 ")
    assert rows[first + 2].startswith("333 ")
    assert "further on" in drawn(view, 24)


def test_what_ranks_print_is_neither_markup_nor_read_by_the_terminal(made):
    made.print(0, b"[/red][bold] \x1b[2J\x1b]0;owned\x07 \xff\xfe\n")
    failure = {"kind": "rank", "rank": 0, "node": "n-0", "code": 1, "signal": None, "message": "[/] \x1b[31m"}
    made.journal.append("attempt_ended", attempt=1, outcome="failed", reason="x", failure=failure)
    view = WatchScreen(made.folder)
    view.read()
    text = drawn(view)
    assert "[/red][bold]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_long_log_is_read_from_near_its_end(made):
    for number in range(3000):
        made.print(0, b"line %d " % number + b"x" * 200 + b"\n")
    assert 0 < len(OutputTail(made.folder.logs).read()) < 1500
    view = WatchScreen(made.folder)
    view.read()
    assert "line 2999" in drawn(view)
    assert max(len(line) for line in drawn(view).splitlines()) <= 100


def test_a_deleted_folder_is_an_error_with_advice(tmp_path):
    with pytest.raises(RunFolderError, match="journal"):
        watch(tmp_path / "gone", once=True)


def test_sparklines_go_from_the_least_to_the_greatest_and_leave_gaps():
    assert sparkline([0.0, 1.0, math.nan, 3.0]) == "▁▃ █"
    assert sparkline([3.0, 3.0]) == "▁▁"
    assert sparkline([math.inf]) == ""


def test_events_that_were_written_late_have_their_place(made):
    tail = JournalFollower(made.folder)
    assert tail.read().state == "running"
    made.journal.append("progress", step=3, total=9)
    assert tail.read().step == 3
    late = JournalWriter(made.folder.journal, "client", 0)
    late.append("submitted", backend="local", nodes=1, ranks=2)
    state = tail.read()
    assert state.submitted_at is not None
    assert vars(state) == vars(replay(read_journal(made.folder.journal), made.folder.id))
