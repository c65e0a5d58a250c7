"""The Python that a virtual environment stands on, brought along inside the pack."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from cordee.machine.squashfs.entry import SquashfsEntry
from cordee.machine.squashfs.errors import PackError
from cordee.systems.environments.venv_image.interpreter import Interpreter
from cordee.systems.environments.venv_image.relocate import text_of, with_data
from cordee.systems.environments.venv_image.tree import read_tree

FOLDER = ".python"
# Parts of the standard library that only those who build or test Python need, and packages that are not the environment's.
_NOT_NEEDED = re.compile(r"test|idlelib|turtledemo|site-packages|dist-packages|config-.*|.*\.a")
_LIBRARY = re.compile(r"libpython[\d.]+t?\.so.*")


def with_base_python(entries: list[SquashfsEntry], interpreter: Interpreter, at: Path) -> list[SquashfsEntry]:
    """Return the entries with the base Python in `.python`, found there by links and by `home` in pyvenv.cfg.

    Its search paths of libraries are made relative to itself, so that it need not stand where it was built.
    """
    name, version = interpreter.name, ".".join(map(str, interpreter.version[:2]))
    linked = {f"bin/{name}", "bin/python", "bin/python3"}
    kept = [_with_home(entry, at) for entry in entries if entry.name not in linked]
    program = _entry(interpreter.base_executable, f"{FOLDER}/bin/{name}", interpreter)
    _refuse_if_bound(program, interpreter)
    folders = [SquashfsEntry(f"{FOLDER}{below}", "folder") for below in ("", "/bin", "/lib", f"/lib/python{version}")]
    libraries = [
        _entry(path, f"{FOLDER}/lib/{path.name}", interpreter)
        for path in sorted(interpreter.library_folder.glob("libpython*"))
        if _LIBRARY.fullmatch(path.name) and path.is_file()
    ]
    stdlib = read_tree(
        interpreter.stdlib,
        f"{FOLDER}/lib/python{version}",
        compiles=lambda folder: True,
        leave=lambda path: bool(_NOT_NEEDED.fullmatch(path.name)),
    )
    return [
        *kept,
        *(SquashfsEntry(link, "link", 0o777, target=f"../{FOLDER}/bin/{name}") for link in sorted(linked)),
        *folders,
        program,
        *libraries,
        *stdlib.entries,
    ]


def _refuse_if_bound(program: SquashfsEntry, interpreter: Interpreter) -> None:
    """Refuse a program that finds its own library nowhere but where it is installed now."""
    ldd = ["ldd", str(interpreter.base_executable)]
    said = subprocess.run(ldd, capture_output=True, text=True, check=False).stdout if shutil.which("ldd") else ""
    match = re.search(r"libpython\S+ => (\S+)", said)
    if match and Path(match[1]).is_relative_to(interpreter.base_prefix) and b"$ORIGIN" not in text_of(program):
        raise PackError(
            "this Python finds its library nowhere but where it is installed, so it cannot be brought along",
            given=match[1],
            next=f"pack without --with-python and mount {interpreter.base_prefix} as well",
        )


def _with_home(entry: SquashfsEntry, at: Path) -> SquashfsEntry:
    if entry.name != "pyvenv.cfg":
        return entry
    home = b"home = " + bytes(at / FOLDER / "bin")
    return with_data(entry, re.sub(rb"^home\s*=.*$", lambda _: home, text_of(entry), flags=re.MULTILINE))


def _entry(path: Path, name: str, interpreter: Interpreter) -> SquashfsEntry:
    """Return a program or library that looks for libraries beside itself instead of where it was installed."""
    status = path.stat()
    entry = SquashfsEntry(name, "file", 0o755, int(status.st_mtime), status.st_size, path)
    written = bytes(interpreter.library_folder)
    beside = b"$ORIGIN/../lib" if "/bin/" in name else b"$ORIGIN"
    data = path.read_bytes()
    if len(beside) > len(written) or b"\0" + written + b"\0" not in data:
        return entry
    # A string of the ELF file may become shorter in its place: what follows its end is not read.
    relative = beside.ljust(len(written), b"\0")
    return replace(entry, data=data.replace(b"\0" + written + b"\0", b"\0" + relative + b"\0"), source=None)
