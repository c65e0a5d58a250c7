"""What agents tell of ranks that are profiled, on its way into RUN/profiles/N: bounded, named by us alone. Used in a lane."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from typing import Any

from cordee.core.errors import RunFolderError
from cordee.machine.foreign_files import open_folder
from cordee.runs.folder import RunFolder, write_atomically

_NAME = re.compile(r"rank-(\d{1,7})\.(json|speedscope\.json|perf\.txt|pftrace)\.gz")
_MOST_BYTES = 2 << 30


class ProfileFiles:
    """The files of one profile. A file has its name once it is whole.

    Args:
        run: the run's folder.

    Attributes:
        number: of the profile, after `begin`.
        written: names of the files that are there, by rank, with their bytes.
        refused: why the file of a rank was not kept.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self.number = self._bytes = 0
        self.written: dict[int, tuple[str, int]] = {}
        self.refused: dict[int, str] = {}
        self._sizes: dict[str, int] = {}

    def begin(self) -> None:
        """Make the folder.

        Raises:
            OSError: the disk refuses.
        """
        profiles = self._run.root / "profiles"
        profiles.mkdir(exist_ok=True)
        before = [int(name) for name in os.listdir(profiles) if name.isdecimal() and len(name) < 7]
        number = max(before, default=0) + 1
        (profiles / str(number)).mkdir()
        self.number = number

    def take(self, name: str, part: bytes, last: bool) -> None:
        """Keep a part of a file; what is no name of ours is not kept."""
        found = _NAME.fullmatch(name)
        if found is None or int(found[1]) in self.refused:
            return
        self._bytes += len(part)
        if self._bytes > _MOST_BYTES:
            self.drop(name, f"all ranks together have recorded more than {_MOST_BYTES >> 20} MiB")
            return
        try:
            self._append(name, part, last)
        except (OSError, ValueError) as error:
            self.drop(name, f"it cannot be written into the run's folder: {getattr(error, 'strerror', '') or error}")
            return
        self._sizes[name] = self._sizes.get(name, 0) + len(part)
        if last:
            self.written[int(found[1])] = (name, self._sizes[name])

    def drop(self, name: str, why: str) -> None:
        """Keep nothing of a file."""
        found = _NAME.fullmatch(name)
        if found is not None:
            self.refused.setdefault(int(found[1]), why)
            with suppress(OSError):
                os.unlink(self._path / f".{name}")

    def describe(self, document: dict[str, Any]) -> None:
        """Write how far the profile is."""
        with suppress(RunFolderError):
            write_atomically(self._path / "profile.json", json.dumps(document), below=self._run.root, durable=False)

    @property
    def _path(self) -> Any:
        return self._run.root / "profiles" / str(self.number)

    def _append(self, name: str, part: bytes, last: bool) -> None:
        folder = open_folder(self._path, self._run.root)
        try:
            begins = os.O_CREAT | os.O_EXCL if name not in self._sizes else 0
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | begins
            with open(os.open(f".{name}", flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(part)
            if last:
                os.rename(f".{name}", name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
