"""`cordee init`: looks at a folder and writes a commented cordee.toml for what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cordee.core.backends import BUILT_IN, backend, known
from cordee.core.documents.faults import fault_error
from cordee.core.documents.files import write_new
from cordee.core.documents.toml_text import quoted
from cordee.core.errors import DocumentError
from cordee.core.parts import load
from cordee.job.conversion import Conversion, Left, ScriptReader
from cordee.job.inspect_folder import JobDraft, inspect_folder
from cordee.job.load import FILE_NAME


@dataclass(frozen=True)
class Written:
    """A document that was written.

    Attributes:
        notes: sentences for the person.
        source: the job script that it was made from, None without one.
        left: what of that script is not carried over, or means something else.
    """

    path: Path
    notes: list[str]
    source: Path | None = None
    left: Sequence[Left] = ()


def write_draft(folder: Path, source: Path | None = None) -> Written:
    """Write a cordee.toml into a folder, from a job script where there is one.

    Args:
        source: the script to read; None for the most likely one of the folder.

    Raises:
        DocumentError: there is one already, there is no such folder, it cannot be written, or `source` is no script.
    """
    path = folder.absolute() / FILE_NAME
    if not folder.is_dir():
        raise fault_error(
            f"there is no folder {folder}" if not folder.exists() else f"{folder} is no folder",
            "no-folder",
            given=str(folder),
            allowed="a folder, or a job script",
            next=f"mkdir {folder}" if not folder.exists() else "give a folder",
        )
    reader, scripts = _reader(source.parent if source else folder, source)
    if source is None and scripts:
        source = folder / scripts[0]
    found = reader.convert(source) if source else None
    draft = inspect_folder(folder.absolute(), found)
    text = render_toml(draft)
    if source and found:
        draft.notes[:0] = _about_script(source, scripts, found)
        run = found.run or draft.run
        lines = _checkpoint_lines(draft)
        text = reader.render(found, source=source.name, name=draft.name, run=run, checkpoint=lines)
    write_new(path, text)
    if found and found.image and found.environment:
        write_new(path.with_name(found.environment), f"image = {quoted(found.image)}\n", "cordee env check")
        draft.notes.append(f"{found.environment} names the image that the ranks run in")
    return Written(path, draft.notes, source, found.left if found else ())


def render_toml(draft: JobDraft) -> str:
    """Return the document of a draft, with a comment on everything that a newcomer may want to change."""
    gpus = f"gpus_per_node = {draft.gpus}" if draft.gpus else "# gpus_per_node = 4"
    lines = [
        f"name = {quoted(draft.name)}",
        f"run = {quoted(draft.run)}",
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
        '# protocol = "host"  # more checks: a built-in protocol, or a YAML file; `cordee vet --list` shows what there is',
        "",
        *_checkpoint_lines(draft),
        "",
        "# [env]",
        '# OMP_NUM_THREADS = "1"',
    ]
    if draft.gpus:
        lines += ["", "# [on.laptop]        # what differs on another cluster", "# need = { gpus_per_node = 0 }"]
    return "\n".join(lines) + "\n"


def _reader(folder: Path, script: Path | None) -> tuple[ScriptReader, list[str]]:
    """Return the back end's reader that finds this script in a folder (None: any), else one that can read it, and what is
    found, its own first."""
    names = dict.fromkeys([*BUILT_IN, *known()])
    readers: list[ScriptReader] = [load(part) for name in names if (part := backend(name).scripts)]
    found = [(reader, reader.find(folder)) for reader in readers]
    others = [name for _, scripts in found for name in scripts]
    for reader, scripts in found:
        if script.name in scripts if script else scripts:
            return reader, list(dict.fromkeys([*scripts, *others]))
    return next((reader for reader in readers if script and _reads(reader, script)), readers[0]), others


def _reads(reader: ScriptReader, script: Path) -> bool:
    try:
        reader.convert(script)
    except DocumentError:
        return False
    return True


def _checkpoint_lines(draft: JobDraft) -> list[str]:
    stop = [f"grace = {quoted(draft.grace)}   # from the signal until the end"] if draft.grace else []
    if draft.signal:
        stop.insert(
            0, f"signal = {quoted(draft.signal)}      # the script handles it: it is sent before the time is over"
        )
    mark = "" if draft.grace else "# "
    if draft.goes_on:
        return [
            "# The script continues from its newest checkpoint by itself (cordee.checkpointer); they lie in the run's folder.",
            f"{mark}[checkpoint]",
            *(stop if draft.grace else ()),
            '# every = "30min"    # how often cordee.checkpointer saves',
        ]
    if draft.resume and draft.pattern:
        lines = [
            "[checkpoint]         # a restart continues from the newest one",
            f"path = {quoted(draft.checkpoint_path or 'checkpoints')}",
            f"pattern = {quoted(draft.pattern)}   # what a complete checkpoint is called",
            f"resume = {quoted(draft.resume)}   # appended when there is one",
        ]
        return [*lines, *stop]
    return [
        "# No resume command is configured: a restart starts training from scratch.",
        "# Either save with cordee.checkpointer(...), or say what your script does:",
        f"{mark}[checkpoint]",
        *(stop if draft.grace else ()),
        f"# path = {quoted(draft.checkpoint_path or 'checkpoints')}",
        f"# pattern = {quoted(draft.pattern or 'step-*')}",
        f"# resume = {quoted(draft.resume or '--resume {checkpoint}')}",
    ]


def _about_script(source: Path, scripts: list[str], found: Conversion) -> list[str]:
    notes = [f"{source.name} is the job script; the document does what it does"]
    if scripts[1:]:
        notes.append(f"other job scripts: {', '.join(scripts[1:])}; `cordee init FILE` reads another")
    if not found.directives:
        notes.append(f"{source.name} has no #SBATCH lines: what was given to sbatch by hand is not known")
    if found.run is None:
        notes.append(f"{source.name} has no command of its own that starts a training: check `run`")
    return notes
