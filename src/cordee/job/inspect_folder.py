"""Looks at a folder: which script is the training, what it saves, and how it goes on."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from cordee.core.units import format_size
from cordee.job.command_line import job_name
from cordee.job.conversion import Conversion
from cordee.job.machine import this_machine
from cordee.job.scripts import Script, read_script

_SCRIPTS = ("train.py", "main.py", "pretrain.py", "finetune.py", "run.py", "run_train.py", "training.py")
_NO_SCRIPTS = re.compile(r"(setup|conftest|__init__|noxfile|fabfile|test_.*|.*_test)\.py\Z")
_REQUIREMENTS = ("requirements.txt", "pyproject.toml", "environment.yml", "environment.yaml", "setup.py")
_CHECKPOINT_FOLDERS = ("checkpoints", "checkpoint", "ckpt", "ckpts", "outputs", "output", "out")
_DATA_FOLDERS = ("data", "dataset", "datasets", "corpus")
_NUMBERED = re.compile(r"\A(?=.*(?:step|ckpt|checkpoint|epoch|iter))[\w.-]*\*[\w.-]*\Z", re.IGNORECASE)
_MOST_ENTRIES = 20_000


@dataclass(frozen=True)
class JobDraft:
    """What was found in a folder.

    Attributes:
        resume: arguments for a restart with `{checkpoint}`, None when nothing says how.
        goes_on: whether the script goes on through Cordée's interface by itself.
        grace: from being asked to stop until the end, where a job script says so.
        notes: sentences for the person.
    """

    name: str
    script: str | None
    run: str | list[str]
    gpus: int
    checkpoint_path: str | None
    pattern: str | None
    resume: str | None
    goes_on: bool
    signal: str | None
    notes: list[str] = field(default_factory=list)
    grace: str | None = None


def inspect_folder(folder: Path, found: Conversion | None = None) -> JobDraft:
    """Return what a folder holds, as far as it can be seen without running anything.

    Args:
        found: what a job script says; it names the script and the signal.
    """
    notes: list[str] = []
    name = found.script if found and found.run else _best_script(folder)
    script = read_script(folder / name, folder) if name else Script()
    if found and found.run and (name is None or not (folder / name).is_file()):
        script = Script()
    elif name is None:
        notes.append("no Python script was found: set `run` to your command")
    elif not script.parsed:
        notes.append(f"{name} cannot be read as Python {_version()}: what it saves and how it continues is not known")
    else:
        using = ", ".join(script.frameworks)
        notes.append(f"{name} is the script" + (f"; it uses {using}" if using else ""))
    gpus = int(this_machine()["gpus"])
    if gpus and found is None:
        notes.append(f"this machine has {gpus} GPU{'s' if gpus > 1 else ''}")
    path, pattern, resume = _checkpoints(folder, script, notes)
    notes += _surroundings(folder)
    signal = next((name for name in ("USR1", "USR2") if name in script.signals), None)
    draft = JobDraft(
        name=job_name(found.name if found and found.name else folder.resolve().name),
        script=name,
        run=_run(name),
        gpus=gpus,
        checkpoint_path=path,
        pattern=pattern,
        resume=resume,
        goes_on=script.goes_on,
        signal=signal,
        notes=notes,
    )
    if found and found.checkpoint:
        return replace(draft, signal=found.checkpoint.get("signal"), grace=found.checkpoint["grace"])
    return draft


def _best_script(folder: Path) -> str | None:
    names = [name for name in _entries(folder) if name.endswith(".py") and not _NO_SCRIPTS.match(name)]
    for below in ("scripts", "src", "bin"):
        names += [f"{below}/{name}" for name in _entries(folder / below) if name in _SCRIPTS]
    for wanted in _SCRIPTS:
        for name in names:
            if PurePath(name).name == wanted:
                return name
    ranked = []
    for name in sorted(names)[:50]:
        script = read_script(folder / name)
        score = 4 * ("train" in name.lower()) + 2 * bool(script.frameworks) + script.main_guard
        ranked.append((-score, name))
    return min(ranked)[1] if ranked else None


def _checkpoints(folder: Path, script: Script, notes: list[str]) -> tuple[str | None, str | None, str | None]:
    """Return (path, pattern, resume arguments) as far as the script and the folder show them."""
    if script.goes_on:
        notes.append("it continues from checkpoints by itself (cordee.checkpointer)")
        return None, None, None
    place = script.option("checkpoint-dir", "ckpt-dir", "save-dir", "output-dir", "out-dir", "--out")
    path = place.default if place and isinstance(place.default, str) and place.default else None
    if path is None:
        path = next((name for name in _CHECKPOINT_FOLDERS if (folder / name).is_dir()), None)
    texts = [PurePath(text).name for text in script.texts if "*" in text and "\n" not in text and text.strip()]
    pattern = next((text for text in texts if _NUMBERED.match(text)), None)
    if pattern is None and "transformers" in script.frameworks:
        pattern = "checkpoint-*"
    option = script.option("resume", "load-checkpoint", "from-checkpoint", "ckpt-path", "load-ckpt")
    resume = None
    if option and option.takes_value:
        resume = f"{option.name} {{checkpoint}}"
        notes.append(f"it has the option {option.name}" + (f" and saves as {pattern}" if pattern else ""))
        if pattern is None:
            notes.append("what its checkpoints are called could not be seen: set [checkpoint] pattern")
    elif option:
        notes.append(f"it has the option {option.name}, which names no checkpoint: add it to `run` if it finds its own")
    if resume is None and script.parsed:
        saved = ", ".join(script.savers)
        notes.append(
            (f"it saves with {saved}, but " if saved else "")
            + "no resume command is configured: a restart starts training from scratch"
        )
    return path, pattern, resume


def _surroundings(folder: Path) -> list[str]:
    notes = []
    found = [name for name in _REQUIREMENTS if (folder / name).is_file()]
    if found:
        notes.append(f"{found[0]} says what it needs: install it where `python` is")
    for name in _DATA_FOLDERS:
        if (folder / name).is_dir():
            files, size, whole = _measure(folder / name)
            least = "" if whole else "at least "
            notes.append(f"{name} holds {least}{files} file{'s' if files != 1 else ''}, {format_size(size)}")
    return notes


def _measure(folder: Path) -> tuple[int, int, bool]:
    files, size = 0, 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
            files += 1
            if files >= _MOST_ENTRIES:
                return files, size, False
    return files, size, True


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.isprintable())
    except OSError:
        return []


def _run(script: str | None) -> str | list[str]:
    if script is None:
        return "python train.py"
    return (
        f"python {script}"
        if re.fullmatch(r"[\w./-]+", script) and not script.startswith("-")
        else ["python", f"./{script}"]
    )


def _version() -> str:
    import sys

    return f"{sys.version_info.major}.{sys.version_info.minor}"
