"""What the interpreter of an environment says of itself."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cordee.core.errors import UsageError
from cordee.machine.squashfs.errors import PackError

_QUESTION = """
import json, sys, sysconfig
import os.path
names = ("purelib", "platlib", "stdlib", "platstdlib")
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "cache_tag": sys.implementation.cache_tag,
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "base_executable": os.path.realpath(sys.executable),
    "library_folder": sysconfig.get_config_var("LIBDIR") or "",
    "paths": {name: sysconfig.get_path(name) for name in names},
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """The interpreter of an environment.

    Attributes:
        python: how it is called, inside the environment.
        version: major, minor, micro.
        cache_tag: as in the names of .pyc files.
        base_prefix, base_executable: of the installation that a virtual environment stands on.
        library_folder: where that installation has its shared libraries.
        site_folders: where packages are installed, without doubles.
        stdlib: the standard library.
    """

    python: Path
    version: tuple[int, int, int]
    cache_tag: str
    base_prefix: Path
    base_executable: Path
    library_folder: Path
    site_folders: tuple[Path, ...]
    stdlib: Path

    @property
    def name(self) -> str:
        """`python3.12`."""
        return f"python{self.version[0]}.{self.version[1]}"


def interpreter_of(folder: Path) -> Interpreter:
    """Return the interpreter of the virtual environment or conda prefix at `folder`, by asking it.

    Raises:
        UsageError: the folder is neither.
        PackError: the interpreter does not run.
    """
    python = folder / "bin" / "python"
    if not ((folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()):
        raise UsageError(
            "this is no Python environment",
            given=folder,
            allowed="a folder with pyvenv.cfg (python -m venv, uv, virtualenv) or conda-meta (conda, mamba)",
            next="give the folder that has bin/activate in it",
        )
    try:
        done = subprocess.run([python, "-I", "-B", "-c", _QUESTION], capture_output=True, text=True, check=True)
        said = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
        words = getattr(error, "stderr", None) or str(error)
        raise PackError(
            "the environment's interpreter does not run",
            given=python,
            next=f"it said: {words.strip()[-300:]}; where its base Python was removed, make the environment anew",
        )
    paths = said["paths"]
    return Interpreter(
        python=python,
        version=tuple(said["version"]),
        cache_tag=said["cache_tag"],
        base_prefix=Path(said["base_prefix"]),
        base_executable=Path(said["base_executable"]),
        library_folder=Path(said["library_folder"] or said["base_prefix"]),
        site_folders=tuple(dict.fromkeys(Path(paths[name]) for name in ("purelib", "platlib"))),
        stdlib=Path(paths["stdlib"]),
    )
