"""Weights or data published for others: a folder, or one archive with an index, that nobody changes any more.

Beside the files lie `manifest.json` (sizes, SHA-256, licence, where it came from), `SHA256SUMS` for `sha256sum -c`, and a card,
`README.md`. An archive is a tar whose first member, `index.json`, says at which byte each file begins, so that one range of it can
be read alone.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import tarfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cordee.core.documents.files import toml_values
from cordee.core.documents.texts import text_of
from cordee.core.documents.toml_text import quoted_key, value_text
from cordee.core.errors import CheckpointError, UsageError
from cordee.core.units import format_size, utc_text
from cordee.core.words import counted
from cordee.machine.foreign_files import regular
from cordee.runs.folder import write_atomically

SCHEMA = "cordee.publication/1"
MANIFEST, SUMS, CARD, INDEX = "manifest.json", "SHA256SUMS", "README.md", "index.json"
_FURTHEST = 10**18


@dataclass(frozen=True)
class Terms:
    """What is said of a publication.

    Attributes:
        name: in the site's catalogue.
        licence: the terms that others may use it under.
        about: what it is, in a few words.
        source: what it came from: a checkpoint, its run, or a folder.
        facts: more of that, such as `step` and `tensors`.
    """

    name: str
    licence: str
    about: str
    source: str
    facts: Mapping[str, Any]


def publish(fill: Callable[[str], None], target: str, terms: Terms, *, archive: bool, workers: int) -> dict[str, Any]:
    """Put together what is published; it is there, read-only, once all of it is.

    Args:
        fill: writes the files into a folder that is there.
        target: a folder, or a file with `archive`, that is not there yet.
        workers: files that are read at once for their sums.

    Returns:
        `path`, `files`, `bytes`, `sha256` (of the manifest), `catalogue` (its lines of a cluster profile).

    Raises:
        UsageError: `target` is there already.
        CheckpointError: it cannot be written, or holds what is no file.
    """
    target = os.path.abspath(target)
    if os.path.lexists(target):
        raise UsageError("there is something already", given=target, next="name another place")
    partial = f"{target}.tmp-{secrets.token_hex(4)}"
    try:
        os.makedirs(partial)
        fill(partial)
        manifest = _described(partial, terms, workers)
        if archive:
            _write_archive(partial, f"{partial}.tar")
            os.chmod(f"{partial}.tar", 0o444)
            os.rename(f"{partial}.tar", target)
        else:
            _close(partial)
            os.rename(partial, target)
    except OSError as error:
        text = f"{target} cannot be written: {error.strerror}"
        raise CheckpointError(text, given=target, next="make room, or publish it elsewhere") from error
    finally:
        _remove(partial)
    return {
        "path": target,
        "files": len(manifest["files"]),
        "bytes": sum(one["bytes"] for one in manifest["files"].values()),
        "sha256": hashlib.sha256(_text(manifest)).hexdigest(),
        "catalogue": catalogue_lines(target, terms),
    }


def copied(source: str) -> Callable[[str], None]:
    """Return what fills a publication with a file, or with all files below a folder; links are refused."""

    def fill(folder: str) -> None:
        if os.path.isfile(source):
            shutil.copyfile(source, os.path.join(folder, os.path.basename(source)))
            return
        for name in _names(source):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))

    return fill


def catalogue_lines(path: str, terms: Terms) -> str:
    """Return the table of a cluster profile that makes it one of the site's shared data sets."""
    values = {"path": path, "licence": terms.licence, "about": terms.about, "source": terms.source}
    lines = [f"{key} = {value_text(value)}" for key, value in values.items() if value]
    return "\n".join([f"[datasets.{quoted_key(terms.name)}]", *lines]) + "\n"


class SiteCatalogue:
    """The shared data sets of a cluster profile.

    Args:
        profile: its file.
        name: of what will be added.

    Raises:
        UsageError: the profile is not there, cannot be written, or has a data set of that name. DocumentError: it is no TOML.
    """

    def __init__(self, profile: Path, name: str) -> None:
        self._profile = profile
        try:
            self._text = text_of(profile.read_bytes(), str(profile)).replace("\r\n", "\n")
        except OSError as error:
            raise self._refusal(error) from error
        known = toml_values(self._text, str(profile)).get("datasets", {})
        if name in known:
            what = "publish it under another name, or take the older one out"
            raise UsageError("the catalogue has a data set of this name", given=name, next=what)
        if not os.access(profile, os.W_OK):
            raise self._refusal(PermissionError(errno.EACCES, os.strerror(errno.EACCES)))

    def add(self, lines: str) -> None:
        """Append a table to the profile."""
        try:
            mode = stat.S_IMODE(self._profile.stat().st_mode)
            write_atomically(self._profile, f"{self._text.rstrip()}\n\n{lines}", mode)
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> UsageError:
        text = f"the catalogue cannot be written: {error.strerror}"
        return UsageError(text, given=str(self._profile), next="have whoever keeps it add the lines")


def _described(folder: str, terms: Terms, workers: int) -> dict[str, Any]:
    """Write manifest, sums and card beside the files."""
    names = _names(folder)
    for taken in (MANIFEST, SUMS):
        if taken in names:
            raise UsageError("a file has the name of what publishing adds", given=taken, next="rename it")
    if not names:
        raise UsageError("there is nothing in it to publish", given=terms.source, next="name a folder with files")
    with ThreadPoolExecutor(workers) as pool:
        sums = dict(zip(names, pool.map(lambda name: _sum(os.path.join(folder, name)), names), strict=True))
    files = {name: {"bytes": os.stat(os.path.join(folder, name)).st_size, "sha256": sums[name]} for name in names}
    about = {key: value for key, value in asdict(terms).items() if key != "facts" and value}
    manifest = {"schema": SCHEMA, **about, **terms.facts, "published": utc_text(time.time()), "files": files}
    Path(folder, MANIFEST).write_bytes(_text(manifest))
    Path(folder, SUMS).write_text("".join(f"{value}  {name}\n" for name, value in sums.items()), encoding="utf-8")
    if CARD not in names:
        Path(folder, CARD).write_text(_card(terms, files), encoding="utf-8")
    return manifest


def _card(terms: Terms, files: Mapping[str, Mapping[str, Any]]) -> str:
    total = format_size(sum(one["bytes"] for one in files.values()))
    front = ["---", f"license: {json.dumps(terms.licence)}", "---", ""]
    rows: list[tuple[str, Any]] = [
        ("Licence", terms.licence),
        ("From", terms.source),
        ("Size", f"{total} in {counted(len(files), 'file')}"),
    ]
    rows += [(key.capitalize(), value) for key, value in terms.facts.items() if isinstance(value, (str, int, float))]
    table = ["| | |", "|---|---|", *(f"| {label} | {str(value).replace('|', '/')} |" for label, value in rows)]
    check = f"`sha256sum -c {SUMS}` compares all files with what was published; `{MANIFEST}` lists them."
    return "\n".join([*front, f"# {terms.name}", "", terms.about, "", *table, "", check, ""])


def _names(folder: str) -> list[str]:
    """Return the paths of all files below a folder, in order.

    Raises:
        UsageError: something there is neither a folder nor a regular file.
    """
    found = []
    for below, _folders, names in os.walk(folder):
        for name in [*names, *(one for one in _folders if os.path.islink(os.path.join(below, one)))]:
            path = os.path.join(below, name)
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise UsageError(
                    "only regular files are published", given=path, next="replace it by what it stands for"
                )
            found.append(os.path.relpath(path, folder))
    return sorted(found)


def _sum(path: str) -> str:
    with open(path, "rb", opener=regular) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode()


def _close(folder: str) -> None:
    """Have all files on the disk, and nobody write to them."""
    for below, _folders, names in os.walk(folder, topdown=False):
        for name in names:
            _make_durable(os.path.join(below, name), 0o444)
        _make_durable(below, 0o555)


def _make_durable(path: str, mode: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(partial: str) -> None:
    for below, _folders, _names in os.walk(partial):
        os.chmod(below, 0o700)
    shutil.rmtree(partial, ignore_errors=True)
    if os.path.exists(f"{partial}.tar"):
        os.unlink(f"{partial}.tar")


def _write_archive(folder: str, path: str) -> None:
    """Write the files of a folder into one tar, its index first."""
    sizes = {name: os.stat(os.path.join(folder, name)).st_size for name in _names(folder)}
    longest = len(_index({name: (_FURTHEST, size) for name, size in sizes.items()}))
    where: dict[str, tuple[int, int]] = {}
    with open(path, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(_member(INDEX, longest), io.BytesIO(bytes(longest)))
            begin = archive.offset - longest - -longest % tarfile.BLOCKSIZE
            for name, size in sizes.items():
                with open(os.path.join(folder, name), "rb", opener=regular) as content:
                    archive.addfile(_member(name, size), content)
                where[name] = (archive.offset - size - -size % tarfile.BLOCKSIZE, size)
        file.seek(begin)
        file.write(_index(where).ljust(longest))
        file.flush()
        os.fsync(file.fileno())


def _index(where: Mapping[str, tuple[int, int]]) -> bytes:
    """Return the index of an archive.

    Args:
        where: at which byte each file begins, and how many it has.
    """
    return json.dumps({"schema": SCHEMA, "files": where}).encode()


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o444
    return member
