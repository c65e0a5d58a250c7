"""`pack`: from a Python environment to one squashfs file."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from cordee.core.errors import UsageError
from cordee.machine.squashfs.entry import SquashfsEntry
from cordee.machine.squashfs.image import COMPRESSIONS
from cordee.systems.environments.node.document import SQUASHFS_FLAG
from cordee.systems.environments.venv_image.base_python import with_base_python
from cordee.systems.environments.venv_image.interpreter import Interpreter, interpreter_of
from cordee.systems.environments.venv_image.outside import Outside, outside_of
from cordee.systems.environments.venv_image.relocate import made_at, relocated, strange_shebangs
from cordee.systems.environments.venv_image.tree import VenvTree, read_tree
from cordee.systems.environments.venv_image.verify import VenvVerified, verify
from cordee.systems.environments.venv_image.write import write

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class PackedVenv:
    """What came of packing.

    Attributes:
        file: the squashfs.
        source, at: the folder that was packed, and where the file is to be mounted.
        python: version of its interpreter.
        files, bytes: of the folder.
        packed_files, packed_bytes: in the squashfs, and its size.
        reused, compiled: byte code that lay there already, and that was made.
        not_compiled: sources that do not compile; they are packed without byte code.
        outside: what the environment leads to that is not packed.
        warnings: what else a person should know.
        verified: what came of trying it; None: it was not asked for.
    """

    file: Path
    source: Path
    at: Path
    python: str
    files: int
    bytes: int
    packed_files: int
    packed_bytes: int
    reused: int
    compiled: int
    not_compiled: tuple[str, ...]
    outside: tuple[Outside, ...]
    warnings: tuple[str, ...]
    seconds: float
    verified: VenvVerified | None = None

    def mounts(self) -> list[str]:
        """Return the mounts of an EDF that activate the pack."""
        pack = f"{_in_edf(self.file)}:{_in_edf(self.at)}:{SQUASHFS_FLAG}"
        return [pack, *(_in_edf(each.path) for each in self.outside if each.mount)]

    def env(self) -> dict[str, str]:
        """Return the variables of an EDF that activate the pack."""
        at = str(self.at).replace("$", "$$")
        return {"VIRTUAL_ENV": at, "PATH": f"{at}/bin:{SYSTEM_PATH}"}


def _in_edf(path: Path) -> str:
    """Return a path as a mount of an EDF has it: what would separate or expand stands for itself."""
    return str(path).replace("$", "$$").replace(":", r"\:")


def pack(
    folder: Path,
    output: Path,
    *,
    at: Path | None = None,
    compression: str = "zstd",
    with_python: bool = False,
    force: bool = False,
) -> PackedVenv:
    """Make one squashfs of the virtual environment or conda prefix at `folder`; the folder itself is only read.

    Args:
        output: the file to be made; it appears when it is whole.
        at: where it will be mounted; None: at the environment's own path.
        with_python: bring the Python along that a virtual environment stands on.
        force: replace a file that is there.

    Raises:
        UsageError: an argument is wrong.
        PackError: something cannot be read, compiled or written; `output` is as it was.
    """
    started = time.monotonic()
    folder = Path(os.path.normpath(folder.absolute()))
    interpreter = interpreter_of(folder)
    at = Path(os.path.normpath(at)) if at else folder
    output = output.absolute()
    _check(folder, output, at, compression, with_python, force)
    tree, entries = _what_goes_in(folder, interpreter, at, with_python)
    warnings = [f"{path} is neither file, folder nor link, and is left out" for path in tree.left_out]
    strange = strange_shebangs(entries, at)
    if strange:
        script, other = strange[0]
        warnings.append(f"{len(strange)} console scripts call another Python, such as {script} that of {other}")
    counts, size = write(entries, output, interpreter, at, compression, force)
    return PackedVenv(
        file=output,
        source=folder,
        at=at,
        python=".".join(map(str, interpreter.version)),
        files=tree.files,
        bytes=tree.bytes,
        packed_files=counts.files,
        packed_bytes=size,
        reused=counts.reused,
        compiled=counts.compiled,
        not_compiled=tuple(counts.not_compiled),
        outside=tuple(outside_of(folder, tree.entries, interpreter, with_python)),
        warnings=tuple(warnings),
        seconds=time.monotonic() - started,
    )


def verified(packed: PackedVenv) -> PackedVenv:
    """Return `packed` with what came of mounting it and importing a few packages."""
    return replace(packed, verified=verify(packed.file, packed.at, interpreter_of(packed.source)))


def _check(folder: Path, output: Path, at: Path, compression: str, with_python: bool, force: bool) -> None:
    if compression not in COMPRESSIONS:
        raise UsageError("there is no such compression", given=compression, allowed=list(COMPRESSIONS))
    if not at.is_absolute() or at == Path("/"):
        raise UsageError("a pack is mounted at an absolute path", given=at, allowed="such as /opt/venv")
    if output.resolve().is_relative_to(folder.resolve()):
        raise UsageError("the file would be in the folder that is packed", given=output, next="choose another --output")
    if output.is_dir() or (output.exists() and not force):
        raise UsageError("this is there already", given=output, next="give --force to replace a file, or --output")
    if not output.parent.is_dir():
        raise UsageError("there is no such folder", given=output.parent, next="make it, or choose another --output")
    conda = (folder / "conda-meta").is_dir()
    if conda and (with_python or at != folder):
        raise UsageError(
            "a conda prefix cannot be moved, and has its Python already",
            given="--at" if at != folder else "--with-python",
            next=f"its binaries name {folder}: mount the pack there, or make the prefix at the other path",
        )


def _what_goes_in(
    folder: Path, interpreter: Interpreter, at: Path, with_python: bool
) -> tuple[VenvTree, list[SquashfsEntry]]:
    """Return what the folder has, and the entries as they are to be in the pack."""
    real = folder.resolve()
    homes = [path.resolve() for path in (*interpreter.site_folders, interpreter.stdlib)]
    compiled = [folder / home.relative_to(real) for home in homes if home.is_relative_to(real)]
    # A conda installation keeps what it downloaded, and other prefixes, in the one that it began with.
    not_its_own = {folder / name for name in ("pkgs", "envs")} if (folder / "conda-meta").is_dir() else set()
    tree = read_tree(
        folder,
        "",
        compiles=lambda path: any(path.is_relative_to(above) for above in compiled),
        leave=not_its_own.__contains__,
    )
    entries = relocated(tree.entries, made_at(folder), at)
    return tree, with_base_python(entries, interpreter, at) if with_python else entries
