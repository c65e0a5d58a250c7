"""The node's sampler: follows the registered processes, samples until the last has ended, closes the recording.

It is nobody's child and holds none of their files, so that nothing it does or suffers reaches them.
"""

from __future__ import annotations

import math
import os
import select
import time
from dataclasses import dataclass
from typing import Optional

from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.blocklog import MOST_RANK_NAMES, BlockLogWriter, encode_facts
from cordee.telemetry.node.record.gpus import Claim, GpuNews, GpuThread
from cordee.telemetry.node.record.logged import ProcessChannel
from cordee.telemetry.node.record.process_end import Followed
from cordee.telemetry.node.record.roster import RecordingRoster, Registration
from cordee.telemetry.node.record.sampling import RecordedSampler
from cordee.telemetry.node.recording import RecordedRank, Recorder, read_recorder, recorder_numbers, write_recorder
from cordee.telemetry.node.samplers.host import node_sampler, rank_sampler

FIRST_AFTER_S = 0.2  # short commands have a sample, too
_FLUSH_EVERY_S = 1.0
_HEARD_EVERY_S = 30.0
_ASK_EVERY_S = 0.2
_CLOCK_JUMP_S = 0.5
_LAST_SAMPLE_AFTER = 0.3  # of an interval
_PART_BYTES = 256 << 20
_PART_S = 86400.0


@dataclass
class _Member:
    """One registered process and what belongs to it."""

    registration: Registration
    followed: Followed
    logged: ProcessChannel
    document: RecordedRank


class NodeRecorder:
    """The sampler of one node in one recording.

    Args:
        meeting: where the processes register.
        folder: the recording.
        recorder: this sampler's document, with its number.
        source: where samples of GPUs come from.
        threads: whether each thread is looked at.
        numbers: first and stride of the numbers of this node's samplers.
    """

    def __init__(
        self,
        meeting: RecordingRoster,
        folder: RunFolder,
        recorder: Recorder,
        *,
        source: str = "auto",
        threads: bool = True,
        numbers: tuple[Optional[int], int] = (None, 1),
    ) -> None:
        self._meeting = meeting
        self._folder = folder
        self._recorder = recorder
        self._interval_s = recorder.interval_s
        self._members: dict[str, _Member] = {}
        self._ended: set[str] = set()
        # Sealed as a whole once all samplers have ended: parts of ten minutes would only be many files.
        self._writer = BlockLogWriter(folder.telemetry, recorder.number, max_bytes=_PART_BYTES, max_age_s=_PART_S)
        self._threads = threads
        self._numbers = numbers
        self._samplings: list[RecordedSampler] = []
        self._gpus = GpuThread(recorder.node, source, self._interval_s)
        self._changed = True
        self._flush_at = self._heard_at = 0.0
        self._sampled_at = -math.inf
        self._disk_said = "the disk refused them"
        self._clock: Optional[float] = None

    def run(self, first: Registration, followed: Followed) -> None:
        """Sample until everybody has ended.

        Args:
            first: who started the sampler.
            followed: how the end of that process will be seen.
        """
        try:
            self._run(first, followed)
        except Exception as error:
            self.remark(f"the sampler of {self._recorder.node} failed: {type(error).__name__}: {error}")
            self._close()

    def _run(self, first: Registration, followed: Followed) -> None:
        node = self._recorder.node
        self._recorder.sources = ["proc"]
        with_bell = self._listen()
        self._take_in(first, followed)
        self._look()
        self._notice_others()
        ranks = rank_sampler(self._pids, self._interval_s, deep=self._threads)
        self._samplings = [
            RecordedSampler(node, "node", node_sampler(node), self._interval_s),
            RecordedSampler(node, "rank", ranks, self._interval_s),
        ]
        self._tick()
        first_at: Optional[float] = time.monotonic() + FIRST_AFTER_S
        while True:
            if not self._members and self._finished():
                return
            until_grid = self._interval_s - time.time() % self._interval_s
            wait_s = until_grid
            if first_at is not None:
                wait_s = min(until_grid, max(0.0, first_at - time.monotonic()))
            if self._wait(with_bell, wait_s):
                first_at = None
                self._tick()
            self._write_document()

    def _finished(self) -> bool:
        """Take the last sample, and close the recording unless somebody new has come."""
        if time.monotonic() - self._sampled_at >= _LAST_SAMPLE_AFTER * self._interval_s:
            self._tick()
        self._hear(self._gpus.last())
        if not self._meeting.leave(self._ended):
            self._look()
            return False
        self._meeting.sweep()
        self._close()
        return True

    def _notice_others(self) -> None:
        """Say so where this node has another sampler in this recording."""
        for number in recorder_numbers(self._folder, *self._numbers):
            try:
                other = read_recorder(self._folder, number)
            except ValueError:
                continue
            if number != self._recorder.number and other.node == self._recorder.node and other.ended_at is None:
                self.remark(
                    f"{other.node} has several samplers: its processes share no /dev/shm, or may not open the same GPUs, or"
                    " a sampler was killed; each GPU counts once, by its UUID"
                )

    def _listen(self) -> Optional[int]:
        try:
            return self._meeting.listen()
        except OSError:
            return None

    def _wait(self, bell: Optional[int], wait_s: float) -> bool:
        """Wait for who comes and who ends; return whether the time is over, so that a sample is due."""
        deadline = time.monotonic() + wait_s
        poll = select.poll()
        if bell is not None:
            poll.register(bell, select.POLLIN)
        asking = bell is None
        for member in self._members.values():
            if member.followed.descriptor is not None:
                poll.register(member.followed.descriptor, select.POLLIN)
            else:
                asking = True
        rest_s = min(wait_s, _ASK_EVERY_S) if asking else wait_s
        woken = poll.poll(math.ceil(rest_s * 1000))
        if bell is not None and any(descriptor == bell for descriptor, _ in woken):
            os.read(bell, 4096)
            self._look()
        if woken or asking:
            self._bury()
        return time.monotonic() >= deadline

    def _look(self) -> None:
        """Take in who has registered."""
        for registration in self._meeting.registrations():
            if registration.name not in self._members and registration.name not in self._ended:
                self._take_in(registration, Followed(registration.pid, registration.start_ticks))
        known = [member.registration for member in self._members.values()]
        self._gpus.claims([Claim(one.rank, one.pid, one.environ) for one in known])
        self._write_document()
        self._bury()

    def _take_in(self, registration: Registration, followed: Followed) -> None:
        document = RecordedRank(
            rank=registration.rank,
            pid=registration.pid,
            argv=registration.argv,
            started_at=registration.started_at,
            attempt=registration.attempt,
            local_rank=registration.local_rank,
            cpus=registration.cpus,
        )
        member = _Member(registration, followed, ProcessChannel(self._recorder.node, registration), document)
        self._members[registration.name] = member
        self._recorder.ranks.append(document)
        self._writer.append(self._rank_facts(member))
        self._changed = True

    def _rank_facts(self, member: _Member) -> bytes:
        registration = member.registration
        about = {
            "node": self._recorder.node,
            "pid": registration.pid,
            "local_rank": registration.local_rank,
            "cpus": registration.cpus,
            "gpus": member.document.devices,
            "bound": registration.bound,
        }
        return encode_facts(self._recorder.node, "rank", time.time(), {str(registration.rank): about}, {})

    def _bury(self) -> None:
        """Take note of who has ended."""
        for name, member in list(self._members.items()):
            if not member.followed.ended:
                continue
            member.document.ended_at = time.time()
            member.document.exit_code, member.document.signal = member.followed.ending()
            member.followed.close()
            self._read_logged(member.logged)
            self._writer.flush()
            member.logged.stored()
            member.logged.close()
            del self._members[name]
            self._ended.add(name)
            self._changed = True

    def _pids(self) -> dict[int, int]:
        return {member.registration.rank: member.registration.pid for member in self._members.values()}

    def _tick(self) -> None:
        """Take one sample of everything, and write what is due."""
        self._watch_clock()
        moment = time.time()
        self._gpus.sample()
        for sampling in self._samplings:
            self._writer.append(sampling.take(moment))
        self._hear(self._gpus.news())
        now = self._sampled_at = time.monotonic()
        for member in self._members.values():
            self._read_logged(member.logged)
        if now >= self._flush_at - 0.01:
            self._flush_at = now + _FLUSH_EVERY_S
            if self._writer.flush():
                for member in self._members.values():
                    member.logged.stored()
            if self._writer.last_error is not None:
                self._disk_said = self._writer.last_error.strerror or "the disk refused them"
        if now >= self._heard_at:
            self._heard_at, self._changed = now + _HEARD_EVERY_S, True

    def _read_logged(self, logged: ProcessChannel) -> None:
        self._writer.append(logged.read())
        for rank in logged.cap.left_out:
            self.remark(
                f"rank {rank} logs more than {MOST_RANK_NAMES} metric names: values of further names are left out"
            )

    def _hear(self, news: list[GpuNews]) -> None:
        """Take in what the thread of the GPUs has found out."""
        for piece in news:
            self._writer.append(piece.records)
            for remark in piece.remarks:
                self.remark(remark)
            if piece.source is not None and piece.source not in self._recorder.sources:
                self._recorder.sources.append(piece.source)
                self._recorder.refused.pop("gpus", None)  # known by now whose they are
                self._changed = True
            if piece.refused:
                self._recorder.refused.update(piece.refused)
                self._changed = True
            for member in self._members.values():
                rank = member.registration.rank
                if rank in piece.devices and member.document.devices != piece.devices[rank]:
                    member.document.devices = piece.devices[rank]
                    self._writer.append(self._rank_facts(member))
                    self._changed = True
        silent_s = self._gpus.silent_s
        if silent_s:
            self.remark(f"the GPUs' driver on {self._recorder.node} stopped answering in mid-recording")

    def _watch_clock(self) -> None:
        offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)  # which goes on while a laptop sleeps
        jump = 0.0 if self._clock is None else offset - self._clock
        self._clock = offset
        if abs(jump) >= _CLOCK_JUMP_S:
            where = "forward" if jump > 0 else "back"
            self.remark(f"the clock of {self._recorder.node} was put {where} by {abs(jump):.1f} s in mid-recording")

    def remark(self, text: str) -> None:
        """Keep a sentence for the reader of the score, once."""
        if text not in self._recorder.remarks:
            self._recorder.remarks.append(text)
            self._changed = True

    def _write_document(self) -> None:
        if not self._changed:
            return
        self._recorder.heard_at = time.time()
        try:
            write_recorder(self._folder, self._recorder)
        except CordeeError:
            self._heard_at = time.monotonic() + _FLUSH_EVERY_S  # the disk is full or the folder is gone: later, perhaps
        self._changed = False

    def _close(self) -> None:
        self._writer.flush()
        lost = self._writer.dropped_bytes + self._writer.pending_bytes
        if lost:
            self.remark(f"{lost} bytes of samples are lost: {self._disk_said}")
        self._recorder.ended_at = time.time()
        self._changed = True
        self._write_document()
        self._writer.close()
