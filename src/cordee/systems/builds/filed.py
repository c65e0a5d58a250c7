"""An image that is a squashfs file says in files of its root what others keep in their configuration: variables, workdir, command.

The files and their forms are those that enroot writes (`docker::configure`, doc/image-format.md), and that Cordée reads.
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordee.machine.foreign_files import read_json
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.layout import LayerBlob, write_layout

_RC = """mkdir -p "{workdir}" 2> /dev/null
cd "{workdir}" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec {entrypoint} "$@"
else
    exec {whole}
fi
"""


def filed_layout(layout: Path, into: Path, epoch: int) -> Path:
    """Return a layout of the same image with these files in a layer on top, written into an empty folder.

    Raises:
        BuildError: a variable or word cannot stand in them.
        OSError: the folder cannot be written.
    """
    manifest = _blob(layout, read_json(layout / "index.json")["manifests"][0]["digest"])
    config = _blob(layout, manifest["config"]["digest"])
    archive = into / "files"
    archive.write_bytes(_archive(_files(config.get("config") or {}), epoch))
    digest = f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}"
    names = [each["digest"] for each in manifest["layers"]]
    blobs = [LayerBlob(_path(layout, name), name, _path(layout, name).stat().st_size, "", "") for name in names]
    blobs.append(LayerBlob(archive, digest, archive.stat().st_size, digest, ""))
    config["rootfs"]["diff_ids"].append(digest)
    config["history"] = [*config.get("history", ()), {"created_by": "files of enroot"}]
    write_layout(into / "layout", blobs, config, "")
    return into / "layout"


def _path(layout: Path, digest: str) -> Path:
    return layout / "blobs" / "sha256" / digest.partition(":")[2]


def _blob(layout: Path, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_path(layout, digest).read_bytes())
    return found


def _files(config: Mapping[str, Any]) -> dict[str, str]:
    variables = [str(each).partition("=") for each in config.get("Env") or ()]
    entrypoint, command = ([str(each) for each in config.get(key) or ()] for key in ("Entrypoint", "Cmd"))
    workdir = str(config.get("WorkingDir") or "/")
    for name, _, value in variables:
        if "\n" in value or "${" in value:
            raise BuildError(
                "an image that is a file cannot hold a variable with a line end or ${ in it",
                given=f"{name}={value}",
                next='set it in [env] of the EDF, or keep the image in your store: image = "NAME"',
            )
    if any(letter in workdir for letter in '"$`\\\n'):
        raise BuildError("an image that is a file cannot hold such a workdir", given=workdir, next="name another one")
    script = _RC.format(
        workdir=workdir, entrypoint=shlex.join(entrypoint), whole=shlex.join([*entrypoint, *command]) or "/bin/sh"
    )
    return {
        "etc/environment": "".join(f'{name}="{value}"\n' for name, _, value in variables),
        "etc/rc": script.replace('exec  "$@"', 'exec "$@"'),
    }


def _archive(files: Mapping[str, str], epoch: int) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            data = text.encode(errors="surrogateescape")
            entry.size, entry.mtime, entry.mode = len(data), epoch, 0o755 if name.endswith("rc") else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()
