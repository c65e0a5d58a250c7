"""What this machine knows of reaching indexes: proxies, certificates, and what pip and apt are told. Lent to a build while it
resolves and fetches; nothing of it is in the image."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ftp_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PIP_KEYS = (
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
    "trusted-host",
    "cert",
    "client-cert",
    "proxy",
    "timeout",
    "default-timeout",
    "retries",
    "constraint",
)
Mount = tuple[Path, str, bool]


def network_variables(environ: Mapping[str, str] = os.environ) -> tuple[dict[str, str], list[Mount]]:
    """Return the variables that name proxies and certificates, and the files that these name."""
    names = [*_PROXIES, *(name.upper() for name in _PROXIES), *_CERTIFICATES]
    found = {name: environ[name] for name in names if environ.get(name)}
    return found, _mounts(value for name, value in found.items() if name in _CERTIFICATES)


def pip_variables() -> tuple[dict[str, str], list[Mount]]:
    """Return what pip is told on this machine about indexes, as variables, and the folders and files that these name."""
    program = (
        [sys.executable, "-P", "-m", "pip"] if find_spec("pip") else [shutil.which("pip3") or shutil.which("pip") or ""]
    )
    told: dict[str, str] = {}
    if program[0]:
        done = subprocess.run([*program, "config", "list"], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            name, _, value = line.partition("=")
            section, _, key = name.rpartition(".")
            if key in _PIP_KEYS and section in ("global", "download", "install", ":env:"):
                try:
                    told[key] = str(ast.literal_eval(value))
                except (ValueError, SyntaxError):
                    continue
    netrc = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    told["timeout"] = told.get("timeout") or told.pop("default-timeout", "") or "60"
    variables = {f"PIP_{key.upper().replace('-', '_')}": value for key, value in told.items()}
    mounts = _mounts(word for value in told.values() for word in value.split())
    if netrc.is_file():
        variables["NETRC"] = "/run/cordee/netrc"
        mounts.append((netrc.resolve(), "/run/cordee/netrc", False))
    return variables, mounts


def host_pip() -> list[Mount]:
    """Return this Python's pip as a mount, for images that have none; nothing where this Python has none either."""
    found = find_spec("pip")
    if found is None or not found.origin:
        return []
    return [(Path(found.origin).parent, "/run/cordee/host-pip/pip", False)]


def apt_lines() -> list[str]:
    """Return the lines by which apt is told on this machine how indexes are reached: proxies and the like."""
    program = shutil.which("apt-config")
    if program is None:
        return []
    done = subprocess.run([program, "dump", "Acquire"], capture_output=True, text=True, check=False)
    wanted = ("proxy", "timeout", "cainfo", "verify", "user-agent")
    return [
        line
        for line in done.stdout.splitlines()
        if line.startswith("Acquire::http") and any(word in line.partition(" ")[0].lower() for word in wanted)
    ]


def without_login(url: str) -> str:
    """Return a URL without the name and password in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _mounts(words: object) -> list[Mount]:
    found: dict[str, Mount] = {}
    for word in words:  # type: ignore[attr-defined]
        path = unquote(word.removeprefix("file://")) if word.startswith(("/", "file:///")) else ""
        # Pages of an index link to files beside it.
        path = os.path.dirname(path.rstrip("/")) if path.rstrip("/").endswith("/simple") else path
        if path and os.path.exists(path):
            real = Path(os.path.realpath(path))
            found[path] = (real, path, False)
    return list(found.values())
