"""Where everything in a run's folder lies. The folder is the truth: it can be copied, archived and read without a server."""

from __future__ import annotations

import os
import string
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Optional, Union

from cordee.core.errors import RunFolderError
from cordee.machine.foreign_files import open_folder

_LETTERS = string.ascii_lowercase


def new_run_id(name: str) -> str:
    """Return `name-UTC-four random letters`, for example `char-gpt-20261121T012244Z-kqzv`."""
    import secrets  # seldom, and it takes as long to import as all else here

    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"{name}-{stamp}-{''.join(secrets.choice(_LETTERS) for _ in range(4))}"


class RunFolder:
    """Paths inside one run's folder; knows nothing of their contents.

    ```
    runs/<id>/
      documents/        the documents as given (cordee.toml, profiles, EDFs)
      plan.json         the frozen plan: the only input of submit and of the node side
      provenance.json   where each value of the documents came from
      code/             snapshot of the job's folder, with its manifest code.json beside it
      node.zip          the node side of Cordée that this run uses
      submit/           the exact script or command lines that were submitted
      journal/          JSON lines, one file per writer
      telemetry/        block log, sealed series
      logs/             framed output, one file per node and segment
      checkpoints/      default place of checkpoints
      control/          epochs, rendezvous, requests (cancel), keeper state: only live runs need it
      report/           rendered reports
    ```
    """

    def __init__(self, root: Union[str, Path]) -> None:
        self.root = Path(root)

    @classmethod
    def create(cls, parent: Union[str, Path], run_id: str) -> RunFolder:
        """Make a new run folder with mode 0700.

        Raises:
            RunFolderError: the parent cannot be written or the disk is full.
        """
        folder = cls(Path(parent) / run_id)
        try:
            folder.root.parent.mkdir(parents=True, exist_ok=True)
            folder.root.mkdir(mode=0o700)
            for name in (
                "documents",
                "submit",
                "journal",
                "telemetry",
                "logs",
                "control",
                "control/requests",
                "report",
            ):
                (folder.root / name).mkdir(mode=0o700)
        except OSError as error:
            raise RunFolderError(
                f"cannot create the run folder: {error.strerror}",
                given=str(folder.root),
                allowed="a folder on a disk with space that you may write",
                next="choose another place with --runs DIR or CORDEE_RUNS",
            ) from error
        return folder

    @property
    def id(self) -> str:
        return self.root.name

    @property
    def documents(self) -> Path:
        return self.root / "documents"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def provenance(self) -> Path:
        return self.root / "provenance.json"

    @property
    def code(self) -> Path:
        return self.root / "code"

    @property
    def code_manifest(self) -> Path:
        return self.root / "code.json"

    @property
    def node_zip(self) -> Path:
        return self.root / "node.zip"

    @property
    def submit(self) -> Path:
        return self.root / "submit"

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def telemetry(self) -> Path:
        return self.root / "telemetry"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def control(self) -> Path:
        return self.root / "control"

    @property
    def requests(self) -> Path:
        return self.root / "control" / "requests"

    @property
    def rendezvous(self) -> Path:
        return self.root / "control" / "rendezvous.json"

    @property
    def report(self) -> Path:
        return self.root / "report"

    def exists(self) -> bool:
        """Return whether this looks like a run folder; one that may not be looked into does not."""
        return os.path.isfile(self.plan) or os.path.isdir(self.journal)


def write_atomically(
    path: Union[str, Path],
    data: Union[str, bytes],
    mode: int = 0o600,
    below: Optional[Path] = None,
    durable: bool = True,
) -> None:
    """Write a small file so that readers see the old or the new content, never a part of it.

    Args:
        below: a folder in which others may write: no link is followed from there on.
        durable: whether it is on the disk for good on return; it takes some milliseconds.

    Raises:
        RunFolderError: the folder is gone, read-only, or the disk is full.
    """
    import secrets

    target = Path(path)
    payload = data.encode() if isinstance(data, str) else data
    temporary = f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}"
    folder = None
    try:
        folder = open_folder(target.parent, target.parent if below is None else below)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
        try:
            view = memoryview(payload)
            while view:
                view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if folder is not None:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
        raise RunFolderError(
            f"cannot write {target.name}: {error.strerror}",
            given=str(target),
            allowed="a folder that exists, on a disk with space, that you may write",
            next="make room or restore the folder, then `cordee resume` the run",
        ) from error
    finally:
        if folder is not None:
            os.close(folder)


def say(text: str) -> None:
    """Print a line on standard error, which is a file of the run: a full disk must not end the process that complains."""
    if sys.stderr is None:  # closed by whoever started us
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        return
