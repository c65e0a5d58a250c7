"""Running the labelled workloads, one after the other, each below the real recorder."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import cordee
from cordee.core.errors import CordeeError, UsageError
from cordee.machine.gpus.driver import driver_version
from cordee.machine.machine import cpu_field
from cordee.machine.processes.module_command import module_argv
from cordee.runs.folder import RunFolder
from cordee.systems.score.result import UNKNOWN
from cordee.systems.score.validation.judge import DOCUMENT, WorkloadJudgement, judge, read_document, write_document
from cordee.systems.score.validation.truths import LabelledWorkload
from cordee.telemetry.node.recording import read_recorders, write_recorder

_PROGRAMS = "cordee.systems.score.validation.programs"
_START_UP_S = {"gpu": 7.0, "cpu": 3.0}
_LONGEST_STEADY_S, _SHORTEST_STEADY_S = 20.0, 5.0
_PATIENCE_S = 90.0
_CLOSING_S = 10.0
_OUTPUT = "output.txt"
_LAST_LINES = 3
_PROBED_S = (1.5, 6.0)  # on a busy machine the sampler may take a while to start
_COUNTER = "gpu_sm_ratio"
_log = logging.getLogger(__name__)


class NoGpu(UsageError):
    """There is no GPU to validate on."""

    kind = "no_gpu"


class CountersClosed(UsageError):
    """The GPU does not tell what bands and classes are judged by."""

    kind = "counters_closed"


@dataclass
class Conduct:
    """How workloads are run.

    Attributes:
        folder: each workload's recording is `folder/<name>`.
        steady_s: seconds of the labelled time. interval_s: between samples.
        python: the interpreter of the workloads; it needs torch.
        place: what the machine is, for the recordings.
        variables: of the workloads' environment, over those of here.
    """

    folder: Path
    steady_s: float
    interval_s: float = 0.5
    python: str = sys.executable
    place: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, truth: LabelledWorkload) -> WorkloadJudgement:
        """Run and record one workload, and judge what was recorded; its folder must not be there yet."""
        target = self.folder / truth.name
        marks = self.folder / f"{truth.name}.marks"
        said = self._record(truth, target, marks)
        if said or not marks.exists():
            return WorkloadJudgement(truth, UNKNOWN, text=said or "the workload left no marks")
        document = json.loads(marks.read_bytes())
        marks.unlink()
        _close(target)
        write_document(target, truth, document, self.place)
        return judge_folder(target)

    def probe_counters(self) -> None:
        """Record the resting GPU for a moment.

        Raises:
            CountersClosed: its SMs and pipes are not told; says why.
        """
        reason = ""
        for seconds in _PROBED_S:
            reason = self._counters_closed(seconds)
            if not reason:
                return
        raise CountersClosed(
            f"the performance counters of this GPU cannot be read: {reason}",
            given=self.place.get("gpus"),
            allowed="an NVIDIA GPU of the Hopper generation or newer whose counters are open to this user",
            next="try outside of sandboxes and containers, or ask the operators to open the counters to users"
            " (NVIDIA: NVreg_RestrictProfilingToAdminUsers=0)",
        )

    def _counters_closed(self, seconds: float) -> str:
        """Return why nothing is told of SMs when the GPU is recorded for some seconds, empty when it is."""
        from cordee.systems.score.load import load

        with tempfile.TemporaryDirectory(prefix="cordee-probe-", ignore_cleanup_errors=True) as folder:
            target = Path(folder) / "probe"
            env = {**environment(), **self.variables}
            words = [*self._recorder(target), "sleep", f"{seconds:g}"]
            done = subprocess.run(words, capture_output=True, text=True, check=False, env=env, timeout=_PATIENCE_S)
            try:
                trace = load(target)
            except CordeeError as error:
                return error.text if done.returncode == 0 else f"{error.text}: {done.stderr.strip()}"
            values = trace.load(_COUNTER) if trace.kind == "gpu" else None
            if values is not None and bool((values == values).any()):
                return ""
            return trace.missing.get(_COUNTER) or _refused(target) or "the source does not tell them"

    def _recorder(self, target: Path) -> list[str]:
        words = module_argv("cordee.cli", "record", "-q", "-o", str(target), user_site=True)
        return [*words, "--interval", f"{self.interval_s:g}s", "--threads", "--"]

    def _record(self, truth: LabelledWorkload, target: Path, marks: Path) -> str:
        """Return why it could not be run to its end, empty when it was."""
        given = ["--seconds", f"{self.steady_s:g}", "--marks", str(marks), "--with", json.dumps(truth.given)]
        program = module_argv(_PROGRAMS, truth.program, *given, python=self.python, user_site=True)
        recorder = [*self._recorder(target), *program]
        output = self.folder / f"{truth.name}.{_OUTPUT}"
        with output.open("wb") as file:
            streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
            env = {**environment(), **self.variables}
            child = subprocess.Popen(recorder, env=env, start_new_session=True, **streams)  # type: ignore[call-overload]
            try:
                code = child.wait(self.steady_s + _PATIENCE_S)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
        said = output.read_text(errors="replace").strip().splitlines()
        if code == 0:
            output.unlink()
            return ""
        words = _obstacle(said) or " | ".join(said[-_LAST_LINES:]) or "it printed nothing"
        return words if code == 3 else f"ended with {_ending(code)}: {words}"


def judge_folder(folder: Path) -> WorkloadJudgement:
    """Judge a recorded workload from what lies in its folder; nothing is run.

    Raises:
        UsageError: it is no recording of a validation.
    """
    from cordee.systems.score.load import load
    from cordee.systems.score.score import score

    truth, document = read_document(folder)
    try:
        trace = load(folder)
        judgement = judge(truth, trace, document, partial(score, least_s=0.0))
    except CordeeError as error:
        return WorkloadJudgement(truth, UNKNOWN, text=error.text)
    except ImportError as error:
        text = f"it cannot be judged here: {error}; judge the recording elsewhere with --from"
        return WorkloadJudgement(truth, UNKNOWN, text=text)
    except Exception as error:
        # One recording that cannot be judged does not take the others along.
        _log.exception("judging %s", folder)
        return WorkloadJudgement(truth, UNKNOWN, text=f"judging it failed: {type(error).__name__}: {error}")
    if trace.kind != truth.device:
        judgement.text = "; ".join(part for part in (judgement.text, _refused(folder)) if part)
    return judgement


def _refused(folder: Path) -> str:
    """Return what the samplers of a recording were refused, with the reasons."""
    recorders = read_recorders(RunFolder(folder))[0]
    return "; ".join(f"{name}: {why}" for one in recorders for name, why in one.refused.items())


def validate(
    conduct: Conduct, wanted: list[LabelledWorkload], minutes: float, after_each: Callable[[WorkloadJudgement], None]
) -> list[WorkloadJudgement]:
    """Run and judge workloads in turn, all within `minutes`; `after_each` hears of each.

    What workloads took to start so far decides how much labelled time is left for those to come.

    Raises:
        UsageError: that is too little time, or the place of a recording is taken.
    """
    steady_seconds(minutes, len(wanted), wanted[0].device)
    for truth in wanted:
        if (conduct.folder / truth.name).exists():
            raise UsageError(
                "this place is taken", given=str(conduct.folder / truth.name), next="choose a new folder with -o"
            )
    conduct.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found: list[WorkloadJudgement] = []
    until = time.monotonic() + minutes * 60.0
    starts_s = [_START_UP_S[wanted[0].device]]
    for at, truth in enumerate(wanted):
        begun = time.monotonic()
        start_s = sum(starts_s) / len(starts_s)
        steady_s = _limited((until - begun) / (len(wanted) - at) - start_s)
        found.append(replace(conduct, steady_s=steady_s).run(truth))
        starts_s.append(max(0.0, time.monotonic() - begun - steady_s))
        after_each(found[-1])
    return found


def steady_seconds(minutes: float, workloads: int, device: str) -> float:
    """Return the labelled seconds of each workload so that all end within `minutes`, with what they are expected to take to start.

    Raises:
        UsageError: that is too little time.
    """
    each = minutes * 60.0 / max(1, workloads) - _START_UP_S[device]
    if each < _SHORTEST_STEADY_S:
        least = workloads * (_START_UP_S[device] + _SHORTEST_STEADY_S) / 60.0
        raise UsageError(
            f"{workloads} workloads do not fit into this time",
            given=f"--minutes {minutes:g}",
            allowed=f"{least:.1f} or more",
            next="give more minutes, or choose some workloads with --only",
        )
    return _limited(each)


def _limited(seconds: float) -> float:
    return min(_LONGEST_STEADY_S, max(_SHORTEST_STEADY_S, seconds))


def find_gpu(python: str) -> dict[str, Any]:
    """Return what the interpreter's torch sees: `{gpus, torch, cuda}`.

    Raises:
        NoGpu: it sees none.
        CordeeError: the interpreter cannot be run.
    """
    try:
        ask = module_argv(_PROGRAMS, "probe", python=python, user_site=True)
        done = subprocess.run(ask, capture_output=True, text=True, check=False, env=environment(), timeout=_PATIENCE_S)
        seen: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise CordeeError(f"the workloads' interpreter cannot be asked: {error}", given=python) from None
    if not seen["gpus"]:
        raise NoGpu(
            f"there is no GPU to validate on: {seen['why']}",
            given=python,
            allowed="a machine with an NVIDIA GPU, and a Python with torch built for CUDA (--python)",
            next="run it on a GPU node, or exercise the same way on this machine's cores with --device cpu",
        )
    return seen


def one_gpu(seen: dict[str, Any]) -> dict[str, str]:
    """Return the variable that leaves workloads and recorder the first of several GPUs: the others would rest, and count."""
    first = seen.get("gpus", [])[:1]
    alone = len(seen.get("gpus", [])) < 2
    return {} if alone or not first[0]["uuid"] else {"CUDA_VISIBLE_DEVICES": first[0]["uuid"]}


def environment() -> dict[str, str]:
    """Return the environment of workloads: that of here, in which this Cordée is found."""
    ours = str(Path(cordee.__file__).parents[1])
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != ours]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([ours, *others])}


def this_place() -> dict[str, Any]:
    """Return the machine, the date and the version, for the recordings."""
    about = {"driver": driver} if (driver := driver_version()) else {}
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": cpu_field("/", "model name") or os.uname().machine,
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": os.uname().release.partition("-")[0],
        "version": cordee.__version__,
        **about,
    }


def _close(recording: Path) -> None:
    """Wait until the sampler has closed the recording, and leave of paths in the recorded command the last names.

    Recordings of a validation are kept, and read elsewhere.
    """
    folder = RunFolder(recording)
    until = time.monotonic() + _CLOSING_S
    while any(one.ended_at is None for one in read_recorders(folder)[0]) and time.monotonic() < until:
        time.sleep(0.05)
    for recorder in read_recorders(folder)[0]:
        for rank in recorder.ranks:
            rank.argv = [word if word.startswith("{") else word.rpartition("/")[2] for word in rank.argv]
        write_recorder(folder, recorder)


def _obstacle(said: list[str]) -> str:
    for line in reversed(said):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and "cannot" in document:
            return str(document["cannot"])
    return ""


def _ending(code: int | None) -> str:
    if code is None:
        return "its time over"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def judge_recordings(folder: Path, only: str = "") -> list[WorkloadJudgement]:
    """Judge all recordings of an earlier validation below a folder, or that one itself, by name.

    Raises:
        UsageError: there is none.
    """
    documents = sorted([*folder.glob(DOCUMENT), *folder.glob(f"*/{DOCUMENT}")])
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    found = [judge_folder(document.parent) for document in documents]
    found = [one for one in found if not wanted or one.truth.name in wanted]
    if not found:
        raise UsageError(
            "there are no recordings of a validation here",
            given=f"{folder} {only}".strip(),
            next="make some with `cordee score validate -o DIR`",
        )
    return found
