"""Code that an environment runs without being asked: `.pth` files, `sitecustomize`, plug-ins that load with a library, and programs that take the name of others."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator

from cordee.systems.scan.node.verdict import Sight
from cordee.systems.scan.packages.installed import InstalledEnvironment
from cordee.systems.scan.packages.names import KnownNames

_LIMIT_BYTES = 1 << 20
# Lines that tools of packaging write, whole.
_HARMLESS = tuple(
    re.compile(pattern)
    for pattern in (
        r"import _virtualenv",
        r"import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os\.environ\.get\(var, '(?:local|stdlib)'\) == 'local'; "
        r"enabled and __import__\('_distutils_hack'\)(?:\.add_shim\(\))?;?",
        r"import (__editable___\w+_finder); ?\1\.install\(\)",
        r"import sys, types, os;\s*has_mfs = sys\.version_info > \(3, 5\);\s*p = os\.path\.join\(sys\._getframe\(1\)\.f_locals\['sitedir'\], "
        r"\*\((?:'[\w.]+',? ?)+\)\);[^\n]*?(?:sys\.modules|importlib)[^\n]{0,600}",
        r"import coverage; ?coverage\.process_startup\(\)",
        r"import os, sys;\s?exec\('if \"COV_CORE_SOURCE\" in os\.environ:.{0,400}init\(\).{0,400}",
        r"import sys; exec\('try: import coverage; coverage\.process_startup\(\)\\n.{0,200}",
        r"import a1_coverage",
        r"import _rpyc|import _?distutils_precedence",
    )
)
_ACTS = re.compile(
    r"base64|b64decode|urllib|urlopen|\bsocket\b|subprocess|os\.system|popen|\brequests\b|http\.client|marshal|\bzlib\b"
    r"|ctypes|\bcurl\b|\bwget\b|chr\(|fromhex|rot13|codecs|/dev/tcp",
    re.IGNORECASE,
)
_RUNS = re.compile(r"\b(?:exec|eval|compile|__import__)\s*\(")
_DECODES = re.compile(
    r"b64decode|base64|marshal\.loads|zlib\.decompress|fromhex|rot13|urlopen|requests\.get", re.IGNORECASE
)
# Programs that scripts and people call without a path, which no package of Python has to bring along.
_TAKEN = re.compile(
    r"bash|sh|zsh|ls|cat|cp|mv|rm|mkdir|chmod|chown|env|sudo|su|ssh|scp|sftp|rsync|git|curl|"
    r"wget|tar|make|gcc|g\+\+|cc|ld|nvcc|srun|sbatch|salloc|scancel|squeue|sinfo|scontrol|mpirun|"
    r"mpiexec|nvidia-smi|which|ps|kill|top|docker|podman|apptainer|singularity"
)
# Groups whose entry points are imported by the library itself, as soon as it is.
_LOADED = {"torch.backends": "torch", "jax_plugins": "jax", "pytest11": "pytest"}


def startup_sights(environment: InstalledEnvironment) -> Iterator[Sight]:
    """Yield what an environment runs at each start of Python, or in place of the system's programs."""
    for site in environment.sites:
        for name in environment.folder.names(site):
            inside = f"{site}/{name}".lstrip("/")
            if name.endswith(".pth"):
                yield from pth_sights(environment.folder.read(inside, _LIMIT_BYTES), inside)
            elif name in ("sitecustomize.py", "usercustomize.py"):
                yield from customize_sights(environment.folder.read(inside, _LIMIT_BYTES), inside)
    # conda packs such programs itself.
    for name in environment.folder.names("bin") if not environment.folder.names("conda-meta") else ():
        if _TAKEN.fullmatch(name):
            said = f"it brings a program called {name}, which is run in place of the system's own"
            yield Sight("package-taken-command", "unknown", said, f"bin/{name}")


def plugin_sights(environment: InstalledEnvironment, known: KnownNames) -> Iterator[Sight]:
    """Yield the packages in no list that are imported whenever a library is. It reads a file of each package."""
    for site in environment.sites:
        for name in environment.folder.names(site):
            if name.endswith(".dist-info"):
                text = environment.folder.read(f"{site}/{name}/entry_points.txt".lstrip("/"), _LIMIT_BYTES)
                yield from _plugins_of(text, name, known) if text else ()


def pth_sights(content: bytes | None, where: str) -> Iterator[Sight]:
    """Yield the lines of a `.pth` file that each start of Python runs."""
    if content is None:
        yield Sight("package-pth", "unknown", "what it has each start of Python do cannot be read", where)
        return
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if not line.startswith(("import ", "import\t")):
            continue
        if any(one.fullmatch(line.strip()) for one in _HARMLESS):
            continue
        place = f"{where}:{number}"
        if _ACTS.search(line):
            said = f"each start of Python runs a line that unpacks, starts or fetches something: {line.strip()[:80]!r}"
            yield Sight("package-pth", "block", said, place)
        else:
            said = f"each start of Python runs a line that is not known to be harmless: {line.strip()[:80]!r}"
            yield Sight("package-pth", "unknown", said, place)


def customize_sights(content: bytes | None, where: str) -> Iterator[Sight]:
    """Yield what is to be said of a `sitecustomize.py`."""
    text = (content or b"").decode("utf-8", "replace")
    if content is None or (_RUNS.search(text) and _DECODES.search(text)):
        said = "each start of Python runs it, and it unpacks or fetches code"
        yield Sight("package-sitecustomize", "block" if content is not None else "unknown", said, where)
    elif text.strip():
        yield Sight("package-sitecustomize", "warn", "each start of Python runs it", where)


def _plugins_of(text: bytes, info: str, known: KnownNames) -> Iterator[Sight]:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    package = info.partition("-")[0].replace("_", "-")
    try:
        parser.read_string(text.decode("utf-8", "replace"))
    except configparser.Error:
        yield Sight("package-unreadable", "unknown", "its entry points cannot be read", f"{info}/entry_points.txt")
        return
    for group, library in _LOADED.items():
        if parser.has_section(group) and not known.is_known(package):
            said = f"{package[:80]}, which is in no list of names, is imported by {library} whenever that is ({group})"
            yield Sight("package-plugin", "warn", said, f"{info}/entry_points.txt")
