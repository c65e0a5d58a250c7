"""What the `image` of an environment means: a path, an OCI layout or archive, or a reference to a registry."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from cordee.machine.images.errors import ImageError

DEFAULT_REGISTRY = "docker.io"
DEFAULT_TAG = "latest"
ARCHIVE_SCHEMES = ("oci", "oci-archive", "docker-archive")
FORMS = (
    "ubuntu:24.04",
    "docker://ubuntu:24.04",
    "nvcr.io/nvidia/pytorch:24.01-py3",
    "nvcr.io#nvidia/pytorch:24.01-py3",
    "USER@nvcr.io#nvidia/pytorch:24.01-py3",
    "ubuntu@sha256:...",
    "./image.sqsh",
    "./root-folder",
    "oci:FOLDER",
    "oci-archive:FILE.tar",
    "docker-archive:FILE.tar",
)
# Endings by which a name without `./` can only have been meant as a file.
_FILE_ENDINGS = (".sqsh", ".squashfs", ".sqfs", ".sqh", ".sif", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".oci", ".img")
# Where files of images lie that only a job's place can fetch, and folders that are on its machines alone.
_FETCHED, ON_MACHINES = ("https", "http", "osdf", "pelican", "stash"), "/cvmfs/"
_SCHEME = re.compile(r"([a-zA-Z][\w+.-]*)://")
_REGISTRY = re.compile(r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


@dataclass(frozen=True)
class RegistryReference:
    """An image in a registry.

    Attributes:
        registry: host and port (`nvcr.io`, `localhost:5000`).
        repository: `library/ubuntu`.
        tag: None where a digest is given.
        digest: `sha256:...`, which goes before a tag.
        user: for whom the credentials are looked up; None: whoever is logged in.
    """

    registry: str
    repository: str
    tag: str | None
    digest: str | None = None
    user: str | None = None

    @property
    def name(self) -> str:
        """The reference in full, without the user: what names are compared by."""
        return f"{self.registry}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class LocalPath:
    """An image on this machine.

    Attributes:
        scheme: one of `ARCHIVE_SCHEMES`; None: what lies there says what it is.
        tag: which image of an archive or layout.
    """

    path: str
    scheme: str | None = None
    tag: str | None = None

    @property
    def name(self) -> str:
        """What the store calls an image that was imported from here."""
        return f"{self.scheme or 'archive'}:{self.path}" + (f":{self.tag}" if self.tag else "")


def is_elsewhere(image: str) -> bool:
    """Return whether an image is a file that is not looked for here: of an address, or a path of the job's machines."""
    return image.partition("://")[0] in _FETCHED or image.startswith(ON_MACHINES)


def read_reference(text: str, cwd: str | None = None) -> RegistryReference | LocalPath:
    """Return what the text means; relative paths begin in `cwd`. Nothing is looked up.

    Raises:
        ImageError: it has none of the forms; both ways in which it can be read are named.
    """
    given, text = text, text.strip()
    if not text:
        raise ImageError("an image has no name", given=given, allowed=FORMS)
    for scheme in ARCHIVE_SCHEMES:
        if text.startswith(f"{scheme}:"):
            return _local(text[len(scheme) + 1 :].removeprefix("//"), cwd, scheme, given)
    if text.startswith("file://"):
        return _local(text.removeprefix("file://"), cwd, None, given)
    if text.startswith(("/", "./", "../", "~/")) or text in (".", "..", "~"):
        return _local(text, cwd, None, given)
    scheme_given = _SCHEME.match(text)
    if scheme_given and scheme_given.group(1) != "docker":
        raise ImageError(f"there is no way to get an image by {scheme_given.group(0)}", given=given, allowed=FORMS)
    if not scheme_given and text.lower().endswith(_FILE_ENDINGS):
        return _local(text, cwd, None, given)
    return _registry(text.removeprefix("docker://").removeprefix("docker:"), given)


def _local(path: str, cwd: str | None, scheme: str | None, given: str) -> LocalPath:
    if not path:
        raise ImageError("there is no path after the colon", given=given, allowed=FORMS)
    tag = None
    if scheme and ":" in path and not os.path.lexists(_absolute(path, cwd)):
        # `oci:folder:tag`, as skopeo has it; a path that exists with its colons is taken as it is.
        before, _, after = path.partition(":")
        if before:
            path, tag = before, after or None
    return LocalPath(_absolute(path, cwd), scheme, tag)


def _absolute(path: str, cwd: str | None) -> str:
    return os.path.normpath(os.path.join(cwd or os.getcwd(), os.path.expanduser(path)))


def _registry(text: str, given: str) -> RegistryReference:
    text, digest = _cut_digest(text, given)
    user, text = _cut_user(text)
    registry, repository = _cut_registry(text, given)
    last = repository.rsplit("/", 1)[-1]
    tag = last.partition(":")[2] if ":" in last else None
    if tag is not None:
        repository = repository[: -len(tag) - 1]
        if not _TAG.fullmatch(tag):
            raise _neither("a tag holds letters, digits, `_`, `.` and `-`", given)
    if registry in ("index.docker.io", "registry-1.docker.io"):
        registry = DEFAULT_REGISTRY
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    if not all(_PART.fullmatch(part) for part in repository.split("/")):
        hint = "a repository is written in small letters" if repository != repository.lower() else ""
        raise _neither(hint or "a repository is small letters, digits, `.`, `_`, `-`, parted by `/`", given)
    return RegistryReference(registry, repository, None if digest else tag or DEFAULT_TAG, digest, user)


def _cut_digest(text: str, given: str) -> tuple[str, str | None]:
    before, at, digest = text.rpartition("@")
    if not at or not re.match(r"(sha\d+:|sha256|[a-z0-9]+:[0-9a-fA-F]{16,}$)", digest):
        return text, None
    if not _DIGEST.fullmatch(digest):
        raise ImageError("this is no whole digest", given=given, allowed="@sha256: and 64 digits of 0-9a-f")
    return before, digest


def _cut_user(text: str) -> tuple[str | None, str]:
    """Split `USER@` off: an `@` that is left can stand only before the registry."""
    user, at, rest = text.partition("@")
    return (user or None, rest) if at else (None, text)


def _cut_registry(text: str, given: str) -> tuple[str, str]:
    if text.count("#") > 1:
        raise ImageError("there is more than one `#`", given=given, allowed=FORMS)
    if "#" in text:
        registry, _, repository = text.partition("#")
        registry = registry or DEFAULT_REGISTRY
    else:
        registry, slash, repository = text.partition("/")
        if not slash or not (registry == "localhost" or "." in registry or ":" in registry):
            registry, repository = DEFAULT_REGISTRY, text
    if not _REGISTRY.fullmatch(registry):
        raise _neither("a registry is a host name, with `:` and a port where it has one", given)
    return registry, repository


def _neither(reason: str, given: str) -> ImageError:
    return ImageError(
        f"this is no reference to a registry ({reason}), and no path: paths begin with `/` or `./`",
        given=given,
        allowed=FORMS,
    )
