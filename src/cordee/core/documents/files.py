"""Reading documents from files, with an error that names the place for everything that can be wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomllib

from cordee.core.documents.faults import fault_error
from cordee.core.documents.texts import text_of
from cordee.core.documents.toml_lines import error_line
from cordee.core.errors import DocumentError

LARGEST_BYTES = 1 << 20


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a TOML file's text and content.

    Raises:
        DocumentError: it is missing, unreadable, larger than 1 MiB, in no encoding that `text_of` reads, or not TOML.
    """
    text = read_text(path, "a TOML file")
    return text, toml_values(text, str(path))


def toml_values(text: str, file: str) -> dict[str, Any]:
    """Return the content of a file's text.

    Raises:
        DocumentError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise bad_toml_error(file, text, str(error))
    except RecursionError:
        raise fault_error(
            "is nested too deeply", "bad-toml", file=file, given=file, allowed="TOML 1.0", next="flatten it"
        )


def read_text(path: Path, kind: str, limit_bytes: int = LARGEST_BYTES) -> str:
    """Return a document's text, with plain line ends.

    Args:
        path: of the file.
        kind: what it should be, such as "a TOML file".
        limit_bytes: of what is read at most.

    Raises:
        DocumentError: it is missing, unreadable, larger than the limit, or in no encoding that `text_of` reads.
    """
    file = str(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        what = "give the path of a file"
        raise fault_error("is not a file", "unreadable", file=file, given=file, allowed=kind, next=what)
    try:
        with path.open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except OSError as error:
        what = "make it readable, or give another path"
        reason = error.strerror or str(error)
        raise fault_error(f"cannot read it: {reason}", "unreadable", file=file, given=file, allowed=kind, next=what)
    if len(data) > limit_bytes:
        what = "keep data in files of their own and name them in the document"
        allowed = f"at most {limit_bytes} bytes"
        raise fault_error("is too large for a document", "too-large", file=file, given=file, allowed=allowed, next=what)
    return text_of(data, file).replace("\r\n", "\n")


def bad_toml_error(file: str, text: str, message: str) -> DocumentError:
    """Return the error of a text that is no TOML."""
    line = error_line(message, text)
    lines = text.split("\n")
    given = lines[min(line, len(lines)) - 1].strip()[:200]
    reason = message.partition(" (at ")[0]
    text = f"is not valid TOML: {reason[:1].lower()}{reason[1:]}"
    what = 'correct this line; texts need quotes (name = "value")'
    return fault_error(text, "bad-toml", file=file, line=line, given=given, allowed="TOML 1.0", next=what)


def write_new(path: Path, text: str, check: str = "cordee check") -> None:
    """Write a document that is not there yet; `check` is the command that judges it.

    Raises:
        DocumentError: there is one already, or it cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise fault_error(
            f"there is a {path.name} already",
            "exists",
            file=str(path),
            given=str(path),
            allowed=f"a folder without a {path.name}",
            next=f"`{check}` says whether it is right; move it away to begin anew",
        ) from None
    except OSError as error:
        text = f"cannot write {path.name}: {error.strerror}"
        allowed = "a folder that you may write"
        raise fault_error(
            text, "unwritable", file=str(path), given=str(path.parent), allowed=allowed, next="choose another folder"
        ) from None
