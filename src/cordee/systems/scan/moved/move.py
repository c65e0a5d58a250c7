"""Keys are taken out of scripts, notebooks and job documents into files of their own that only their owner may read."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cordee.core.documents.config_paths import config_folder
from cordee.core.errors import UsageError
from cordee.core.passwords import keys_and_passwords_in
from cordee.core.secret_forms import Key
from cordee.core.secrets import masked_output
from cordee.machine.foreign_files import regular
from cordee.systems.scan.moved.documents import in_job_document, in_notebook
from cordee.systems.scan.moved.scripts import in_python, in_shell

_LARGEST_BYTES = 4 << 20
_Rewriting = Callable[[str, Key, Path], str | None]
_LANGUAGES: dict[str, _Rewriting] = {"shell": in_shell, "python": in_python, "document": in_job_document}
_STAYS = ("is only a part of a text, or of a comment", "is no value of the job's own [env]")
_SHELLS = (".sh", ".bash", ".sbatch", ".slurm", ".job")


class MovedKeys(NamedTuple):
    """What was done to one file.

    Attributes:
        path: of it.
        files: where the keys lie now.
        left: keys that could not be moved: the line, and why.
        difference: of the file, as a unified diff without the keys.
    """

    path: str
    files: list[str]
    left: list[str]
    difference: str


def move_keys(path: Path, folder: Path | None = None) -> MovedKeys:
    """Put the keys of a script, a notebook or a job document into files (mode 600), and have it read them from there.

    It is replaced at once as a whole, or stays as it is; a key is in its file, and that file on the disk, before it leaves the script.

    Args:
        path: of it.
        folder: for the keys; None: the person's own, `~/.config/cordee/keys`.

    Raises:
        UsageError: it is none of them, or the keys in it cannot be moved.
        OSError: a file cannot be read or written.
    """
    store = folder or config_folder(os.environ) / "keys"
    planned = _planned(Path(os.path.realpath(path)), store)
    for place, value in planned.moved.items():
        _keep(place, value)
    if planned.moved:
        _replace(planned.path, planned.data, planned.changed.encode(), planned.about)
    known = {planned.text[key.begin : key.end] for key in keys_and_passwords_in(planned.text)} | {
        *planned.moved.values()
    }
    before, after = (masked_output(text, known).splitlines() for text in (planned.text, planned.changed))
    name = planned.path.name
    changes = difflib.unified_diff(before, after, f"{name} before", f"{name} now", n=0, lineterm="")
    difference = "".join(f"{line}\n" for line in changes)
    return MovedKeys(str(planned.path), sorted(map(str, planned.moved)), planned.left, difference)


def can_move_keys(path: Path) -> bool:
    """Return whether `move_keys` would take all keys out of a file; nothing is written."""
    try:
        planned = _planned(Path(os.path.realpath(path)), Path("keys"))
    except (UsageError, OSError):
        return False
    return bool(planned.moved) and not planned.left


class _Planned(NamedTuple):
    """What a file will be: its bytes and text as they are, the text as it becomes, keys by their files, and what is left."""

    path: Path
    data: bytes
    about: os.stat_result
    text: str
    changed: str
    moved: dict[Path, str]
    left: list[str]


def _planned(path: Path, store: Path) -> _Planned:
    with open(regular(path), "rb") as file:
        about, data = os.fstat(file.fileno()), file.read(_LARGEST_BYTES + 1)
    text = _text(path, data)
    language = _language(path, text)
    if about.st_nlink > 1:
        raise UsageError("it has several names (hard links)", given=str(path), next="copy it, and move the copy's keys")

    def place_of(kind: str, value: str) -> Path:
        return store / f"{kind}-{hashlib.sha256(value.encode()).hexdigest()[:8]}"

    if language == "notebook":
        try:
            changed, moved, left = in_notebook(text, place_of)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"it is no notebook: {error}", given=str(path)) from None
    else:
        changed, moved, left = _rewritten(text, _LANGUAGES[language], place_of, downwards=language == "document")
    return _Planned(path, data, about, text, changed, moved, left)


def _rewritten(
    text: str, rewrite: _Rewriting, place_of: Callable[[str, str], Path], *, downwards: bool
) -> tuple[str, dict[Path, str], list[str]]:
    """Return a text without its keys, these by file, and which are left; `downwards`: what is written stands above the key."""
    changed, moved, left = text, {}, []
    for key in sorted(keys_and_passwords_in(text), key=lambda key: key.begin, reverse=not downwards):
        value = text[key.begin : key.end]
        place, at = place_of(key.kind, value), key.begin
        if downwards:
            about = at + len(changed) - len(text)
            found = (one.start() for one in re.finditer(re.escape(value), changed))
            at = min(found, key=lambda begin: abs(begin - about))
        try:
            again = rewrite(changed, key._replace(begin=at, end=at + len(value)), place)
        except (RecursionError, MemoryError):
            again = None
        if again is None:
            line = text.count("\n", 0, key.begin) + 1
            left.append(f"line {line}: the {key.kind} key {_STAYS[downwards]}: take it out by hand")
        else:
            changed, moved[place] = again, value
    return changed, moved, left if downwards else left[::-1]


def _text(path: Path, data: bytes) -> str:
    if len(data) > _LARGEST_BYTES:
        raise UsageError("it is too large for a script", given=str(path), allowed=f"{_LARGEST_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(
            "it is no text in UTF-8", given=str(path), allowed="scripts, notebooks, job documents"
        ) from None


def _language(path: Path, text: str) -> str:
    first = text.partition("\n")[0]
    if path.suffix in _SHELLS or (first.startswith("#!") and first.rstrip().endswith("sh")):
        return "shell"
    if path.suffix == ".ipynb":
        return "notebook"
    if path.suffix == ".toml":
        return "document"
    if path.suffix == ".py" or (first.startswith("#!") and "python" in first):
        return "python"
    raise UsageError(
        "keys are moved out of scripts, notebooks and job documents only",
        given=str(path),
        allowed=f"{', '.join(_SHELLS)}, .py, .ipynb, cordee.toml",
        next="take it out of other documents by hand: have the script read it from a file that only you may read (mode 600)",
    )


def _keep(place: Path, value: str) -> None:
    """Write a key to its file; the same key may lie there already."""
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        with open(regular(place), "rb") as file:
            about, there = os.fstat(file.fileno()), file.read(len(value.encode()) + 1)
        if there != value.encode() or about.st_uid != os.geteuid():
            raise UsageError(
                "something else lies where the key belongs", given=str(place), next="move it away"
            ) from None
        os.chmod(place, 0o600)
        return
    try:
        with open(descriptor, "wb") as file:
            file.write(value.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        os.unlink(place)
        raise


def _replace(path: Path, before: bytes, after: bytes, about: os.stat_result) -> None:
    """Put a script's new content in its place, with its mode; nobody sees a half of it."""
    descriptor, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(after)
            file.flush()
            os.fchmod(file.fileno(), stat.S_IMODE(about.st_mode))
            os.fsync(file.fileno())
        if path.read_bytes() != before:
            raise UsageError("it was changed meanwhile", given=str(path), next="try again: nothing was written")
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise
