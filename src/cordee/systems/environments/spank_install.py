"""Building the SPANK plugin from its source and installing it at a site."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cordee.core.errors import CordeeError, UsageError

SOURCES = tuple(Path(__file__).parent / "node" / "spank" / name for name in ("cordee.c", "node.c"))
LIBRARY = "spank_cordee.so"
NODE_ZIP = "cordee-node.zip"
OURS = "--environment=FILE|NAME"  # as `srun --help` shows the option of cordee.c
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared")


def build(target: Path, *, compiler: str = "cc", include: Sequence[str] = ()) -> None:
    """Compile the plugin against the headers of the site's Slurm into `target`.

    Args:
        target: the library; it is replaced as a whole.
        compiler: a C compiler, with options.
        include: more folders with headers: that in which `slurm/spank.h` lies.

    Raises:
        UsageError: there is no compiler, or it finds no headers of Slurm.
        CordeeError: the compiler failed.
    """
    words = [*shlex.split(compiler), *(f"-I{folder}" for folder in include)]
    if not words or shutil.which(words[0]) is None:
        raise UsageError("there is no C compiler", given=compiler, next="install one, or name it: --compiler gcc-12")
    if _run([*words, "-fsyntax-only", "-include", "slurm/spank.h", "-x", "c", os.devnull]).returncode:
        raise UsageError(
            "the compiler finds no slurm/spank.h",
            given=shlex.join(words),
            next="install the headers of the Slurm that runs here (Debian: libslurm-dev, Red Hat: slurm-devel), or name "
            "their folder: --include /opt/slurm/include",
        )
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".cordee-") as scratch:
        made = Path(scratch) / LIBRARY
        done = _run([*words, *_FLAGS, "-o", str(made), *map(str, SOURCES)])
        if done.returncode:
            raise CordeeError(f"the plugin does not compile\n{done.stderr.strip()}", given=shlex.join(words))
        made.chmod(0o755)  # whatever the umask of whoever installs it: all users load it
        made.replace(target)


def plugstack_line(library: Path, words: Sequence[str]) -> str:
    """Return the line of plugstack.conf that loads the plugin with its words, as `python=/opt/cordee/bin/python`.

    Raises:
        UsageError: a word holds a blank, which Slurm would take for its end.
    """
    bad = [word for word in (str(library), *words) if re.search(r"\s", word)]
    if bad:
        raise UsageError("a path in plugstack.conf cannot hold blanks", given=bad[0], next="give another folder")
    return " ".join(["required", str(library), *words])


def with_line(text: str, line: str) -> str:
    """Return plugstack.conf with this line as its last: of plugins with the same option Slurm keeps the first."""
    kept = [each for each in text.splitlines() if LIBRARY not in each.partition("#")[0]]
    return "\n".join([*kept, line]) + "\n"


def other_plugin(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the line of `srun --help` by which another plugin offers `--environment`; None: there is none, or no srun."""
    if shutil.which("srun") is None:
        return None
    lines = _run(["srun", "--help"], environ).stdout.splitlines()
    return next((line.strip() for line in lines if "--environment=" in line and OURS not in line), None)


def plugin_folder() -> Path:
    """Return where Slurm has its plugins, as it says itself.

    Raises:
        UsageError: it does not say.
    """
    if shutil.which("scontrol"):
        found = re.search(r"^PluginDir\s*=\s*([^:\s]+)", _run(["scontrol", "show", "config"]).stdout, re.MULTILINE)
        if found:
            return Path(found.group(1))
    raise UsageError("Slurm does not say where its plugins are", next="give the folder: --plugin-dir /usr/lib64/slurm")


def plugstack() -> Path:
    """Return the plugstack.conf beside slurm.conf."""
    return Path(os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent / "plugstack.conf"


def _run(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environ)


def _below(destdir: str, path: Path) -> Path:
    return Path(destdir) / path.relative_to("/") if destdir else path


def install(
    library: Path,
    configuration: Path,
    words: Sequence[str],
    *,
    destdir: str = "",
    compiler: str = "cc",
    include: Sequence[str] = (),
    write_node_side: Callable[[Path], None] | None = None,
) -> list[Path]:
    """Build the plugin, put it in place, and write its line in plugstack.conf; return what was written.

    Args:
        library, configuration: where the plugin and plugstack.conf lie in the end.
        words: of the plugin.
        destdir: a folder in front of all of them, for packages.
        compiler, include: as `build` takes them.
        write_node_side: writes what nodes need of Cordée to a path beside the library, `NODE_ZIP`; None: they have it.

    Raises:
        CordeeError: it cannot be built, or the site has such an option already.
        OSError: something cannot be written.
    """
    other = None if destdir else other_plugin()
    if other:
        raise UsageError("another plugin of this Slurm has the option --environment", given=other, next="keep that one")
    line = plugstack_line(library, words)
    target, conf = _below(destdir, library), _below(destdir, configuration)
    target.parent.mkdir(parents=True, exist_ok=True)
    conf.parent.mkdir(parents=True, exist_ok=True)
    build(target, compiler=compiler, include=include)
    written = [target]
    if write_node_side is not None:
        written.append(target.with_name(NODE_ZIP))
        write_node_side(written[-1])
        written[-1].chmod(0o644)
    fresh = conf.with_name(conf.name + ".new")
    fresh.write_text(with_line(conf.read_text() if conf.exists() else "", line))
    fresh.chmod(0o644)
    fresh.replace(conf)
    return [*written, conf]
