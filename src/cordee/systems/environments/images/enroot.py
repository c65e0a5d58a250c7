"""What an image that enroot made says of itself: `enroot import` writes the configuration of an image into files of its root.

The files and their forms are those of `docker::configure` in enroot (1.0 to 4.1) and of its doc/image-format.md: `/etc/rc` holds
workdir, entrypoint and command, `/etc/environment` the variables, `/etc/fstab` the volumes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from cordee.core.findings import Finding
from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.node.document import ContainerRoot, Environment

RC, ENVIRON, LOCAL, FSTAB = "etc/rc", "etc/environment", "etc/rc.local", "etc/fstab"

_MOST_BYTES = 1 << 20
_READ_S = 60.0
# The lines of /etc/rc that no other script has, and the two that say what is executed.
_FOLDER = re.compile(r'^[ \t]*cd "(.*)" && unset OLDPWD \|\| exit 1$', re.MULTILINE)
_WITH_WORDS = re.compile(r'^[ \t]*exec (.*)"\$@"$', re.MULTILINE | re.DOTALL)
_ALONE = re.compile(r"^else\n[ \t]*exec ?(.*)\nfi$", re.MULTILINE | re.DOTALL)
_OWN_WORDS = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)\Z", re.ASCII)
_QUOTED = re.compile(r"""["'](.*)["']\s*\Z""")
_VOLUME = re.compile(r"\$\{ENROOT_ROOTFS\}(\S+)\s+(\S+)\s+none\s+\S*\bbind\b\S*\Z")

# A path below the root, to its text; None: there is no such file.
_Read = Callable[[str], str | None]


def enroot_config(root: ContainerRoot, host: Mapping[str, str] = os.environ) -> ImageConfig | None:
    """Return what the files of enroot in an image say; None: it was not made by enroot, or cannot be looked at here.

    Args:
        root: a folder, or a squashfs file, of which only these files are read.
        host: variables of the host, to which `${NAME}` in `/etc/environment` refers.
    """
    read = reader_of(root)
    script = read(RC) if read else None
    if read is None or script is None or not _FOLDER.search(script):
        return None
    entrypoint, command = _executed(script)
    return ImageConfig(
        env=_variables(read(ENVIRON) or "", host),
        entrypoint=entrypoint,
        command=command,
        workdir=_FOLDER.findall(script)[-1] or "/",
    )


def image_warnings(environment: Environment) -> list[Finding]:
    """Return a warning for each thing that an image of enroot asks for and Cordée does not do, and one where it cannot be told.

    Args:
        environment: with its root.
    """
    root = environment.root
    if root is None or root.kind == "host" or environment.config.digest is not None:
        return []
    if reader_of(root) is None:
        text = "whether the image sets variables, a workdir and an entrypoint could not be looked at"
        hint = "install unsquashfs (squashfs-tools)"
        return [Finding(text, "warn", "image-unknown", given=root.path, next=hint)]
    hint = "do it in `mounts`, `env` or the command, where it matters"
    return [
        Finding(text, "warn", "image-not-followed", given=root.path, next=hint)
        for text in _not_followed(root, environment.writable)
    ]


def _not_followed(root: ContainerRoot, writable: bool) -> list[str]:
    read = reader_of(root)
    script = read(RC) if read else None
    if read is None or script is None or not _FOLDER.search(script):
        return []
    found = []
    if _executed(script) == ((), ()):
        found.append(
            "the image's /etc/rc executes a command that cannot be read from it, so its entrypoint is not known"
        )
    if _lines(read(LOCAL) or ""):
        found.append("the image's /etc/rc.local has commands, which are not run")
    for line in _lines(read(FSTAB) or ""):
        volume = _VOLUME.match(line)
        if volume is None:
            found.append(f"the image's /etc/fstab asks for a mount, which is not made: {line}")
        elif not writable:
            found.append(f"the image's volume {volume[2]} cannot be written to, because of `writable = false`")
    return found


def _executed(script: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return entrypoint and command, both empty where the script is not the one that enroot writes."""
    script = script[list(_FOLDER.finditer(script))[-1].end() :]
    with_words, alone = _WITH_WORDS.search(script), _ALONE.search(script)
    if with_words is None or alone is None:
        return (), ()
    try:
        entrypoint, whole = _words(with_words[1]), _words(alone[1])
    except ValueError:
        return (), ()
    return (entrypoint, whole[len(entrypoint) :]) if whole[: len(entrypoint)] == entrypoint else ((), ())


def _words(source: str) -> tuple[str, ...]:
    """Return the words that bash quoted by `${...@Q}`.

    Raises:
        ValueError: a quote is not closed, or an escape is none.
    """
    plain = _OWN_WORDS.sub(lambda match: shlex.quote(_unescaped(match[1])), source)
    return tuple(shlex.split(plain))


def _unescaped(text: str) -> str:
    r"""Return what stands between `$'` and `'`: `\n`, and bytes as `\303`."""
    known = re.sub(r"\\(.)", lambda match: r"\033" if match[1] == "E" else match[0], text, flags=re.DOTALL)
    raw = known.encode().decode("unicode_escape").encode("latin-1")
    return raw.decode(errors="replace")


def _variables(text: str, host: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of /etc/environment as enroot reads it: what is no assignment, and its own names, do not count."""
    found: dict[str, str] = {}
    for line in _lines(text):
        match = _VARIABLE.match(_REFERENCE.sub(lambda name: host.get(name[1], ""), line))
        if match and not match[1].startswith("ENROOT_"):
            quoted = _QUOTED.match(match[2])
            found[match[1]] = quoted[1] if quoted else match[2]
    return found


def _lines(text: str) -> list[str]:
    """Return the lines that are no comments and not empty, without what stands before them."""
    stripped = [line.lstrip() for line in text.split("\n")]
    return [line for line in stripped if line and not line.startswith("#")]


def reader_of(root: ContainerRoot) -> _Read | None:
    """Return what reads files of a root; None: nothing on this machine can."""
    if root.kind == "folder":
        return _reader_of_folder(Path(root.path))
    if root.kind == "squashfs" and shutil.which("unsquashfs"):
        return _reader_of_squashfs(root.path)
    return None


def _reader_of_folder(root: Path) -> _Read:
    def read(name: str) -> str | None:
        path = os.path.realpath(root / name)
        if not path.startswith(os.path.realpath(root).rstrip("/") + "/") or not os.path.isfile(path):
            return None
        try:
            with open(path, "rb") as file:
                return _text(file.read(_MOST_BYTES))
        except OSError:
            return None

    return read


def _reader_of_squashfs(path: str) -> _Read:
    try:
        state = os.stat(path)
    except OSError:
        return lambda name: None
    return lambda name: _member(path, name, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def _member(path: str, name: str, mtime_ns: int, size: int) -> str | None:
    """Return a file of a squashfs; one command looks at an image more than once."""
    command = ["unsquashfs", "-no-wildcards", "-cat", path, name]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_READ_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _text(done.stdout[:_MOST_BYTES]) if done.returncode == 0 else None


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
