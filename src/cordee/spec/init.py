"""`cordee init`: looks at a folder and writes a commented cordee.toml for what is there."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from cordee.spec.faults import fault_error
from cordee.spec.load import FILE_NAME
from cordee.spec.machine import this_machine
from cordee.spec.scripts import Script, read_script
from cordee.units import format_size

_SCRIPTS = ("train.py", "main.py", "pretrain.py", "finetune.py", "run.py", "run_train.py", "training.py")
_NO_SCRIPTS = re.compile(r"(setup|conftest|__init__|noxfile|fabfile|test_.*|.*_test)\.py\Z")
_REQUIREMENTS = ("requirements.txt", "pyproject.toml", "environment.yml", "environment.yaml", "setup.py")
_CHECKPOINT_FOLDERS = ("checkpoints", "checkpoint", "ckpt", "ckpts", "outputs", "output", "out")
_DATA_FOLDERS = ("data", "dataset", "datasets", "corpus")
_NUMBERED = re.compile(r"\A(?=.*(?:step|ckpt|checkpoint|epoch|iter))[\w.-]*\*[\w.-]*\Z", re.IGNORECASE)
_MOST_ENTRIES = 20_000


@dataclass(frozen=True)
class Draft:
    """What was found in a folder.

    Attributes:
        resume: arguments for a restart with `{checkpoint}`, None when nothing says how.
        goes_on: whether the script goes on through Cordée's interface by itself.
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


def write_draft(folder: Path) -> tuple[Path, list[str]]:
    """Write a cordee.toml into a folder and return its path with what there is to say.

    Raises:
        DocumentError: there is one already, there is no such folder, or it cannot be written.
    """
    path = folder.absolute() / FILE_NAME
    if not folder.is_dir():
        what = f"mkdir {folder}"
        raise fault_error(f"there is no folder {folder}", "no-folder", given=str(folder), allowed="a folder", next=what)
    draft = inspect_folder(folder.absolute())
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(render_toml(draft))
    except FileExistsError:
        raise fault_error(
            f"there is a {FILE_NAME} already",
            "exists",
            file=str(path),
            given=str(path),
            allowed=f"a folder without a {FILE_NAME}",
            next="`cordee check` says whether it is right; move it away to begin anew",
        ) from None
    except OSError as error:
        text = f"cannot write {FILE_NAME}: {error.strerror}"
        allowed = "a folder that you may write"
        raise fault_error(
            text, "unwritable", file=str(path), given=str(folder), allowed=allowed, next="choose another folder"
        ) from None
    return path, draft.notes


def inspect_folder(folder: Path) -> Draft:
    """Return what a folder holds, as far as it can be seen without running anything."""
    notes: list[str] = []
    name = _best_script(folder)
    script = read_script(folder / name, folder) if name else Script()
    if name is None:
        notes.append("no Python script was found: set `run` to your command")
    elif not script.parsed:
        notes.append(f"{name} cannot be read as Python {_version()}: what it saves and how it goes on is not known")
    else:
        using = ", ".join(script.frameworks)
        notes.append(f"{name} is the script" + (f"; it uses {using}" if using else ""))
    gpus = int(this_machine()["gpus"])
    if gpus:
        notes.append(f"this machine has {gpus} GPU{'s' if gpus > 1 else ''}")
    path, pattern, resume = _checkpoints(folder, script, notes)
    notes += _surroundings(folder)
    signal = next((name for name in ("USR1", "USR2") if name in script.signals), None)
    return Draft(
        name=_job_name(folder),
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


def render_toml(draft: Draft) -> str:
    """Return the document of a draft, with a comment on everything that a newcomer may want to change."""
    gpus = f"gpus_per_node = {draft.gpus}" if draft.gpus else "# gpus_per_node = 4"
    lines = [
        f"name = {_quoted(draft.name)}",
        f"run = {_quoted(draft.run)}",
        '# No shell runs this. For pipes, wildcards or $VARIABLES: run = ["bash", "-c", "..."]',
        '# setup = ["module load cuda"]   # shell lines before the ranks, on every node',
        "",
        "[need]",
        "nodes = 1            # on a laptop a node is a process: `cordee run --nodes 2` tries two",
        "# spare_nodes = 1    # asked for on top, so that a bad node can be left out",
        f"{gpus:<20} # one rank for each, one rank per node without GPUs",
        "# ranks_per_node = 2",
        '# time = "2h"        # the ranks are stopped in time to save',
        "",
        "[vet]                # looked at on every node before the ranks start",
        '# modules = ["torch"]',
        '# commands = ["git"]',
        "",
        *_checkpoint_lines(draft),
        "",
        "# [env]",
        '# OMP_NUM_THREADS = "1"',
    ]
    if draft.gpus:
        lines += ["", "# [on.laptop]        # what differs on another cluster", "# need = { gpus_per_node = 0 }"]
    return "\n".join(lines) + "\n"


def _checkpoint_lines(draft: Draft) -> list[str]:
    if draft.goes_on:
        return [
            "# The script goes on from its newest checkpoint by itself (cordee.checkpointer); they lie in the run's folder.",
            "# [checkpoint]",
            '# every = "30min"    # how often cordee.checkpointer saves',
        ]
    if draft.resume and draft.pattern:
        lines = [
            "[checkpoint]         # a restart goes on from the newest one",
            f"path = {_quoted(draft.checkpoint_path or 'checkpoints')}",
            f"pattern = {_quoted(draft.pattern)}   # what a complete checkpoint is called",
            f"resume = {_quoted(draft.resume)}   # appended when there is one",
        ]
        if draft.signal:
            lines.append(
                f"signal = {_quoted(draft.signal)}      # the script handles it: it is sent before the time is over"
            )
        return lines
    return [
        "# Nothing says how the script goes on from a checkpoint: a restart begins at zero.",
        "# Either save with cordee.checkpointer(...), or say what your script does:",
        "# [checkpoint]",
        f"# path = {_quoted(draft.checkpoint_path or 'checkpoints')}",
        f"# pattern = {_quoted(draft.pattern or 'step-*')}",
        f"# resume = {_quoted(draft.resume or '--resume {checkpoint}')}",
    ]


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
        notes.append("it goes on from checkpoints by itself (cordee.checkpointer)")
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
            (f"it saves with {saved}, but " if saved else "") + "nothing says how it goes on: a restart begins at zero"
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


def _job_name(folder: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")[:64]
    return name or "training"


def _run(script: str | None) -> str | list[str]:
    if script is None:
        return "python train.py"
    return (
        f"python {script}"
        if re.fullmatch(r"[\w./-]+", script) and not script.startswith("-")
        else ["python", f"./{script}"]
    )


def _quoted(value: str | list[str]) -> str:
    """Return a text or a list of texts as TOML has it."""
    if isinstance(value, list):
        return "[" + ", ".join(_quoted(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _version() -> str:
    import sys

    return f"{sys.version_info.major}.{sys.version_info.minor}"
