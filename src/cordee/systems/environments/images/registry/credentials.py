"""Credentials for registries: those of podman, skopeo and docker are found by skopeo; those of enroot are handed to it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from cordee.core.documents.texts import text_of
from cordee.machine.images.errors import ImageError
from cordee.systems.environments.images.reference import RegistryReference

# Whom docker.io's credentials are filed under.
_DOCKER_HUB = ("docker.io", "auth.docker.io", "registry-1.docker.io", "index.docker.io")


def write_auth_file(reference: RegistryReference, folder: Path, environ: Mapping[str, str]) -> Path | None:
    """Write what is known of the user of a reference where only skopeo reads it; None: skopeo's own files hold.

    enroot's credentials (`$ENROOT_CONFIG_PATH/.credentials`, netrc's form) are used where they name the registry, and the
    user if the reference has one. Secrets are never on a command line.

    Raises:
        ImageError: the credentials name a variable that is not set.
    """
    found = _enroot(reference, environ)
    if found is None:
        return None
    login, password = found
    key = "https://index.docker.io/v1/" if reference.registry == "docker.io" else reference.registry
    token = base64.b64encode(f"{login}:{password}".encode()).decode()
    path = folder / "auth.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"auths": {key: {"auth": token}}}, file)
    return path


def _enroot(reference: RegistryReference, environ: Mapping[str, str]) -> tuple[str, str] | None:
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    path = Path(environ.get("ENROOT_CONFIG_PATH") or os.path.join(home, "enroot")) / ".credentials"
    try:
        text = text_of(path.read_bytes(), str(path))
    except OSError:
        return None
    hosts = _DOCKER_HUB if reference.registry == "docker.io" else (reference.registry,)
    for machine, login, password in _entries(text):
        if machine in hosts and reference.user in (None, login):
            return login, _expanded(password, environ, path)
    return None


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (machine, login, password) of a netrc; the module of that name keeps only one login of each machine."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = " ".join(lines).split()
    starts = [index for index, word in enumerate(words) if word == "machine"]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        entry = dict(zip(words[start:end:2], words[start + 1 : end : 2], strict=False))
        if "login" in entry and "password" in entry:
            yield entry["machine"], entry["login"], entry["password"]


def _expanded(secret: str, environ: Mapping[str, str], path: Path) -> str:
    """Return a secret; enroot lets it be `$VARIABLE` or `${VARIABLE}`."""
    if not secret.startswith("$"):
        return secret
    name = secret.strip("${}")
    if name not in environ:
        raise ImageError("the credentials of enroot name a variable that is not set", file=str(path), given=f"${name}")
    return environ[name]
