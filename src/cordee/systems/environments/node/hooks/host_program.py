"""Programs of the host that run in any image: with the host's own loader and libraries, mounted beside them.

An image has another C library, or none that fits. So a program is mounted with all it loads, and in its place stands a line of
shell that starts it by that loader.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from typing import Iterable, Optional, Sequence

from cordee.machine.node_folder import memory_places, name_of_user
from cordee.machine.private import private_folder
from cordee.systems.environments.node.document import ContainerMount, Environment

PLACE = "/run/cordee/host"
_LOOK_S = 20.0
_START = f"""#!/bin/sh
exec {PLACE}/lib/ld.so --library-path {PLACE}/lib "{PLACE}/bin/${{0##*/}}" "$@"
"""
_LIBRARY = re.compile(r"^\s*(\S+) => (/\S+)", re.MULTILINE)
_LOADER = re.compile(r"^\s*(/\S*/ld[-.]\S+)", re.MULTILINE)
_PROGRAM_FOLDERS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/opt/slurm/bin"


def host_program(name: str) -> Optional[str]:
    """Return the path of a program of the host, in folders too that are on no user's PATH."""
    return shutil.which(name) or shutil.which(name, path=_PROGRAM_FOLDERS)


def with_mounts(environment: Environment, mounts: Iterable[ContainerMount]) -> Environment:
    """Return the environment with mounts below those of the EDF, which stay where they have the same targets."""
    there = {mount.target for mount in environment.mounts}
    added = {mount.target: mount for mount in mounts if mount.target not in there}
    return replace(environment, mounts=(*added.values(), *environment.mounts))


def program_mounts(programs: Iterable[tuple[str, str]], also: Sequence[str] = ()) -> list[ContainerMount]:
    """Return the mounts that show programs of the host inside.

    Args:
        programs: (path on the host, path inside).
        also: libraries that they load later, whose own libraries are needed too.

    Raises:
        OSError: the line of shell cannot be written anywhere.
    """
    found: list[ContainerMount] = []
    libraries: dict[str, str] = {}
    loader = ""
    start = _start_file()
    for path, target in programs:
        real = os.path.realpath(path)
        found.append(ContainerMount(real, f"{PLACE}/bin/{os.path.basename(target)}", ("ro",)))
        found.append(ContainerMount(start, target, ("ro",)))
        loader = _add_libraries(real, libraries) or loader
    for path in also:
        _add_libraries(path, libraries)
    found += [ContainerMount(path, f"{PLACE}/lib/{name}", ("ro",)) for name, path in libraries.items()]
    return [*found, ContainerMount(os.path.realpath(loader), f"{PLACE}/lib/ld.so", ("ro",))] if loader else found


def _add_libraries(path: str, libraries: dict[str, str]) -> str:
    """Note what a program or library loads, and return its loader."""
    try:
        done = subprocess.run(["ldd", path], capture_output=True, text=True, timeout=_LOOK_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    for name, place in _LIBRARY.findall(done.stdout):
        libraries.setdefault(os.path.basename(name), os.path.realpath(place))
    loader = _LOADER.search(done.stdout)
    return loader[1] if loader else ""


def _start_file() -> str:
    folder = private_folder(memory_places()[0], name_of_user()) / "host-program"
    folder.mkdir(mode=0o755, exist_ok=True)
    path = folder / "start.sh"
    if not path.exists() or path.read_text() != _START:
        fresh = folder / f"start.{os.getpid()}"
        fresh.write_text(_START)
        fresh.chmod(0o755)
        fresh.rename(path)
    return str(path)
