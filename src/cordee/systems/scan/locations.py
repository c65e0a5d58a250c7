"""What a job names: where models, checkpoints and data lie that it would load, and the code that its run keeps."""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan
from cordee.machine.foreign_files import read_regular
from cordee.runs.snapshot import LARGEST_FILE_BYTES, code_names

# Data sets of millions of files are looked at by `cordee scan`; a gate that takes minutes is switched off.
MOST_FILES, MOST_OF_DATA = 2_000, 200
PROGRAMS = (".py", ".sh")
_MOST_SCRIPTS, _LONGEST_SCRIPT_BYTES = 200, 1 << 20
_REPOSITORY = re.compile(r"(?:[\w.-]{1,96}/)?[\w.-]{1,96}")
# What a script loads by a name that stands in it.
_LOADED = re.compile(
    r"(?:\b(?:load|load_model|load_file|load_dataset|read_pickle|torch_load|unpickle|snapshot_download|hf_hub_download|pipeline)|\.from_pretrained)"
    r"\(\s*(?:\w+\s*=\s*)?(?:open\(\s*)?[rbuRBU]{0,2}[\"'](?P<name>[^\"'\n{}\0]{1,300})[\"']"
)


class ScanLocation(NamedTuple):
    """A file or folder that a job names.

    Attributes:
        path: of it.
        most: how many of its files are looked at.
        without: a folder that is passed over.
    """

    path: str
    most: int
    without: Path | None = None

    def files(self) -> Iterator[str]:
        """Yield its regular files, at most as many as are looked at."""
        return itertools.islice(_below(self.path, self.without), self.most)

    @property
    def whole(self) -> bool:
        """Whether all of its files are looked at."""
        return next(itertools.islice(_below(self.path, self.without), self.most, None), None) is None


def locations(loaded: LoadedJob, plan: Plan, code: Iterable[str]) -> Iterator[ScanLocation]:
    """Yield what a job would load: its checkpoints, what its command, its variables and its scripts name, its data sets that lie here.

    A word such as `org/name` that is no path stands for the repository in Hugging Face's cache, where it is there.

    Args:
        loaded: the job.
        plan: of it.
        code: the files of its folder, relative to it.
    """
    step, folder = plan.step, loaded.folder
    if step.checkpoint.declared:
        yield ScanLocation(step.checkpoint.path, MOST_FILES, Path(plan.folder).parent)  # runs are Cordée's own
    for begun in step.checkpoint.begin.checkpoints if step.checkpoint.begin else ():
        yield ScanLocation(begun, MOST_FILES)
    words = [*_values(step.tasks.argv[1:]), *loaded.job.env.values()]
    yield from _named(words, folder, loaded, every=True)
    yield from _named(_script_names(folder, code), folder, loaded, every=False)
    for one in loaded.job.data.values():
        if "://" not in one.source:
            yield ScanLocation(str(folder / one.source), MOST_OF_DATA)


def job_code(loaded: LoadedJob, run_folder: Path) -> list[str]:
    """Return the files that the run's snapshot would carry, relative to the job's folder."""
    own = loaded.job.checkpoint.path if loaded.job.checkpoint else None
    without = [run_folder, run_folder.parent, *([loaded.folder / own] if own else [])]
    names = code_names(loaded.folder, tuple(without))
    return [name for name in names if _is_carried(loaded.folder / name)]


def _is_carried(path: Path) -> bool:
    try:
        about = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST_FILE_BYTES


def text_of(path: Path) -> str:
    """Return the text of a file; an empty one where it cannot be read or is no text of a sensible size."""
    try:
        return read_regular(path, limit_bytes=_LONGEST_SCRIPT_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _values(argv: Iterable[str]) -> Iterator[str]:
    for word in argv:
        yield word.partition("=")[2] if word.startswith("-") or re.match(r"[\w.+~]+=", word) else word


def _script_names(folder: Path, code: Iterable[str]) -> Iterator[str]:
    """Yield the names that scripts give to functions that load."""
    scripts = (name for name in code if name.endswith((".py", ".ipynb")))
    for name in itertools.islice(scripts, _MOST_SCRIPTS):
        text = text_of(folder / name).replace('\\"', '"')
        yield from (found["name"] for found in _LOADED.finditer(text))


def _named(words: Iterable[str], folder: Path, loaded: LoadedJob, *, every: bool) -> Iterator[ScanLocation]:
    """Yield the places that words name: paths, but for folders in which the job lies itself, and repositories.

    Args:
        words: that may be names.
        folder: of the job.
        loaded: the job.
        every: whether folders count, too; in a script "data" is more often a word than the folder of that name.
    """
    hubs, told = list(_hubs(loaded)), list(words)
    for value in dict.fromkeys(told):
        if not value or "\0" in value or "://" in value or len(value) > 4096:
            continue
        path = folder / os.path.expanduser(value)
        if os.path.isfile(path) or (every and os.path.isdir(path)):
            if not folder.resolve().is_relative_to(path.resolve()):
                yield ScanLocation(str(path), MOST_FILES)
        elif _REPOSITORY.fullmatch(value):
            for hub in hubs:
                yield from (ScanLocation(str(one), MOST_FILES) for one in _snapshots(hub, value, told))


def _hubs(loaded: LoadedJob) -> Iterator[Path]:
    """Yield the folders in which Hugging Face's libraries would look. Source: huggingface_hub/constants.py, transformers.utils.hub."""
    env = {**os.environ, **loaded.job.env}
    cache = Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = Path(env.get("HF_HOME") or cache / "huggingface").expanduser()
    named = [env.get(name) for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")]
    for hub in dict.fromkeys([*(Path(name).expanduser() for name in named if name), home / "hub"]):
        if hub.is_dir():
            yield hub


def _snapshots(hub: Path, repository: str, words: Sequence[str]) -> Iterator[Path]:
    """Yield the snapshots of a repository that a job may load: of the branches and commits that it names, and of `main`; else all."""
    for kind in ("models", "datasets"):
        kept = hub / f"{kind}--{repository.replace('/', '--')}"
        snapshots = kept / "snapshots"
        if not snapshots.is_dir():
            continue
        commits = {text_of(kept / "refs" / word).strip() for word in ("main", *words) if _REPOSITORY.fullmatch(word)}
        there = sorted(snapshots.iterdir())
        yield from [one for one in there if one.name in commits or one.name in words] or there


def _below(place: str, without: Path | None) -> Iterator[str]:
    if os.path.isfile(place):
        yield place
    elif os.path.isdir(place):
        for folder, folders, names in os.walk(place):
            folders[:] = sorted(name for name in folders if Path(folder, name) != without)
            yield from (path for name in sorted(names) if os.path.isfile(path := os.path.join(folder, name)))


def seen_document(loaded: LoadedJob, plan: Plan, code: Sequence[str], at: float) -> str:
    """Return what ranks are told of the gate: what lies at or below these places was looked at, as it was at that time (seconds since 1970)."""
    looked = [place.path for place in locations(loaded, plan, code) if place.whole]
    looked += [str(loaded.folder / name) for name in code if not name.endswith(PROGRAMS)][:MOST_FILES]
    return json.dumps({"schema": "cordee.scan-seen/1", "at": at, "places": sorted(set(map(os.path.realpath, looked)))})
