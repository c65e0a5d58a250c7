"""What is said of a disk that refuses, how often progress is written, and telemetry that a disk holds up."""

from __future__ import annotations

import asyncio
import errno
import shutil
from itertools import pairwise

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.disks.stalls import Stalls, StallWords
from cordee.control.supervisor.telemetry.sink import TelemetrySink
from cordee.control.supervisor.timing.progress import ProgressPace
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.lane import Aside, Lane, RepeatedLook
from cordee.telemetry.node.blocklog import FACTS, encode_facts, iter_records, list_parts, read_blocks
from cordee.wire.messages import Telemetry
from support.disks import FaultyDisk

WEEK_S = 7 * 86400


def test_a_refusal_is_said_at_once_and_its_end_becomes_a_finding():
    stalls = Stalls("/runs/a")
    assert stalls.look(100.0, None, "", 0.0) == StallWords()
    said = stalls.look(101.0, 100.5, "No space left on device", 0.0)
    assert said == StallWords("nothing can be written to /runs/a: No space left on device; waiting, the ranks go on")
    assert stalls.look(102.0, 100.5, "No space left on device", 0.0) == StallWords()
    assert "Read-only" in stalls.look(120.0, 100.5, "Read-only file system", 0.0).log
    over = stalls.look(170.5, None, "", 0.0)
    assert over.finding == "for 70 s nothing could be written to /runs/a: Read-only file system"
    assert stalls.look(171.0, None, "", 0.0) == StallWords()


def test_a_moment_of_refusal_is_no_finding_and_a_slow_call_is_none_either():
    stalls = Stalls("/runs/a")
    assert stalls.look(10.0, None, "", 4.0) == StallWords()
    assert stalls.look(11.0, 10.5, "Input/output error", 0.0).log
    assert stalls.look(12.0, None, "", 0.0).finding == ""


def test_a_disk_that_does_not_answer_is_named_with_the_whole_time():
    stalls = Stalls("/runs/a")
    assert "it does not answer" in stalls.look(100.0, None, "", 6.0).log
    assert stalls.look(274.0, None, "", 0.0).finding.startswith("for 180 s")


def test_a_week_of_progress_is_some_thousand_lines_and_the_first_minutes_are_dense():
    pace = ProgressPace()
    written = [now for now in range(0, WEEK_S, 2) if pace.due(float(now), now, None)]
    assert len([now for now in written if now < 600]) == 300
    assert 9_000 < len(written) < 13_000
    assert max(later - earlier for earlier, later in pairwise(written)) <= 62


def test_the_last_progress_is_always_written_and_nothing_twice():
    pace = ProgressPace()
    assert not pace.due(0.0, None, None)
    assert pace.due(0.0, 1, 9)
    assert not pace.due(2.0, 1, 9)
    assert pace.due(86_400.0, 2, 9)
    assert not pace.due(86_401.0, 3, 9)
    assert pace.due(86_401.0, 3, 9, last=True)
    assert not pace.due(86_402.0, 3, 9, last=True)


class Heard(Node):
    def __init__(self):
        super().__init__("n-0")
        self.acknowledged = []


def acknowledge(node, message):
    node.acknowledged.append(message.sequence)


def told(intake, node, sequence):
    intake.message(node, Telemetry(sequence, ()), encode_facts("n-0", "node", sequence, {}, {}))


def led(tmp_path):
    folder = RunFolder.create(tmp_path, "led-20260101T000000Z-abcd")
    disk, lane = FaultyDisk(), Lane("writing")
    journal = JournalWriter(folder.journal, "supervisor-1", 1, disk=disk, lane=lane)
    return folder, disk, journal, TelemetrySink(folder.telemetry, 1, journal, lane, disk, acknowledge), Heard()


def test_telemetry_that_a_disk_holds_up_is_acknowledged_when_it_is_written_and_the_loop_goes_on(tmp_path):
    folder, disk, _, intake, node = led(tmp_path)

    async def lead():
        disk.hold("open", "blocks-*.log")
        for sequence in range(5):
            told(intake, node, sequence)
            intake.flush()
            await asyncio.sleep(0.01)
        assert node.acknowledged == []
        disk.release()
        await intake.close(60.0)
        while 4 not in node.acknowledged:
            await asyncio.sleep(0.01)

    asyncio.run(lead())
    assert len(list_parts(folder.telemetry)) == 1


def test_hundreds_of_nodes_are_acknowledged_in_parts_and_one_that_is_lost_meanwhile_is_not(tmp_path):
    _, _, _, intake, _ = led(tmp_path)
    nodes, turns = [Heard() for _ in range(950)], []

    def acknowledged():
        return sum(len(node.acknowledged) for node in nodes)

    async def lead():
        for node in nodes:
            told(intake, node, 7)
        intake.flush()
        while acknowledged() < 949:
            before = acknowledged()
            await asyncio.sleep(0)
            turns.append(acknowledged() - before)
            if acknowledged():
                intake.lost(nodes[-1])
        await intake.close(60.0)

    asyncio.run(lead())
    assert max(turns) <= 100
    assert [node.acknowledged for node in nodes] == [[7]] * 949 + [[]]


def test_acknowledged_telemetry_that_the_disk_takes_back_is_durable_when_the_intake_is_closed(tmp_path):
    folder, disk, _, intake, node = led(tmp_path)

    async def lead():
        told(intake, node, 1)
        intake.flush()
        while not node.acknowledged:
            await asyncio.sleep(0.01)
        disk.fail("fsync", errno.ESTALE, "blocks-1-0.log", lose=True)
        disk.fail("open", errno.ESTALE, "blocks-1-1.log", times=3)
        await intake.close(60.0)

    asyncio.run(lead())
    kinds = [
        kind
        for _, _, part in list_parts(folder.telemetry)
        for _, _, data in read_blocks(part)
        for kind, _ in iter_records(data)
    ]
    assert kinds == [FACTS]


def test_closing_the_intake_gives_up_in_time_and_at_once_where_its_folder_is_gone(tmp_path):
    folder, disk, journal, intake, node = led(tmp_path)

    async def lead():
        disk.fail("fsync", errno.EIO, "blocks-*.log", times=-1)
        disk.fail("open", errno.EIO, "blocks-1-1.log", times=-1)
        told(intake, node, 1)
        intake.flush()
        assert not await intake.write_the_rest(0.0)
        journal.append("agents_lost")
        await journal.durable()  # which comes after the try that failed
        disk.release()
        shutil.rmtree(folder.telemetry)
        assert not await intake.write_the_rest(3600.0)

    asyncio.run(lead())


def test_what_the_journal_says_of_data_is_written_before_the_agent_may_forget_it(tmp_path):
    folder, disk, journal, intake, node = led(tmp_path)

    async def lead():
        disk.fail("open", errno.EROFS, "*.jsonl", times=-1)
        journal.append("data_read", durable=False)
        told(intake, node, 1)
        intake.flush()
        while journal.refused_since is None or intake._storing is not None:
            await asyncio.sleep(0.01)
        assert node.acknowledged == []
        disk.release()
        journal.flush()
        await journal.durable()
        intake.flush()
        while not node.acknowledged:
            await asyncio.sleep(0.01)

    asyncio.run(lead())
    assert [event["event"] for event in read_journal(folder.journal)] == ["data_read"]


def test_there_is_one_look_at_a_time_and_what_fails_is_told():
    seen, failed = [], []

    async def lead():
        lane = Lane("looking")
        look = RepeatedLook(lane, lambda: len(seen), seen.append, failed.append)
        for _ in range(5):
            look.begin()
        while not seen:
            await asyncio.sleep(0.001)
        assert seen == [0]
        broken = RepeatedLook(lane, lambda: 1 / 0, seen.append, failed.append)
        broken.begin()
        while not failed:
            await asyncio.sleep(0.001)

    asyncio.run(lead())
    assert [type(error) for error in failed] == [ZeroDivisionError]


def test_what_is_said_is_written_aside_and_too_much_of_it_is_left_out():
    class Stream:
        texts: list[str] = []

        def write(self, text):
            self.texts.append(text)

        def flush(self):
            raise OSError(28, "No space left on device")

    aside = Aside(Stream(), Lane("saying"))
    print("a line", file=aside)
    aside.drain(60.0)
    assert "".join(Stream.texts) == "a line\n"
