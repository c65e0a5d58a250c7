"""Images from registries, through skopeo."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordee.environment.images.credentials import write_auth_file
from cordee.environment.images.errors import ImageError
from cordee.environment.images.importing import import_image
from cordee.environment.images.make import no_space, out_of_quota
from cordee.environment.images.oci import INDEX_TYPES, open_download, this_architecture
from cordee.environment.images.reference import RegistryReference
from cordee.environment.images.store import Store, StoredImage
from cordee.errors import CordeeError

TRIES = 4
SITE_POLICY = Path("/etc/containers/policy.json")
_FIRST_PAUSE_S = 1.0
_DENIED = re.compile(
    r"unauthorized|authentication required|denied|invalid username/password|\b40[13]\b|forbidden", re.IGNORECASE
)
_NOT_FOUND = re.compile(r"manifest unknown|name unknown|not found|\b404\b", re.IGNORECASE)
_NO_SUCH_HOST = re.compile(r"no such host|server misbehaving|name resolution", re.IGNORECASE)
# What a second try may mend.
_PASSING = re.compile(
    r"timeout|timed out|connection reset|connection refused|broken pipe|unexpected EOF|\bEOF\b|\b429\b|\b50[0234]\b|"
    r"too many requests|temporary failure|network is unreachable|stream error|TLS handshake",
    re.IGNORECASE,
)
_LOOPBACK = re.compile(r"(localhost|127(?:\.\d+){3}|\[::1\])(:\d+)?")
# What registries and proxies may put into their messages.
_SECRET = re.compile(r"(?i)(authorization:\s*\w+\s+|bearer\s+|token=|password=|://[^/\s:@]+:(?=[^\s/@]+@))[^\s&\"'@]+")


@dataclass(frozen=True)
class Pulled:
    """What a pull has done.

    Attributes:
        image: what the reference means now.
        before: the digest that it meant before; None: it was not in the store.
        fetched: whether anything was downloaded.
    """

    image: StoredImage
    before: str | None
    fetched: bool

    @property
    def changed(self) -> bool:
        """Whether the reference means another image than before."""
        return self.before is not None and self.before != self.image.digest


def pull_image(
    reference: RegistryReference,
    store: Store,
    *,
    say: Callable[[str], None] = lambda text: None,
    environ: Mapping[str, str] = os.environ,
    pause: Callable[[float], None] = time.sleep,
) -> Pulled:
    """Ask the registry what a reference means now, fetch it where the store does not have it, and pin the name to it.

    Args:
        say: told what is done, line by line.
        pause: called with the seconds to wait before another try.

    Raises:
        ImageError: the registry does not have it or does not give it, or it is damaged.
        StoreError: the store is full or cannot be written.
    """
    before = store.pinned(reference.name)
    with store.importing(f"pull {reference.name}", say), store.temporary() as folder:
        ask = _Asking(reference, folder, say, environ, pause)
        digest = ask.digest()
        found = store.find(digest)
        fetched = found is None
        if found is None:
            with store.faults():
                image = open_download(ask.fetch())
            found = import_image(image, store, origin=reference.name, say=say)
        store.pin(reference.name, found.digest)
        store.touch(found)
    return Pulled(found, before.digest if before else None, fetched)


class _Asking:
    """One registry, asked about one image."""

    def __init__(
        self,
        reference: RegistryReference,
        folder: Path,
        say: Callable[[str], None],
        environ: Mapping[str, str],
        pause: Callable[[float], None],
    ) -> None:
        self._reference, self._folder, self._say, self._pause = reference, folder, say, pause
        program = shutil.which("skopeo", path=environ.get("PATH"))
        if program is None:
            raise ImageError(
                "images are fetched from registries with skopeo, which is not installed",
                given=reference.name,
                next="install skopeo, or bring the image as a file: `podman save --format oci-archive`",
            )
        self._program = program
        self._auth = write_auth_file(reference, folder, environ)
        self._environ = environ

    def digest(self) -> str:
        """Return the digest of the manifest for this machine's architecture."""
        raw = self._run("inspect", "--raw", self._name())
        try:
            document = json.loads(raw)
        except ValueError:
            raise ImageError("the registry's answer is no manifest", given=self._reference.name) from None
        if document.get("mediaType") in INDEX_TYPES or "manifests" in document:
            return self._of_index(document)
        return f"sha256:{hashlib.sha256(raw).hexdigest()}"

    def _of_index(self, index: Mapping[str, Any]) -> str:
        wanted, others = this_architecture(), set()
        for each in index.get("manifests") or ():
            platform = each.get("platform") or {}
            if platform.get("os") == "linux" and platform.get("architecture") == wanted:
                return str(each["digest"])
            if platform.get("os") not in (None, "unknown"):
                others.add(f"{platform.get('os')}/{platform.get('architecture')}")
        raise ImageError(
            f"the image is not for this machine, which is {wanted}",
            given=f"{self._reference.name}, for {', '.join(sorted(others))}",
            allowed=f"an image for linux/{wanted}",
        )

    def fetch(self) -> Path:
        """Return the folder that the image was downloaded into; what a try has brought is not fetched again."""
        download = self._folder / "download"
        self._run(
            "copy", "--override-arch", this_architecture(), "--override-os", "linux", self._name(), f"dir:{download}"
        )
        return download

    def _name(self) -> str:
        return f"docker://{self._reference.name}"

    def _run(self, verb: str, *arguments: str) -> bytes:
        # Large files go beside the download: /var/tmp, which is skopeo's own choice, is often small.
        command = [self._program, *self._policy(), "--tmpdir", str(self._folder), verb, *self._flags(verb), *arguments]
        wait_s = _FIRST_PAUSE_S
        for attempt in range(1, TRIES + 1):
            if verb == "copy":
                self._say(f"fetching {self._reference.name}")
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=dict(self._environ)
            )
            if done.returncode == 0:
                return done.stdout
            said = done.stderr.decode(errors="replace")
            if attempt == TRIES or _DENIED.search(said) or not _PASSING.search(said):
                break
            self._say(f"the registry failed ({_last(said)}); trying again in {wait_s:.0f} s")
            self._pause(wait_s)
            wait_s *= 3
        raise self._refused(said)

    def _policy(self) -> list[str]:
        """A machine without a policy for signatures would be refused everything."""
        home = Path(self._environ.get("HOME", "/")) / ".config/containers/policy.json"
        return [] if home.exists() or SITE_POLICY.exists() else ["--insecure-policy"]

    def _flags(self, verb: str) -> list[str]:
        prefix = "--src-" if verb == "copy" else "--"
        flags = [f"{prefix}tls-verify=false"] if _LOOPBACK.fullmatch(self._reference.registry) else []
        return flags + (["--authfile", str(self._auth)] if self._auth else [])

    def _refused(self, said: str) -> CordeeError:
        if "no space left on device" in said:
            return no_space(self._folder)
        if "disk quota exceeded" in said:
            return out_of_quota(self._folder)
        name, registry = self._reference.name, self._reference.registry
        if _DENIED.search(said):
            return self._denied(said)
        if _NOT_FOUND.search(said) and not _NO_SUCH_HOST.search(said):
            return ImageError(f"{registry} has no such image", given=name, next="look at its spelling and tag")
        if _NO_SUCH_HOST.search(said):
            return ImageError(
                f"there is no registry {registry}, or no network here",
                given=name,
                next="pull it where there is a network (a login node); a path begins with `/` or `./`",
            )
        return ImageError(f"{registry} did not give the image: {_last(said)}", given=name)

    def _denied(self, said: str) -> ImageError:
        name, registry, user = self._reference.name, self._reference.registry, self._reference.user
        to = f" to the user {user}" if user else ""
        hint = f"skopeo login {registry}" + (f" --username {user}" if user else "")
        if registry == "nvcr.io":
            hint = "skopeo login nvcr.io --username '$oauthtoken', with an NGC API key as the password"
        return ImageError(
            f"{registry} refuses to give the image{to}: it needs a login, may not be seen with this one, or does not exist "
            "(registries do not tell which)",
            given=f"{name} ({_last(said)})",
            allowed=f"[USER@]{registry}#{self._reference.repository}, with USER logged in",
            next=hint,
        )


def _last(said: str) -> str:
    """Return the last thing that skopeo said, without secrets."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    text = lines[-1] if lines else "it said nothing"
    inner = re.search(r'msg="(.*)"$', text)
    return _SECRET.sub(r"\1***", (inner.group(1) if inner else text).replace('\\"', '"'))[-400:]
