"""From the options to the command: everything that can be refused, the registration, the sampler, and exec."""

from __future__ import annotations

import os
import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Mapping, NoReturn, Optional

from cordee import __version__
from cordee.core.errors import CordeeError
from cordee.machine.processes.tree import read_process
from cordee.runs.folder import RunFolder, say
from cordee.telemetry.node.record.detach import start_detached
from cordee.telemetry.node.record.execute import execute, find_program
from cordee.telemetry.node.record.names import default_names
from cordee.telemetry.node.record.options import EXIT_OURS, RecordError, RecordOptions
from cordee.telemetry.node.record.process_end import Followed
from cordee.telemetry.node.record.recorded_process import RecordedProcess
from cordee.telemetry.node.record.roster import RankTaken, RecordingRoster, Registration
from cordee.telemetry.node.recording import (
    DEFAULT_FOLDER,
    AnotherRecording,
    Recorder,
    claim_number,
    enter_recording,
    read_recorder,
    recorder_numbers,
)

if TYPE_CHECKING:
    from cordee.telemetry.node.record.sampler import NodeRecorder

_GPU_WORDS = ("VISIBLE_DEVICES", "GPU", "CUDA_DEVICE_ORDER", "SLURM_JOB_ID", "SLURM_TRES")
_MOST_WORDS, _MOST_LETTERS = 200, 1000  # of a command, for the reader


class RecordStart:
    """A command that is about to be recorded; making it checks everything that could be refused.

    Attributes:
        program: the path of the command's file.
        folder: the recording; None inside `cordee run`, whose agent samples already.
        place: where this process stands among others.

    Raises:
        CordeeError: with the code to exit with: 126 or 127 for the command's faults, 125 for all others.
    """

    def __init__(self, options: RecordOptions, environ: Optional[Mapping[str, str]] = None) -> None:
        self.options = options
        self.environ = dict(os.environ if environ is None else environ)
        self.place = RecordedProcess.here(self.environ)
        self.program = find_program(options.argv[0], self.environ)
        self.folder: Optional[RunFolder] = None
        if "CORDEE_RUN_DIR" in self.environ:
            if self.place.rank == 0 and not options.quiet:
                run = self.environ["CORDEE_RUN_DIR"]
                say(f"cordee: this run's agent samples already, nothing more is recorded; then: cordee score {run}")
            return
        try:
            self.folder = self._enter()
        except CordeeError as error:
            error.exit_code = EXIT_OURS
            raise

    def go(self) -> NoReturn:
        """Register, start the sampler where this node has none, and become the command."""
        if self.folder is not None:
            try:
                self._register(self.folder)
            except CordeeError as error:
                error.exit_code = EXIT_OURS
                raise
        execute(self.program, self.options.argv, self.environ)

    def _enter(self) -> RunFolder:
        if self.options.output is not None:
            folder = RunFolder(Path(self.options.output).absolute())
            self._join(folder)
            return folder
        for name in default_names(self.place, self.options.argv):
            folder = RunFolder(Path(DEFAULT_FOLDER, name).absolute())
            try:
                self._join(folder)
            except (RankTaken, AnotherRecording):
                continue
            return folder
        raise RecordError("there are too many recordings", given=DEFAULT_FOLDER, next="choose a place with -o DIR")

    def _join(self, folder: RunFolder) -> None:
        """Make or join a recording that does not hold this rank yet: samples of two commands would look like one's."""
        if enter_recording(folder, self.place.key):
            return
        mine = (self.place.rank, self.place.attempt)
        taken = any((one.rank, one.attempt) == mine for one in self._meeting(folder).registrations())
        for number in recorder_numbers(folder, *self.place.numbers):
            try:
                ranks = read_recorder(folder, number).ranks
            except ValueError:
                continue
            taken = taken or any((one.rank, one.attempt) == mine for one in ranks)
        if taken:
            raise RankTaken(
                f"this folder holds a recording of rank {self.place.rank} already",
                given=str(folder.root),
                next="choose another place with -o DIR",
            )

    def _meeting(self, folder: RunFolder) -> RecordingRoster:
        return RecordingRoster([str(folder.root), self.place.key, self.place.node, *devices_to_open()])

    def _register(self, folder: RunFolder) -> None:
        bound = self._bind()
        process = read_process(os.getpid())
        mine = Registration(
            pid=os.getpid(),
            start_ticks=process.start_ticks if process else 0,
            rank=self.place.rank,
            attempt=self.place.attempt,
            argv=[shortened(word) for word in self.options.argv[:_MOST_WORDS]],
            started_at=time.time(),
            local_rank=self.place.local_rank,
            environ=told_of_gpus(self.environ),
            cpus=sorted(os.sched_getaffinity(0)),
            bound=bound,
        )
        meeting = self._meeting(folder)
        lock = meeting.register(mine, channel="CORDEE_CHANNEL" not in self.environ)
        if lock is not None:
            followed = Followed(mine.pid, mine.start_ticks)  # here, so that the shortest command's end is seen
            try:
                number = claim_number(folder, *self.place.numbers)
                keep = [lock, *([] if followed.descriptor is None else [followed.descriptor])]
                start_detached(lambda: self._recorder(meeting, folder, number).run(mine, followed), keep=keep)
            except CordeeError:
                meeting.withdraw(mine)
                raise
            finally:
                os.close(lock)
                followed.close()
        if mine.channel:
            self.environ["CORDEE_CHANNEL"] = mine.channel
        if self.place.rank == 0 and not self.options.quiet:
            shown = shell_word(folder.root)
            say(f"cordee: recording into {shown}; then: cordee score {shown}")

    def _bind(self) -> str:
        """Bind this process as was asked, and return what was done in words."""
        if self.options.bind != "gpu":
            return ""
        from cordee.telemetry.node.record.binding import bind_near_gpu

        return bind_near_gpu(self.environ)

    def _recorder(self, meeting: RecordingRoster, folder: RunFolder, number: int) -> NodeRecorder:
        from cordee.telemetry.node.record.sampler import NodeRecorder

        document = Recorder(
            number=number,
            node=self.place.node,
            host=self.place.host,
            pid=os.getpid(),
            started_at=time.time(),
            interval_s=self.options.interval_s,
            version=__version__,
            job=self.place.job,
            step=self.place.step,
            world_size=self.place.world_size,
        )
        options = self.options
        return NodeRecorder(
            meeting,
            folder,
            document,
            source=options.source,
            threads=options.sample_threads,
            numbers=self.place.numbers,
        )


def shortened(word: str) -> str:
    """Return a word of a command line as people want to see it: programs given as words can be long."""
    return word if len(word) <= _MOST_LETTERS else f"{word[:_MOST_LETTERS]}..."


def shell_word(path: Path) -> str:
    """Return a path as one would type it here."""
    try:
        path = path.relative_to(Path.cwd())
    except (ValueError, OSError):
        pass
    return shlex.quote(str(path))


def told_of_gpus(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say something of a process's GPUs."""
    return {name: value for name, value in environ.items() if any(word in name for word in _GPU_WORDS)}


def devices_to_open(root: str = "/dev") -> list[str]:
    """Return the GPUs' device files that this process may open.

    A control group may leave each task its own GPU only: then each needs a sampler of its own, for nobody else can ask
    for it. `access` asks the control group without touching the driver.
    """
    names = [f"{root}/{name}" for name in _listed(root) if re.fullmatch(r"nvidia\d+|kfd", name)]
    for folder in (f"{root}/nvidia-caps", f"{root}/dri"):
        names += [f"{folder}/{name}" for name in _listed(folder) if not name.startswith("card")]
    return [name for name in names if os.access(name, os.R_OK | os.W_OK)]


def _listed(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not os.path.isdir(f"{folder}/{name}"))
    except OSError:
        return []
