"""What is found in the files of an image, wherever they come from: a root, a squashfs, layers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from cordee.systems.scan.images.system_packages import alpine_packages, debian_packages, rpm_packages, vendor_of
from cordee.systems.scan.node.formats.pickle_globals import PickleGlobals
from cordee.systems.scan.node.formats.texts import secret_sights
from cordee.systems.scan.node.inspection import Inspection
from cordee.systems.scan.node.source import Source
from cordee.systems.scan.node.verdict import Sight
from cordee.systems.scan.packages.installed import conda_package, python_package
from cordee.systems.scan.packages.model import FoundPackage
from cordee.systems.scan.packages.startup import customize_sights, pth_sights

DATABASE_BYTES, TEXT_BYTES = 256 << 20, 256 << 10
_KEPT_BYTES = 512 << 20
_MOST_SHOWN, _MOST_MODELS = 12, 500
ELF = b"\x7fELF"
_DATABASES = re.compile(
    r"var/lib/dpkg/status(?:\.d/[^/]+)?|(?:usr/)?lib/apk/db/installed|(?:var/lib|usr/lib/sysimage)/rpm/(?:rpmdb\.sqlite|Packages(?:\.db)?)"
    r"|(?:etc|usr/lib)/os-release|(?:.*/)?conda-meta/[^/]+\.json|(?:.*/)?[^/]+\.(?:dist-info/METADATA|egg-info(?:/PKG-INFO)?|egg/EGG-INFO/PKG-INFO)"
    r"|(?:.*/)?[^/]+\.dist-info/RECORD|usr/share/doc/[^/]+/copyright"
    r"|(?:.*/)?(?:site|dist)-packages/(?:[^/]+\.pth|(?:site|user)customize\.py|torch/version\.py)"
)
# Files of the system and of packages are everybody's: keys stand in what somebody has added.
_NO_SECRETS = re.compile(
    r"(?:usr|lib|lib64|bin|sbin|boot|proc|sys|dev)/(?!local/(?:etc|bin|src|share)/)|.*(?:^|/)(?:site-packages|dist-packages|node_modules|conda-meta|pkgs|__pycache__"
    r"|share/(?:doc|man|locale|zoneinfo|perl5?)|lib/python3[\d.]*|ca-certificates|ssl/certs)/|var/lib/(?:dpkg|apt|rpm|apk)/"
)
_LICENCE = re.compile(r"^License:[ \t]*(\S[^\n]{0,119})", re.MULTILINE)
_FIELDS = re.compile(r"\s*Format(?:-Specification)?:")
_COMMON_LICENCE = re.compile(r"/usr/share/common-licenses/([\w.+-]*\w)")
_MOST_LICENCES = 12
_NO_TEXT = re.compile(
    r".*\.(?:so(?:\.\d+)*|a|o|pyc|png|jpe?g|gz|xz|zst|bz2|zip|whl|tar|pt|bin|safetensors|parquet|npy|npz|mo)$"
)
_USUAL = frozenset(
    [
        "su",
        "mount",
        "umount",
        "passwd",
        "chsh",
        "chfn",
        "newgrp",
        "gpasswd",
        "sudo",
        "pkexec",
        "ping",
        "ping6",
        "fusermount",
        "fusermount3",
        "unix_chkpwd",
        "chage",
        "expiry",
        "crontab",
        "at",
        "ssh-keysign",
        "dbus-daemon-launch-helper",
        "polkit-agent-helper-1",
        "bbsuid",
        "newuidmap",
        "newgidmap",
        "wall",
        "write",
        "ssh-agent",
        "locate",
        "plocate",
        "mlocate",
        "pam_extrausers_chkpwd",
        "utempter",
        "traceroute6.iputils",
        "arping",
        "clockdiff",
        "mtr-packet",
        "pam_timestamp_check",
        "userhelper",
        "grub2-set-bootflag",
        "staprun",
    ]
)


class ImageFacts(NamedTuple):
    """What an image holds.

    Attributes:
        packages: of its systems of packages.
        sights: what was seen.
        torch: the text of PyTorch's `version.py`; empty: there is none.
    """

    packages: tuple[FoundPackage, ...]
    sights: tuple[Sight, ...]
    torch: str = ""


def is_wanted(path: str, size: int) -> bool:
    """Return whether the content of a file tells of packages, or may hold a key."""
    if _DATABASES.fullmatch(path):
        return size <= DATABASE_BYTES
    return 0 < size <= TEXT_BYTES and not _NO_SECRETS.match(path) and not _NO_TEXT.match(path)


def may_be_model(path: str, size: int) -> bool:
    """Return whether a file may be a model or an archive of some: whatever no system and no package has brought."""
    return size > 0 and not _NO_SECRETS.match(path)


class ImageFinder:
    """Takes what an image holds, file by file, and says at the end what that makes.

    Args:
        given: the image, as people know it.
        known: which names of pickles are harmless.
    """

    def __init__(self, given: str, known: PickleGlobals | None = None) -> None:
        self._given, self._kept = given, 0
        self._known = known or PickleGlobals()
        self._models = 0
        self._databases: dict[str, bytes] = {}
        self._sights: dict[Sight, None] = {}
        self._set_id: list[str] = []
        self._odd: list[str] = []
        self._capable: list[str] = []

    def saw(self, rule: str, severity: str, text: str, where: str = "") -> None:
        """Keep one sight."""
        self._sights[Sight(rule, severity, text, where)] = None

    def name(self, path: str, kind: str, mode: int, uid: int, *, capable: bool) -> None:
        """Take one name that is in the image."""
        if kind != "file":
            return
        if mode & 0o4000 or (mode & 0o2000 and mode & 0o010):
            name = path.rpartition("/")[2]
            usual = name in _USUAL or (not mode & 0o4000)
            (self._set_id if usual else self._odd).append(f"/{path}" + ("" if not uid else f" (of user {uid})"))
        if capable:
            self._capable.append(f"/{path}")

    def model(self, path: str, source: Source) -> list[Sight]:
        """Return what is to be said of a file that may be a model; of what is none, nothing."""
        if source.at(0, 4) == ELF:
            return []
        inspection = Inspection(self._known)
        try:
            inspection.look(source, f"/{path}")
        except Exception as error:  # one bad entry hides no other
            said = f"it cannot be looked at: {str(error)[:120] or type(error).__name__}"
            return [Sight("image-model-unknown", "unknown", said, f"/{path}")]
        return inspection.sights if inspection.kinds else []

    def keep(self, sights: Iterable[Sight]) -> None:
        """Keep what was seen of models; of very many those that are worse."""
        for sight in sights:
            self._models += 1
            if self._models <= _MOST_MODELS or sight.severity == "block":
                self._sights[sight] = None

    def content(self, path: str, content: bytes) -> None:
        """Take the content of a file that is in the image."""
        if not _DATABASES.fullmatch(path):
            self.text(path, content)
            return
        self._kept += len(content)
        if self._kept > _KEPT_BYTES:
            self.saw("image-too-much", "unknown", "its databases of packages are larger than any", f"/{path}")
        else:
            self._databases[path] = content

    def text(self, path: str, content: bytes, behind: str = "") -> None:
        """Look for keys in a file.

        Args:
            path: in the image.
            content: all of it.
            behind: what is told behind each, such as that a later layer deletes the file.
        """
        if b"\0" in content[:1024] or _DATABASES.fullmatch(path):
            return
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return
        for sight in secret_sights(text, f"/{path}"):
            self.saw("image-secret-layer", sight.severity, sight.text + behind, sight.where)

    def facts(self) -> ImageFacts:
        """Return what all of it makes."""
        system = {}
        for path in ("usr/lib/os-release", "etc/os-release"):
            system.update(_os_release(self._databases.get(path, b"")))
        vendor = vendor_of(system)
        distribution = "-".join(filter(None, (system.get("ID", ""), system.get("VERSION_ID", ""))))[:80]
        packages: list[FoundPackage] = []
        torch = ""
        for path, content in sorted(self._databases.items()):
            name = path.rpartition("/")[2]
            if path.endswith("torch/version.py"):
                torch = torch or content[: 1 << 16].decode("utf-8", "replace")
            elif name.endswith(".pth"):
                self._sights.update(dict.fromkeys(pth_sights(content, f"/{path}")))
            elif name in ("sitecustomize.py", "usercustomize.py"):
                self._sights.update(dict.fromkeys(customize_sights(content, f"/{path}")))
            elif name in ("METADATA", "PKG-INFO") or name.endswith(".egg-info"):
                record = self._databases.get(f"{path.rpartition('/')[0]}/RECORD", b"")
                found = python_package(content, self._given)
                packages += [found._replace(bytes=_recorded(record))] if found else []
            elif path.rpartition("/")[0].endswith("conda-meta"):
                packages += filter(None, [conda_package(content, self._given)])
            elif name not in ("os-release", "RECORD", "copyright"):
                found_here = self._of_system(path, content, vendor)
                packages += [each._replace(distribution=distribution) for each in found_here]
        self._told_rights()
        return ImageFacts(tuple(dict.fromkeys(packages)), tuple(self._sights), torch)

    def _of_system(self, path: str, content: bytes, vendor: str) -> list[FoundPackage]:
        try:
            if "/dpkg/" in path:
                return self._licensed(list(debian_packages(content, self._given, vendor)))
            if "/apk/" in path:
                return list(alpine_packages(content, self._given, vendor))
            return list(rpm_packages(content, self._given, vendor))
        except ValueError as error:
            self.saw("image-unreadable", "unknown", f"its packages cannot be read: {error}", f"/{path}")
            return []

    def _licensed(self, packages: list[FoundPackage]) -> list[FoundPackage]:
        """Return packages of Debian with their licences: the folder of one's text may be a link to that of another of its source."""
        packages = [each._replace(licence=self._licences(each.name)) for each in packages]
        of_source = {each.source or each.name: each.licence for each in packages if each.licence}
        return [each._replace(licence=each.licence or of_source.get(each.source or each.name, "")) for each in packages]

    def _licences(self, package: str) -> str:
        """Return the licences that a package of Debian names, a line each: in fields (DEP 5), else the texts that it refers to."""
        text = self._databases.get(f"usr/share/doc/{package}/copyright", b"").decode("utf-8", "replace")
        named = (_LICENCE if _FIELDS.match(text) else _COMMON_LICENCE).findall(text)
        return "\n".join(list(dict.fromkeys(each.strip() for each in named))[:_MOST_LICENCES])

    def _told_rights(self) -> None:
        for rule, severity, names, text in (
            ("image-setuid", "warn", self._set_id, "run with the rights of their owner or group"),
            (
                "image-setuid-odd",
                "unknown",
                self._odd,
                "run with the rights of their owner, which no distribution has so",
            ),
            ("image-capability", "warn", self._capable, "have capabilities of the kernel"),
        ):
            if names:
                shown = ", ".join(sorted(names)[:_MOST_SHOWN]) + (" ..." if len(names) > _MOST_SHOWN else "")
                self.saw(rule, severity, f"{len(names)} of its files {text}: {shown}")


def _recorded(record: bytes) -> int:
    """Return the bytes of the files that a RECORD lists (packaging.python.org, recording installed packages)."""
    sizes = (line.rpartition(b",")[2].strip() for line in record.splitlines())
    return sum(int(size) for size in sizes if size.isdigit() and len(size) < 16)


def _os_release(content: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in content.decode("utf-8", "replace").splitlines() if "=" in line)
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def facts_document(facts: ImageFacts) -> dict[str, Any]:
    """Return facts as JSON takes them."""
    return {"packages": facts.packages, "sights": facts.sights, "torch": facts.torch}


def facts_of(document: dict[str, Any]) -> ImageFacts:
    """Return facts from JSON.

    Raises:
        ValueError: they are none.
    """
    try:
        packages = tuple(
            FoundPackage(*(tuple(value) if isinstance(value, list) else str(value) for value in one[:-1]))._replace(  # type: ignore[arg-type]
                bytes=int(one[-1])
            )
            for one in document["packages"]
        )
        return ImageFacts(packages, tuple(Sight(*map(str, one)) for one in document["sights"]), str(document["torch"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"the answer is of a form that is not known: {error}") from None
