"""Registries, asked through the programs that speak with them: skopeo, else podman."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.errors import CordeeError
from cordee.core.secrets import masked_text
from cordee.core.units import format_size
from cordee.machine.foreign_files import parse_json
from cordee.machine.images.errors import ImageError
from cordee.machine.images.oci import INDEX_TYPES, OciImage, open_download, open_image, this_architecture
from cordee.machine.processes.parent import die_with_parent
from cordee.systems.environments.images.make import no_space, out_of_quota
from cordee.systems.environments.images.reference import RegistryReference
from cordee.systems.environments.images.registry.credentials import write_auth_file
from cordee.systems.environments.images.store.sizes import folder_bytes

TRIES = 4
TOLD_EVERY_S = 5.0
STALLED_S = 180.0
SITE_POLICY = Path("/etc/containers/policy.json")
_FIRST_PAUSE_S = 1.0
# Where skopeo looks for logins first, where there is no XDG_RUNTIME_DIR: a job of Slurm has none, and root may have closed it.
_LOGINS = "/run/containers"
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


class RegistryQuestion(NamedTuple):
    """What a registry is asked about, and with what.

    Attributes:
        reference: the image.
        folder: for what is fetched; it is gone when the pull ends.
        say: told what is done, line by line.
        environ: of the program.
        pause: called with the seconds to wait before another try.
    """

    reference: RegistryReference
    folder: Path
    say: Callable[[str], None]
    environ: Mapping[str, str]
    pause: Callable[[float], None]


class RegistryQuery:
    """One registry, asked about one image through one program.

    Args:
        program: its path.
        asked: what for.
    """

    # Whether what is fetched lies in the folder of `asked`, where it can be seen to arrive.
    fetches_here = True
    # What the registry is to do with the image, for people.
    wanted = "give"

    def __init__(self, program: str, asked: RegistryQuestion) -> None:
        self._program, self._asked = program, asked
        self._reference, self._folder = asked.reference, asked.folder
        self._auth = write_auth_file(asked.reference, asked.folder, asked.environ)

    def variables(self) -> dict[str, str]:
        """Return what the program's environment has beside the machine's."""
        return {}

    def digest(self) -> str | None:
        """Return the digest of the manifest for this machine; None: only fetching tells."""
        raise NotImplementedError("a program knows, or does not")

    def fetch(self) -> OciImage:
        """Return the image, downloaded."""
        raise NotImplementedError("a program fetches")

    def _run(self, command: list[str], *, announce: bool) -> bytes:
        wait_s = _FIRST_PAUSE_S
        for attempt in range(1, TRIES + 1):
            if announce:
                self._asked.say(f"fetching {self._reference.name}")
            code, out, said = self._once(command)
            if code == 0:
                return out
            if (
                attempt == TRIES
                or self._reference.registry == "localhost"
                or _DENIED.search(said)
                or not _PASSING.search(said)
            ):
                break
            self._asked.say(f"the registry failed ({_last(said)}); trying again in {wait_s:.0f} s")
            self._asked.pause(wait_s)
            wait_s *= 3
        raise self._refused(said)

    def _once(self, command: list[str]) -> tuple[int, bytes, str]:
        """Return exit code, output and errors of one try, which is ended when nothing has arrived for STALLED_S seconds."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self._asked.environ, **self.variables()},
            preexec_fn=die_with_parent,  # it would fetch on into a folder that nobody looks at
        )
        size, changed_at = -1, time.monotonic()
        with process:
            while True:
                try:
                    out, said = process.communicate(timeout=TOLD_EVERY_S)
                    return process.returncode, out, said.decode(errors="replace")
                except subprocess.TimeoutExpired:
                    now = folder_bytes(self._folder)
                    if now != size:
                        size, changed_at = now, time.monotonic()
                        if size:
                            self._asked.say(f"{format_size(size)} so far")
                    elif self.fetches_here and time.monotonic() - changed_at > STALLED_S:
                        process.kill()
                        process.communicate()
                        return -1, b"", f"timeout: nothing has arrived for {STALLED_S:.0f} s"
                except BaseException:
                    process.kill()
                    raise

    def _flags(self, prefix: str = "--") -> list[str]:
        flags = [f"{prefix}tls-verify=false"] if _LOOPBACK.fullmatch(self._reference.registry) else []
        return flags + (["--authfile", str(self._auth)] if self._auth else [])

    def _refused(self, said: str) -> CordeeError:
        if "no space left on device" in said:
            return no_space(self._folder)
        if "disk quota exceeded" in said:
            return out_of_quota(self._folder)
        name, registry = self._reference.name, self._reference.registry
        if registry == "localhost" and self.wanted == "take":
            return ImageError(
                "no registry answers on this machine",
                given=name,
                next="name its port; for podman's own storage: cordee env build FILE --oci DIR, and podman pull oci:DIR",
            )
        if registry == "localhost":
            return ImageError(
                "no registry answers on this machine; images of podman's own storage are called localhost/ too",
                given=name,
                next=f'podman save --format oci-archive -o image.tar {name}, and image = "oci-archive:image.tar"',
            )
        if _DENIED.search(said):
            return self._denied(said)
        if _NOT_FOUND.search(said) and not _NO_SUCH_HOST.search(said):
            what = "image" if self.wanted == "give" else "place for the image"
            return ImageError(f"{registry} has no such {what}", given=name, next="look at its spelling and tag")
        if _NO_SUCH_HOST.search(said):
            return ImageError(
                f"there is no registry {registry}, or no network here",
                given=name,
                next="try it where there is a network (a login node); a path begins with `/` or `./`",
            )
        return ImageError(f"{registry} did not {self.wanted} the image: {_last(said)}", given=name)

    def _denied(self, said: str) -> ImageError:
        name, registry, user = self._reference.name, self._reference.registry, self._reference.user
        to = f" to the user {user}" if user else ""
        hint = f"skopeo login {registry}" + (f" --username {user}" if user else "")
        if registry == "nvcr.io":
            hint = "skopeo login nvcr.io --username '$oauthtoken', with an NGC API key as the password"
        return ImageError(
            f"{registry} refuses to {self.wanted} the image{to}: it needs a login, may not be seen with this one, or does not exist "
            "(registries do not tell which)",
            given=f"{name} ({_last(said)})",
            allowed=f"[USER@]{registry}#{self._reference.repository}, with USER logged in",
            next=hint,
        )


class Skopeo(RegistryQuery):
    """Asks for the digest first, and fetches only what is not in the store."""

    def variables(self) -> dict[str, str]:
        """Have it look for logins elsewhere than below a folder that is closed to this user, at which it would give up."""
        closed = os.path.exists(_LOGINS) and not os.access(_LOGINS, os.X_OK)
        return (
            {"XDG_RUNTIME_DIR": str(self._folder)} if closed and not self._asked.environ.get("XDG_RUNTIME_DIR") else {}
        )

    def digest(self) -> str:
        """Return the digest of the manifest for this machine's architecture."""
        raw = self._run([*self._command(), "inspect", *self._flags(), "--raw", self._name()], announce=False)
        try:
            document = parse_json(raw)
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

    def fetch(self) -> OciImage:
        """Return the image that was downloaded; what one try has brought is not fetched again by the next."""
        download = self._folder / "download"
        machine = ["--override-arch", this_architecture(), "--override-os", "linux"]
        copy = [*self._command(), *machine, "copy", *self._flags("--src-"), self._name(), f"dir:{download}"]
        self._run(copy, announce=True)
        return open_download(download)

    def push(self, layout: Path, compress: bool) -> str:
        """Copy the image of an OCI layout to the registry, byte for byte unless `compress`; return its digest there."""
        self.fetches_here, self.wanted = False, "take"
        said = self._folder / "digest"
        kept = ["--dest-compress"] if compress else ["--preserve-digests"]
        copy = [*self._command(), "copy", *kept, "--digestfile", str(said), *self._flags("--dest-")]
        self._run([*copy, f"oci:{layout}", self._name()], announce=False)
        return said.read_text().strip()

    def _command(self) -> list[str]:
        # Large files go beside the download: /var/tmp, which is skopeo's own choice, is often small.
        return [self._program, *self._policy(), "--tmpdir", str(self._folder)]

    def _name(self) -> str:
        return f"docker://{self._reference.name}"

    def _policy(self) -> list[str]:
        """A machine without a policy for signatures would be refused everything."""
        home = Path(self._asked.environ.get("HOME", "/")) / ".config/containers/policy.json"
        return [] if home.exists() or SITE_POLICY.exists() else ["--insecure-policy"]


class Podman(RegistryQuery):
    """Fetches into the person's own storage, from which the image is saved as an archive."""

    fetches_here = False

    def digest(self) -> str | None:
        return None

    def fetch(self) -> OciImage:
        """Return the image that was saved, under the digest that it has in its registry."""
        machine = ["--arch", this_architecture(), "--os", "linux"]
        pull = [self._program, "pull", "--quiet", *machine, *self._flags(), self._name()]
        number = self._run(pull, announce=True).decode().split()[-1]
        inspect = [self._program, "image", "inspect", "--format", "{{.Digest}}", number]
        digest = self._run(inspect, announce=False).decode().strip()
        archive = self._folder / "image.tar"
        self._run(
            [self._program, "save", "--quiet", "--format", "oci-archive", "-o", str(archive), number], announce=False
        )
        image = open_image(archive)
        return replace(image, config=replace(image.config, digest=digest))

    def _name(self) -> str:
        return f"docker://{self._reference.name}"


def ask(asked: RegistryQuestion) -> RegistryQuery:
    """Return what asks registries on this machine.

    Raises:
        ImageError: neither skopeo nor podman is installed.
    """
    for name, kind in (("skopeo", Skopeo), ("podman", Podman)):
        program = shutil.which(name, path=asked.environ.get("PATH", os.defpath))
        if program is not None:
            return kind(program, asked)
    raise ImageError(
        "images are fetched from registries with skopeo or podman, and neither is installed",
        given=asked.reference.name,
        next="install skopeo, or bring the image as a file: `podman save --format oci-archive`",
    )


def _last(said: str) -> str:
    """Return the last thing that skopeo said, without secrets."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    text = lines[-1] if lines else "it said nothing"
    inner = re.search(r'msg="(.*)"$', text)
    return masked_text((inner.group(1) if inner else text).replace('\\"', '"'))[-400:]
