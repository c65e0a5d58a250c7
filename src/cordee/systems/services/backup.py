"""A service's data in one file, mode 0600, and a service made of such a file: here, elsewhere, or on another target."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.clock import unix_s
from cordee.core.errors import CordeeError, UsageError
from cordee.core.units import format_size
from cordee.machine.foreign_files import parse_json
from cordee.runs.folder import write_atomically
from cordee.systems.services.accounts import keep_use
from cordee.systems.services.answers import ServiceReply, differences, replies
from cordee.systems.services.blueprint import Blueprint, LoadedBlueprint, Target, read_blueprint
from cordee.systems.services.deployment import ServiceStatus, changing, start, status_of, stop, waited, wish_of
from cordee.systems.services.instance import (
    ABOUT,
    ServiceError,
    ServiceFailing,
    ServiceFolder,
    of_others,
    read_private,
    services_folder,
)
from cordee.systems.services.node.texts import read_state, state_path
from cordee.systems.services.sealing import sealed, unsealed
from cordee.systems.services.start import Wish, host_document, require_machine, require_target

SCHEMA = 1
# In place of a folder with secrets: they are made anew.
NEW = "new"
_ABOUT = "backup.json"
_BLUEPRINT = "blueprint.toml"
_DIGESTS = "digests.json"
_SEALED = "secrets.sealed"
_NAMES = (_ABOUT, _BLUEPRINT, _DIGESTS, _SEALED)
_VOLUMES, _SECRETS = "volumes", "secrets"
_KEPT = ("blueprint", "target", "cluster", "parameters", "bind", "idle_s", "time_s", "owner", "project")


class Backup(NamedTuple):
    """A backup that was written.

    Attributes:
        path: of the file.
        bytes: its size.
        files: how many files of volumes it has.
        left_out: volumes with `backup = false`.
        stopped: whether the service was stopped for it.
        secrets: whether it holds the service's secrets, encrypted.
    """

    path: Path
    bytes: int
    files: int
    left_out: list[str]
    stopped: bool
    secrets: bool


class _Summed(io.RawIOBase):
    """A file that is read into an archive, and its digest."""

    def __init__(self, file: Any) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self.digest.update(data)
        return data


def back_up(
    folder: ServiceFolder, path: Path | None, passphrase: bytes | None, told: Callable[[ServiceStatus], None]
) -> Backup:
    """Write a service's blueprint, secrets and volumes into one file; a service that runs is stopped meanwhile, or made whole
    by its `[backup] before`.

    Args:
        path: of the file, which must not be there; None: below the service's folder, named by the time.
        passphrase: what the secrets are encrypted with; None: they are left out.
        told: told how the service comes up again.

    Raises:
        UsageError: the file is there already.
        ServiceError: the file cannot be written, or `before` has failed; the service is as it was.
    """
    loaded = folder.blueprint()
    if path is None:
        (folder.root / "backups").mkdir(0o700, exist_ok=True)
        path = folder.root / "backups" / f"{folder.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar"
    if path.exists():
        raise UsageError("the file is there already", given=str(path), allowed="a new file", next="give another -o")
    with changing(folder):
        was = status_of(folder)
        whole = loaded.blueprint.backup.before is not None and was.ready
        if whole:
            _run_beside(folder, loaded)
        elif not was.over:
            stop(folder, holds=True)
        try:
            written = _write(folder, loaded, path, passphrase)
        finally:
            if not whole and not was.over:
                start(folder, loaded, wish_of(folder.record()), "started after a backup")
        if not whole and not was.over:
            waited(folder, 600.0, told)
        return written._replace(stopped=not whole and not was.over)


def _run_beside(folder: ServiceFolder, loaded: LoadedBlueprint) -> None:
    from cordee.systems.services.node.host import run_beside

    run = folder.run()
    assert run is not None
    told, record = read_state(state_path(run.root, folder.name)), folder.record()
    spec = host_document(loaded, folder, record["revision"], wish_of(record))
    words = loaded.blueprint.backup.before or ()
    code = run_beside(spec, run.root, told, list(words) if "container" in spec else loaded.command(words))
    if code:
        raise ServiceError(
            f"[backup] before of {folder.name} ended with exit code {code}",
            given=" ".join(words),
            next="see what it said above; stop the service to copy its volumes as they are",
        )


def _write(folder: ServiceFolder, loaded: LoadedBlueprint, path: Path, passphrase: bytes | None) -> Backup:
    blueprint = loaded.blueprint
    left_out = [name for name, volume in blueprint.volumes.items() if not volume.backup]
    about = {"schema": SCHEMA, "service": folder.name, "root": str(folder.root), "at": unix_s(), "left_out": left_out}
    about["source"] = str(loaded.source)
    about.update({key: value for key, value in folder.record().items() if key in _KEPT})
    digests: dict[str, str] = {}
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                _add(archive, _ABOUT, json.dumps(about, indent=1).encode())
                _add(archive, _BLUEPRINT, loaded.text.encode())
                for name in sorted(os.listdir(folder.root / _VOLUMES)):
                    if name not in left_out:
                        _add_tree(archive, folder.volume(name), f"{_VOLUMES}/{name}", digests)
                if passphrase:
                    _add(archive, _SEALED, sealed(_secrets(folder), passphrase))
                _add(archive, _DIGESTS, json.dumps(digests).encode())
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ServiceError(
            f"the backup cannot be written: {error.strerror or error}",
            given=str(path),
            allowed=f"a place with {format_size(_bytes(folder))} of room",
            next="give another place: -o FILE",
        ) from error
    return Backup(path, path.stat().st_size, len(digests), left_out, False, bool(passphrase))


def _secrets(folder: ServiceFolder) -> bytes:
    """Return a service's secrets as an archive."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted((folder.root / _SECRETS).iterdir()):
            _add(archive, path.name, path.read_bytes())
    return data.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode, about.mtime = len(data), 0o600, int(unix_s())
    archive.addfile(about, io.BytesIO(data))


def _add_tree(archive: tarfile.TarFile, place: Path, name: str, digests: dict[str, str]) -> None:
    about = archive.gettarinfo(str(place), name)
    if about is None or not (about.isfile() or about.isdir() or about.issym() or about.islnk()):
        return  # a socket or pipe: nothing that a copy can hold
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    if about.islnk():
        about.type = tarfile.REGTYPE
        about.size = place.stat().st_size
    if not about.isfile():
        archive.addfile(about)
        for child in sorted(os.listdir(place)) if about.isdir() else ():
            _add_tree(archive, place / child, f"{name}/{child}", digests)
        return
    with place.open("rb") as file:
        summed = _Summed(file)
        archive.addfile(about, summed)  # type: ignore[arg-type]
    digests[name] = summed.digest.hexdigest()


def _bytes(folder: ServiceFolder) -> int:
    return sum(path.stat().st_size for path in (folder.root / "volumes").rglob("*") if path.is_file())


def restore(
    source: Path,
    name: str | None,
    changed: Callable[[Wish, Blueprint], Wish],
    again: bool,
    wait_s: float | None,
    told: Callable[[ServiceStatus], None],
    passphrase: Callable[[], bytes],
    secrets: str | None,
) -> ServiceStatus:
    """Make a service of a backup, or of what a run has kept of a service of its job, and start it.

    Args:
        source: the file, or `services/NAME` of a run's folder.
        name: of the service; None: as it was called.
        changed: returns what to ask for, of what was asked for then and the blueprint.
        again: it may take the place of a service that is over; that one's folder is removed when this one is whole.
        wait_s: for how long it is waited for; None: it is not started.
        passphrase: returns what the secrets are encrypted with; asked only where it is needed.
        secrets: a folder with a file for each, in place of the backup's; `new`: they are made anew.

    Raises:
        UsageError, DocumentError: there is such a service, its secrets are missing, or the target cannot honour the blueprint.
        ServiceError: the file is no backup, is not whole, or there is no room; nothing is left of the try.
        ServiceFailing: it is not ready.
    """
    base = services_folder()
    base.mkdir(0o700, parents=True, exist_ok=True)
    if not os.access(base, os.W_OK | os.X_OK):
        raise of_others(base)
    with tempfile.TemporaryDirectory(prefix=".restoring-", dir=base) as place:
        made = ServiceFolder(Path(place) / "service")
        made.make()
        about, loaded = _from_run(source, made) if source.is_dir() else _from_file(source, made)
        folder = ServiceFolder(base / (name or str(about["service"])))
        wish = changed(
            Wish(
                about.get("target", "process"),
                about.get("cluster", ""),
                _moved(about.get("parameters", {}), about.get("root"), folder),
                {},
                about.get("bind", "loopback"),
                about.get("idle_s"),
                about.get("time_s"),
            ),
            loaded.blueprint,
        )
        if folder.exists() and not (again and status_of(folder).over):
            raise UsageError(
                f"there is a service {folder.name} already",
                given=folder.name,
                allowed="another name, or --again in place of one that is stopped",
                next=f"`cordee service stop {folder.name}`, or --name",
            )
        _bring_secrets(made, loaded.blueprint, passphrase, secrets, folder)
        if wait_s is not None:
            require_target(loaded, wish.target, wish.bind)
            require_machine(loaded, folder, wish.target)
        made.keep_revision(loaded)
        old = Path(place) / "old"
        if folder.exists():
            keep_use(folder)
        if folder.root.exists():
            folder.root.rename(old)
        made.root.rename(folder.root)
        (folder.root / "restored").touch()
    with changing(folder):
        start(folder, loaded, wish, f"restored from {source}", run=wait_s is not None)
    return status_of(folder) if wait_s is None else waited(folder, wait_s, told)


def _bring_secrets(
    made: ServiceFolder, blueprint: Blueprint, passphrase: Callable[[], bytes], given: str | None, old: ServiceFolder
) -> None:
    """Bring the secrets of a restored service: those that are given, else the backup's, else those of the service that it replaces.

    Raises:
        UsageError: there are none.
    """
    closed, place = made.root / _SEALED, made.root / _SECRETS
    if given is not None:
        shutil.rmtree(place)
        place.mkdir(0o700)
        for name in blueprint.secrets if given != NEW else ():
            write_atomically(place / name, read_private(Path(given) / name, f"the secret {name}"))
    elif closed.exists():
        with tarfile.open(fileobj=io.BytesIO(unsealed(closed.read_bytes(), passphrase()))) as archive:
            archive.extractall(place, filter="data")
    elif not any(place.iterdir()) and (old.root / _SECRETS).is_dir():
        shutil.copytree(old.root / _SECRETS, place, dirs_exist_ok=True)
    elif not any(place.iterdir()) and blueprint.secrets:
        raise UsageError(
            "the backup was written without the service's secrets, which its data may know",
            given=", ".join(blueprint.secrets),
            allowed=f"--secrets DIR with a file of mode 0600 for each, or --secrets {NEW} where the data do not know them",
            next="they are in the folder `secrets` of the service, where it was backed up",
        )
    closed.unlink(missing_ok=True)
    for secret in place.iterdir():
        secret.chmod(0o600)


def _moved(parameters: dict[str, str], root: str | None, folder: ServiceFolder) -> dict[str, str]:
    """Return parameters of a service that was at `root`: what named a file of its own names that of the new one."""
    return {
        name: f"{folder.root}{value[len(root) :]}" if root and value.startswith(f"{root}/") else value
        for name, value in parameters.items()
    }


def _from_run(source: Path, made: ServiceFolder) -> tuple[dict[str, Any], LoadedBlueprint]:
    kept = ServiceFolder(source)
    if not kept.revisions() or not (source / ABOUT).is_file():
        raise UsageError(
            "holds no service", given=str(source), allowed="a backup's file, or services/NAME of a run's folder"
        )
    with kept.lock.open("a") as lock, _alone(lock, kept):
        for tree in (_VOLUMES, _SECRETS):
            shutil.copytree(source / tree, made.root / tree, symlinks=True, dirs_exist_ok=True)
    return json.loads((source / ABOUT).read_text()), kept.blueprint(kept.revisions()[-1])


@contextmanager
def _alone(lock: Any, kept: ServiceFolder) -> Iterator[None]:
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ServiceError(
            "a run has it open", given=str(kept.root), next="wait for the run's end, or `cordee cancel`"
        ) from None
    yield


def _from_file(path: Path, made: ServiceFolder) -> tuple[dict[str, Any], LoadedBlueprint]:
    """Unpack a backup into the folder of a service, and look that it is whole."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name not in _NAMES and member.name.split("/")[0] != _VOLUMES:
                    raise ServiceError("the file is no backup of a service", given=f"{path}: {member.name}")
                archive.extract(member, made.root, filter="data")
        about = parse_json((made.root / _ABOUT).read_text())
        digests = parse_json((made.root / _DIGESTS).read_text())
        text = (made.root / _BLUEPRINT).read_text()
        if about.get("schema") != SCHEMA:
            raise ServiceError(
                "the backup is of another version", given=about.get("schema"), allowed=f"schema {SCHEMA}"
            )
        for name, digest in digests.items():
            with (made.root / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    raise ServiceError("the backup is damaged", given=f"{path}: {name}", next="take an earlier backup")
    except (tarfile.TarError, OSError, ValueError, AttributeError) as error:
        words = (
            error.strerror
            if isinstance(error, OSError) and error.strerror
            else "it is damaged, or no backup of a service"
        )
        raise ServiceError(
            f"the backup cannot be read: {words}", given=str(path), next="take an earlier backup, or make room"
        ) from error
    for name in (_ABOUT, _DIGESTS, _BLUEPRINT):
        (made.root / name).unlink()
    source = about.get("source")
    return about, read_blueprint(text, made.root / _BLUEPRINT, source=Path(source) if source else None)


class Move(NamedTuple):
    """A service that was moved.

    Attributes:
        now: how it is there.
        backup: of its data before.
        asked: what was asked before and after, with the same answer.
    """

    now: ServiceStatus
    backup: Path
    asked: list[str]


def move(
    folder: ServiceFolder, target: Target, cluster: str, paths: list[str], told: Callable[[ServiceStatus], None]
) -> Move:
    """Have a service run on another target with the data that it has, and compare what it answers there.

    Args:
        paths: what is asked before and after; none: what its `[closed]` asks, with credentials.

    Raises:
        DocumentError: the target cannot honour the blueprint; nothing has changed.
        ServiceFailing: it is not ready, or it is not ready there, or answers differently there: it runs where it was, with its data
            of before.
    """
    loaded, record = folder.blueprint(), folder.record()
    old = wish_of(record)
    require_target(loaded, target, old.bind)
    require_machine(loaded, folder, target)
    now = status_of(folder)
    if not now.ready:
        raise ServiceFailing(
            f"{folder.name} is {now.state}: {now.why}", next="start it first: its answers are compared"
        )
    before = replies(folder, loaded, paths)
    kept = back_up_stopped(folder, loaded)
    wish = replace(
        old, target=target, cluster=cluster, ports={}, settings={} if cluster != old.cluster else old.settings
    )
    with changing(folder):
        try:
            start(folder, loaded, wish, f"moved to {target} on {cluster}")
            there = waited(folder, 600.0, told)
            _require_same(before, replies(folder, loaded, [one.path for one in before]))
        except CordeeError as error:
            stop(folder)
            _put_back(folder, kept)
            start(folder, loaded, old, "moved back")
            waited(folder, 600.0, told)
            raise ServiceFailing(
                f"{folder.name} runs where it was, with its data of before: {error.text}",
                given=error.given,
                next=error.next,
            ) from error
    return Move(there, kept, [one.path for one in before])


def back_up_stopped(folder: ServiceFolder, loaded: LoadedBlueprint) -> Path:
    """Stop a service and write its backup; where that fails it is started again."""
    with changing(folder):
        stop(folder)
    return back_up(folder, None, None, lambda _: None).path


def _put_back(folder: ServiceFolder, backup: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".restoring-", dir=services_folder()) as place:
        made = ServiceFolder(Path(place) / "service")
        made.make()
        _about, _ = _from_file(backup, made)
        for name in os.listdir(made.root / "volumes"):
            shutil.rmtree(folder.volume(name), ignore_errors=True)
            (made.root / "volumes" / name).rename(folder.volume(name))


def _require_same(before: list[ServiceReply], after: list[ServiceReply]) -> None:
    found = differences(before, after)
    if found:
        raise ServiceFailing(f"it answers differently there: {found}", next="compare the two with --ask PATH")
