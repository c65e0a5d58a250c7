"""A deployed service: one folder with its blueprint's revisions, secrets, volumes and runs. The folder is the truth."""

from __future__ import annotations

import fcntl
import json
import os
import secrets as randomness
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import CordeeError, UsageError
from cordee.core.words import did_you_mean
from cordee.runs.folder import RunFolder, write_atomically
from cordee.systems.services.blueprint import Blueprint, LoadedBlueprint, read_blueprint

SCHEMA = 1
# In the folder of a job's service: its parameters.
ABOUT = "about.json"
DOOR_TOKEN = "door-token"
_REMOVE_S, _AGAIN_S = 15.0, 0.1
_LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"


class ServiceError(CordeeError):
    """A service cannot be started, found, or kept."""

    kind = "service"


class ServiceFailing(CordeeError):
    """The service that was asked about is not well."""

    kind = "service"
    exit_code = 1


def services_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user's services: CORDEE_SERVICES, else one below the home, which nodes share."""
    given = environ.get("CORDEE_SERVICES")
    if given:
        return Path(given).absolute()
    base = environ.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.local/share"))) / "cordee" / "services"


def new_secret(characters: int) -> str:
    """Return a secret of letters and digits, which needs quotes nowhere."""
    return "".join(randomness.choice(_LETTERS) for _ in range(characters))


class ServiceFolder:
    """The folder of one deployed service, mode 0700.

    ```
    services/<name>/
      service.json      what is deployed: target, cluster, parameters, revision, run
      revisions/<n>/    blueprint.toml, the path of the file that it was deployed from, and what its program is started from
      secrets/          one file of mode 0600 each
      volumes/          its data
      runs/             its runs
      history.jsonl     what was done with it
      lock              held by the program that writes the volumes
    ```
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def revision(self, number: int) -> Path:
        """Return the folder of a revision."""
        return self.root / "revisions" / str(number)

    def secret(self, name: str) -> Path:
        """Return the file of a secret."""
        return self.root / "secrets" / name

    def door_token(self) -> str:
        """Return what the front door asks for where the service asks nobody, made when it is wanted first."""
        path = self.secret(DOOR_TOKEN)
        if not path.exists():
            write_atomically(path, new_secret(40))
        return path.read_text()

    def volume(self, name: str) -> Path:
        """Return the folder of a volume."""
        return self.root / "volumes" / name

    def exists(self) -> bool:
        """Return whether a service was deployed here.

        Raises:
            ServiceError: another user's services are here.
        """
        try:
            return (self.root / "service.json").is_file()
        except PermissionError:
            raise of_others(self.root) from None

    def record(self) -> dict[str, Any]:
        """Return what is deployed.

        Raises:
            ServiceError: it cannot be read, or a newer version wrote it.
        """
        path = self.root / "service.json"
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ServiceError(
                f"the record of the service {self.name} cannot be read: {error}",
                given=str(path),
                next=f"move {self.root} to another place, then `cordee service restore BACKUP`; its volumes are in there",
            ) from error
        if not isinstance(record, dict) or record.pop("schema", None) != SCHEMA:
            raise ServiceError(
                f"the record of {self.name} is of another version", given=str(path), allowed=f"schema {SCHEMA}"
            )
        return record

    def write(self, record: Mapping[str, Any], event: str) -> None:
        """Write what is deployed, and a line of its history.

        Raises:
            RunFolderError: the disk refuses.
        """
        write_atomically(self.root / "service.json", json.dumps({"schema": SCHEMA, **record}, indent=1))
        line = {"at": unix_s(), "event": event, "revision": record.get("revision"), "run": record.get("run")}
        with (self.root / "history.jsonl").open("a") as history:
            history.write(json.dumps(line) + "\n")

    def blueprint(self, number: int | None = None) -> LoadedBlueprint:
        """Return the blueprint of a revision, without one that is deployed.

        Raises:
            ServiceError, DocumentError: it cannot be read.
        """
        path = self.revision(number or self.record()["revision"]) / "blueprint.toml"
        try:
            return read_blueprint(path.read_text(), path, source=self._source(path.parent))
        except OSError as error:
            raise ServiceError(
                f"{self.name} has no revision {number}",
                given=number,
                allowed=self.revisions(),
                next="`cordee service status`",
            ) from error

    def _source(self, revision: Path) -> Path | None:
        """Return the file that a revision was deployed from; None: nobody has written it down."""
        try:
            return Path((revision / "source").read_text())
        except OSError:
            return None

    def revisions(self) -> list[int]:
        """Return the numbers of all revisions."""
        try:
            return sorted(int(one) for one in os.listdir(self.root / "revisions") if one.isdigit())
        except OSError:
            return []

    def run(self) -> RunFolder | None:
        """Return the run that is deployed; None: there was none yet, or it is on Kubernetes."""
        run = self.record().get("run")
        return RunFolder(run) if run else None

    def make(self) -> None:
        """Make the folder where it is not there.

        Raises:
            ServiceError: it belongs to somebody else, or cannot be made.
        """
        try:
            self.root.mkdir(0o700, parents=True, exist_ok=True)
            owner = self.root.stat().st_uid
            if owner != os.getuid():
                raise ServiceError(
                    f"the name {self.name} is taken by another user",
                    given=str(self.root),
                    allowed="a name of your own",
                    next="choose another one with --name",
                )
            self.root.chmod(0o700)
            for part in ("revisions", "secrets", "volumes", "runs"):
                (self.root / part).mkdir(0o700, exist_ok=True)
        except OSError as error:
            text = f"the folder of the service cannot be made: {error.strerror}"
            raise ServiceError(
                text, given=str(self.root), next="set CORDEE_SERVICES to a folder that you may write"
            ) from error

    def make_volumes(self, blueprint: Blueprint) -> None:
        """Make the volumes that are not there yet.

        Raises:
            ServiceError: one that the service had is gone: it would begin without its data.
        """
        had = self.blueprint().blueprint.volumes if self.exists() else {}
        for name in blueprint.volumes:
            path = self.volume(name)
            if name in had and not path.is_dir():
                raise ServiceError(
                    f"the volume {name} of {self.name} is gone",
                    given=str(path),
                    next=f"bring it back (`cordee service restore BACKUP --again`), or begin with an empty one: mkdir -m 700 {path}",
                )
            path.mkdir(0o700, exist_ok=True)

    def take_back(self) -> None:
        """Give volumes and secrets back to root, who had podman give them to the user of a container."""
        if os.getuid() != 0:
            return
        for part in ("volumes", "secrets"):
            for place, folders, files in os.walk(self.root / part):
                for name in (*folders, *files):
                    os.chown(os.path.join(place, name), 0, 0, follow_symlinks=False)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the service: who else changes it is refused.

        Raises:
            ServiceError: somebody else does.
        """
        with (self.root / ".changing").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ServiceError(
                    f"another command changes {self.name} now",
                    given=self.name,
                    next="wait for its end, or end it: Ctrl-C undoes what it has begun",
                ) from None
            yield

    def keep_revision(self, loaded: LoadedBlueprint) -> int:
        """Keep a blueprint as the next revision; the text and file of an earlier one is that revision again."""
        known, source = self.revisions(), loaded.source.absolute()
        for earlier in reversed(known):
            folder = self.revision(earlier)
            if (folder / "blueprint.toml").read_text() == loaded.text and self._source(folder) in (None, source):
                return earlier
        number = known[-1] + 1 if known else 1
        folder = self.revision(number)
        folder.mkdir(0o700)
        write_atomically(folder / "source", str(source))
        write_atomically(folder / "blueprint.toml", loaded.text)
        return number

    def keep_secrets(self, blueprint: Blueprint) -> None:
        """Write the secrets that are not there yet; those that are there stay as they are.

        Raises:
            ServiceError: the file that one comes from cannot be read, or others may read it.
        """
        for name, secret in blueprint.secrets.items():
            target = self.secret(name)
            if secret.source.startswith("store:"):
                raise ServiceError(
                    f"the secret {name} is in a store of Kubernetes, which this target does not have",
                    given=secret.source,
                    allowed="generated, or file:PATH",
                    next="deploy it on Kubernetes, or give the secret by a file",
                )
            if secret.source.startswith("file:") and not (target.exists() and not os.path.exists(secret.source[5:])):
                write_atomically(target, read_private(Path(secret.source[5:]), f"the secret {name}"))
            elif not target.exists():
                write_atomically(target, new_secret(secret.characters))

    def require_rotation(self, names: Sequence[str], blueprint: Blueprint) -> None:
        """Raise UsageError where a secret of these names is not generated, or nothing changes it where the program keeps it."""
        changed = bool(blueprint.setup) and self.record()["target"] != "podman"
        generated = {one: about for one, about in blueprint.secrets.items() if about.source == "generated"}
        allowed = [one for one, about in generated.items() if changed or not about.kept]
        for name in names:
            if name not in generated:
                raise UsageError(f"{self.name} has no generated secret {name}", given=name, allowed=allowed)
            if name not in allowed:
                raise UsageError(
                    f"{self.name} keeps the secret {name} in its data, and nothing changes it there",
                    given=name,
                    allowed=allowed or "none",
                    next="leave --rotate out: only a process can, whose blueprint has a command in `setup` that changes it",
                )

    def rotate(self, names: Sequence[str], blueprint: Blueprint) -> None:
        """Make generated secrets anew, which `require_rotation` has let pass."""
        for name in names:
            self.secret(name).unlink(missing_ok=True)
        self.keep_secrets(blueprint)

    def remove(self) -> None:
        """Remove all of it, data and secrets, too; a run that has just ended may still write there.

        Raises:
            ServiceError: it cannot be removed.
        """
        until = monotonic() + _REMOVE_S
        while self.root.exists():
            try:
                shutil.rmtree(self.root)
            except OSError as error:
                if monotonic() > until:
                    text = f"not all of {self.name} can be removed: {error.strerror}"
                    raise ServiceError(text, given=str(error.filename or self.root), next="try it again") from error
                time.sleep(_AGAIN_S)


def of_others(folder: Path) -> ServiceError:
    """Return the error of a folder of services that another user has."""
    return ServiceError(
        "these services are another user's",
        given=str(folder),
        allowed="a folder of your own",
        next="unset CORDEE_SERVICES, or set it to such a folder",
    )


def read_private(path: Path, what: str, next_: str = "write it, mode 0600") -> str:
    """Return what a file holds that only its owner may read, without the end of its last line.

    Args:
        what: what it is, for the errors.
        next_: what to do where it cannot be read.

    Raises:
        ServiceError: it cannot be read, or others may read it.
    """
    try:
        if path.stat().st_mode & 0o077:
            text = f"others may read the file of {what}"
            raise ServiceError(text, given=str(path), allowed="mode 0600", next=f"chmod 600 {path}")
        return path.read_text().rstrip("\n")
    except OSError as error:
        text = f"the file of {what} cannot be read: {error.strerror}"
        raise ServiceError(text, given=str(path), next=next_) from error


def find_service(name: str) -> ServiceFolder:
    """Return a deployed service.

    Raises:
        UsageError: none has this name.
    """
    known = [one.name for one in deployed()]
    if name not in known:
        raise UsageError(
            f"no service {name} is deployed",
            given=name,
            allowed=known or "none is deployed",
            next=did_you_mean(name, known, f"`cordee service deploy {name}`"),
        )
    return ServiceFolder(services_folder() / name)


def deployed() -> list[ServiceFolder]:
    """Return this user's services, by name."""
    base = services_folder()
    try:
        names = sorted(os.listdir(base))
    except PermissionError:
        raise of_others(base) from None
    except OSError:
        return []
    return [folder for folder in (ServiceFolder(base / name) for name in names) if folder.exists()]
