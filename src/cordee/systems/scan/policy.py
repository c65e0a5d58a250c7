"""What is done about files that are not clean: the job's word, and the site's, which no job can weaken."""

from __future__ import annotations

from typing import Literal, NamedTuple

from cordee.core.errors import UsageError
from cordee.core.findings import Finding
from cordee.job.cluster import ProfileFile, profile_files
from cordee.job.document import ScanTable
from cordee.job.load import LoadedJob
from cordee.systems.scan.node.verdict import FileVerdict

# From the weakest to the strictest; "" is what holds where nobody says anything.
_STRICTNESS = ("off", "warn", "", "block")


class ScanPolicy(NamedTuple):
    """What holds for one job.

    Attributes:
        word: `off`, `warn`, `block`, or "" for what holds without a word: poison stops a job, what is unknown is told.
        allowed: names that pickles may look up.
        demanded: whether the site demands more than the job asked for.
    """

    word: Literal["off", "warn", "", "block"]
    allowed: tuple[str, ...]
    demanded: bool

    def severity(self, verdict: FileVerdict) -> Literal["error", "warn"]:
        """Return what a finding about a file is."""
        stops = ("block",) if self.word == "" else ("block", "unknown") if self.word == "block" else ()
        return "error" if verdict.verdict in stops else "warn"


def policy_of(loaded: LoadedJob) -> ScanPolicy:
    """Return what holds for a job: its own word where the site demands no more.

    Names that the site knows to be harmless count; a person's own profile can add names, and demand more, as the job can.
    """
    own: ScanTable = loaded.job.scan
    wishes = [own.policy or ""]
    for file in _profile(loaded):
        word = file.document.get("scan", {}).get("policy", "")
        if word and (file.kind == "site profile" or not own.policy):
            wishes.append(word)
    word = max(wishes, key=_STRICTNESS.index)
    if own.policy is None and len(wishes) > 1:
        word = max(wishes[1:], key=_STRICTNESS.index)
    allowed = tuple(sorted({*own.allow, *loaded.cluster.scan.allow}))
    return ScanPolicy(word, allowed, own.policy is not None and word != own.policy)  # type: ignore[arg-type]


def _profile(loaded: LoadedJob) -> list[ProfileFile]:
    try:
        return profile_files(loaded.cluster.name)
    except UsageError:  # a profile that no file describes
        return []


def demanded(loaded: LoadedJob) -> Finding:
    """Return what is said where a job asks for less than the site demands."""
    file, line = loaded.place("scan", "policy")
    text = f'[scan] policy = "{loaded.job.scan.policy}" is less than the site demands; the site\'s holds'
    return Finding(text, "info", "scan-policy", file=file, line=line)
