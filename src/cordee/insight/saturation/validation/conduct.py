"""Running the labelled workloads, one after the other, each below the real recorder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cordee
from cordee.errors import CordeeError, UsageError
from cordee.hardware.machine import cpu_field
from cordee.insight.saturation.result import UNKNOWN
from cordee.insight.saturation.validation.judge import DOCUMENT, Judgement, judge, read_document, write_document
from cordee.insight.saturation.validation.truths import Truth
from cordee.runs.folder import RunFolder
from cordee.runs.recording import read_recorders, write_recorder

_PROGRAMS = "cordee.insight.saturation.validation.programs"
_START_UP_S = {"gpu": 7.0, "cpu": 3.0}
_LONGEST_STEADY_S, _SHORTEST_STEADY_S = 20.0, 5.0
_PATIENCE_S = 90.0
_CLOSING_S = 10.0
_OUTPUT = "output.txt"
_LAST_LINES = 3


class NoGpu(UsageError):
    """There is no GPU to validate on."""

    kind = "no_gpu"


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

    def run(self, truth: Truth) -> Judgement:
        """Run and record one workload, and judge what was recorded; its folder must not be there yet."""
        target = self.folder / truth.name
        marks = self.folder / f"{truth.name}.marks"
        said = self._record(truth, target, marks)
        if said or not marks.exists():
            return Judgement(truth, UNKNOWN, text=said or "the workload left no marks")
        document = json.loads(marks.read_bytes())
        marks.unlink()
        _close(target)
        write_document(target, truth, document, self.place)
        return judge_folder(target)

    def _record(self, truth: Truth, target: Path, marks: Path) -> str:
        """Return why it could not be run to its end, empty when it was."""
        program = [self.python, "-m", _PROGRAMS, truth.program, "--seconds", f"{self.steady_s:g}"]
        program += ["--marks", str(marks), "--with", json.dumps(truth.given)]
        recorder = [sys.executable, "-m", "cordee.cli", "record", "-q", "-o", str(target)]
        recorder += ["--interval", f"{self.interval_s:g}s", "--threads", "--", *program]
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


def judge_folder(folder: Path) -> Judgement:
    """Judge a recorded workload from what lies in its folder; nothing is run.

    Raises:
        UsageError: it is no recording of a validation.
    """
    from cordee.insight.saturation.load import load
    from cordee.insight.saturation.score import score

    truth, document = read_document(folder)
    try:
        trace = load(folder)
    except CordeeError as error:
        return Judgement(truth, UNKNOWN, text=error.text)
    judgement = judge(truth, trace, document, score)
    if trace.kind != truth.device:
        refused = [
            f"{name}: {why}" for one in read_recorders(RunFolder(folder))[0] for name, why in one.refused.items()
        ]
        judgement.text = "; ".join([judgement.text, *refused])
    return judgement


def validate(
    conduct: Conduct, wanted: list[Truth], minutes: float, after_each: Callable[[Judgement], None]
) -> list[Judgement]:
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
    found: list[Judgement] = []
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
        ask = [python, "-m", _PROGRAMS, "probe"]
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
    about = {"driver": driver} if (driver := _driver()) else {}
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": cpu_field("/", "model name") or os.uname().machine,
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": os.uname().release.partition("-")[0],
        "version": cordee.__version__,
        **about,
    }


def _driver() -> str:
    from cordee.hardware.gpus import GpusUnreadable, open_gpus

    try:
        return open_gpus().driver_version or ""
    except GpusUnreadable:
        return ""


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


def judge_recordings(folder: Path, only: str = "") -> list[Judgement]:
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
