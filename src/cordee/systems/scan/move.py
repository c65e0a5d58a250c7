"""Keys are taken out of scripts into files of their own that only their owner may read."""

from __future__ import annotations

import ast
import difflib
import hashlib
import io
import os
import shlex
import stat
import tempfile
import tokenize
from pathlib import Path
from typing import NamedTuple

from cordee.core.documents.config_paths import config_folder
from cordee.core.errors import UsageError
from cordee.core.secret_forms import Key, keys_in, named_keys_in
from cordee.core.secrets import masked_output
from cordee.machine.foreign_files import regular

_LARGEST_BYTES = 4 << 20
_SHELLS = (".sh", ".bash", ".sbatch", ".slurm", ".job")


class MovedKeys(NamedTuple):
    """What was done to one script.

    Attributes:
        path: of the script.
        files: where the keys lie now.
        left: keys that could not be moved: the line, and why.
        difference: of the script, as a unified diff without the keys.
    """

    path: str
    files: list[str]
    left: list[str]
    difference: str


def move_keys(path: Path, folder: Path | None = None) -> MovedKeys:
    """Put the keys of a shell or Python script into files (mode 600), and have the script read them from there.

    The script is replaced at once as a whole, or stays as it is; a key is in its file, and that file on the disk, before it leaves the script.

    Args:
        path: of the script.
        folder: for the keys; None: the person's own, `~/.config/cordee/keys`.

    Raises:
        UsageError: it is no shell or Python script, or the keys in it cannot be moved.
        OSError: a file cannot be read or written.
    """
    path = Path(os.path.realpath(path))
    with open(regular(path), "rb") as file:
        about, data = os.fstat(file.fileno()), file.read(_LARGEST_BYTES + 1)
    text = _text(path, data)
    language = _language(path, text)
    if about.st_nlink > 1:
        raise UsageError("it has several names (hard links)", given=str(path), next="copy it, and move the copy's keys")
    store = folder or config_folder(os.environ) / "keys"
    known = list(keys_in(text))
    keys = known + [key for key in named_keys_in(text) if not any(one.begin <= key.begin < one.end for one in known)]
    changed, files, left = text, [], []
    for key in sorted(keys, key=lambda key: key.begin, reverse=True):
        value = text[key.begin : key.end]
        place = store / f"{key.kind}-{hashlib.sha256(value.encode()).hexdigest()[:8]}"
        rewritten = _in_shell(changed, key, place) if language == "shell" else _in_python(changed, key, place)
        if rewritten is None:
            line = text.count("\n", 0, key.begin) + 1
            left.append(
                f"line {line}: the {key.kind} key is only a part of a text, or of a comment: take it out by hand"
            )
            continue
        _keep(place, value)
        changed = rewritten
        files.append(str(place))
    if files:
        _replace(path, data, changed.encode(), about)
    before, after = masked_output(text).splitlines(True), masked_output(changed).splitlines(True)
    difference = "".join(difflib.unified_diff(before, after, f"{path.name} before", f"{path.name} now", n=0))
    return MovedKeys(str(path), sorted(set(files)), left[::-1], difference)


def _text(path: Path, data: bytes) -> str:
    if len(data) > _LARGEST_BYTES:
        raise UsageError("it is too large for a script", given=str(path), allowed=f"{_LARGEST_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError("it is no text in UTF-8", given=str(path), allowed="shell and Python scripts") from None


def _language(path: Path, text: str) -> str:
    first = text.partition("\n")[0]
    if path.suffix in _SHELLS or (first.startswith("#!") and first.rstrip().endswith("sh")):
        return "shell"
    if path.suffix == ".py" or (first.startswith("#!") and "python" in first):
        return "python"
    raise UsageError(
        "keys are moved out of shell and Python scripts only",
        given=str(path),
        allowed=f"{', '.join(_SHELLS)}, .py",
        next="take it out of documents and notebooks by hand: have the script read it from a file that only you may read (mode 600)",
    )


def _in_shell(text: str, key: Key, place: Path) -> str | None:
    """Return a shell script with a command substitution in a key's place; None in a comment."""
    begin, end = key.begin, key.end
    line = text.rfind("\n", 0, begin) + 1
    quote = _quote_at(text[line:begin])
    if quote == "#":
        return None
    read = f"$(cat {shlex.quote(str(place))})"
    if quote == "'":
        read = f"'\"{read}\"'"
    elif quote == "":
        read = f'"{read}"'
    return text[:begin] + read + text[end:]


def _quote_at(before: str) -> str:
    """Return in which quotes a line is at its end, `#` in a comment."""
    quote, at = "", 0
    while at < len(before):
        letter = before[at]
        if letter == "\\" and quote != "'":
            at += 1
        elif not quote and letter == "#" and (at == 0 or before[at - 1].isspace()):
            return "#"
        elif letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
        at += 1
    return quote


def _in_python(text: str, key: Key, place: Path) -> str | None:
    """Return a Python script that reads a file where a literal was; None where the key is no whole literal."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))
    except (tokenize.TokenError, SyntaxError):
        return None
    for token in tokens:
        begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        if token.type == tokenize.STRING and begin < key.begin and key.end < end:
            try:
                whole = ast.literal_eval(token.string)
                if not isinstance(whole, str) or whole.strip() != text[key.begin : key.end].strip():
                    return None
                changed = f"{text[:begin]}open({str(place)!r}).read(){text[end:]}"
                ast.parse(changed)
            except (ValueError, SyntaxError):
                return None
            return changed
    return None


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
