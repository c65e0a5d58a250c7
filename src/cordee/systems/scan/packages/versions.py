"""The order of versions, as each kind of package has it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from packaging.version import InvalidVersion, Version

_MOST = 200  # letters; longer ones are made to take time
_RPM_PARTS = re.compile(r"[0-9]+|[A-Za-z]+|~|\^")
_APK = re.compile(
    r"(?P<numbers>\d+(?:\.\d+)*)(?P<letter>[a-z]?)(?P<suffixes>(?:_[a-z]+\d*)*)(?:~[0-9a-f]+)?(?:-r(?P<release>\d+))?"
)
_APK_SUFFIXES = {"alpha": -4, "beta": -3, "pre": -2, "rc": -1, "cvs": 1, "svn": 2, "git": 3, "hg": 4, "p": 5}


def version_key(kind: str) -> Callable[[str], Any]:
    """Return what makes versions of a kind comparable; it raises ValueError for what is no version.

    Args:
        kind: `pypi` (PEP 440), `deb` (Debian Policy 5.6.12), `rpm` (rpmvercmp), `apk` (apk-tools).
    """
    return {"pypi": _python, "deb": _debian, "rpm": _rpm, "apk": _apk}.get(kind, _python)


def _python(text: str) -> Version:
    try:
        return Version(text[:_MOST])
    except InvalidVersion as error:
        raise ValueError(str(error)) from None


def _debian(text: str) -> Any:
    epoch, _, rest = text[:_MOST].rpartition(":") if ":" in text[:_MOST] else ("0", "", text[:_MOST])
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    if not epoch.isdigit():
        raise ValueError(f"{text[:80]!r} is no version of Debian")
    return int(epoch), _debian_part(upstream), _debian_part(revision or "0")


@functools.cmp_to_key
def _debian_part(one: str, other: str) -> int:
    """Compare in turn what is no digit (`~` before the end, letters before the rest) and numbers."""
    while one or other:
        first, second = (re.match(r"\D*", text)[0] for text in (one, other))  # type: ignore[index]
        one, other = one[len(first) :], other[len(second) :]
        for at in range(max(len(first), len(second))):
            ranks = [_rank(text[at : at + 1]) for text in (first, second)]
            if ranks[0] != ranks[1]:
                return -1 if ranks[0] < ranks[1] else 1
        numbers = [re.match(r"\d*", text)[0] for text in (one, other)]  # type: ignore[index]
        one, other = one[len(numbers[0]) :], other[len(numbers[1]) :]
        left, right = (int(number or "0") for number in numbers)
        if left != right:
            return -1 if left < right else 1
    return 0


def _rank(letter: str) -> int:
    if not letter:
        return 0
    return -1 if letter == "~" else ord(letter) if letter.isalpha() else ord(letter) + 256


def _rpm(text: str) -> Any:
    text = text[:_MOST]
    epoch, _, rest = text.partition(":") if ":" in text else ("0", "", text)
    version, _, release = rest.partition("-")
    if not epoch.isdigit():
        raise ValueError(f"{text[:80]!r} is no version of RPM")
    return int(epoch), _rpm_part(version), _rpm_part(release)


@functools.cmp_to_key
def _rpm_part(one: str, other: str) -> int:
    ours, theirs = _RPM_PARTS.findall(one), _RPM_PARTS.findall(other)
    for at in range(max(len(ours), len(theirs))):
        left, right = (parts[at] if at < len(parts) else "" for parts in (ours, theirs))
        if left == right:
            continue
        for mark, ended in (("~", -1), ("^", 1)):
            if mark in (left, right):
                # `~` is before everything, also the end; `^` after the end, and before all else.
                if left == mark:
                    return ended if not right or mark == "~" else -1
                return -ended if not left or mark == "~" else 1
        if not left or not right:
            return 1 if left else -1
        if left.isdigit() != right.isdigit():
            return 1 if left.isdigit() else -1
        pair = (int(left), int(right)) if left.isdigit() else (left, right)
        if pair[0] != pair[1]:
            return -1 if pair[0] < pair[1] else 1  # type: ignore[operator]
    return 0


def _apk(text: str) -> Any:
    match = _APK.fullmatch(text[:_MOST])
    if match is None:
        raise ValueError(f"{text[:80]!r} is no version of Alpine")
    suffixes = []
    for one in match["suffixes"].split("_")[1:]:
        name = one.rstrip("0123456789")
        suffixes.append((_APK_SUFFIXES.get(name, 0), int(one[len(name) :] or "0")))
    numbers = tuple(int(part) for part in match["numbers"].split("."))
    return numbers, match["letter"], (*suffixes, (0, 0)), int(match["release"] or "0")
