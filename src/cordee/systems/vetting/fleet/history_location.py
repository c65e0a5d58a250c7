"""Where the history lies: a folder, or a collector; and the audit trail beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cordee.core.errors import UsageError
from cordee.job.profile import ClusterProfile


@dataclass(frozen=True)
class HistoryPlace:
    """A history's folder, or a collector's address, and the file of the audit trail."""

    audit: Path
    folder: Path | None = None
    url: str | None = None
    token_file: str | None = None

    def refresh(self) -> Path:
        """Return the folder with all that there is; a collector is asked for what is new.

        Raises:
            CordeeError: the collector was not reached.
        """
        if self.folder is not None:
            return self.folder
        from cordee.systems.vetting.fleet.mirror import fetch

        return fetch(str(self.url), self.token_file)


def history_place(
    given: str | None,
    profile: ClusterProfile | None,
    token_file: str | None = None,
    audit: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> HistoryPlace:
    """Return where the history lies: the flag, CORDEE_HISTORY, else the profile's `[vetting]`.

    Args:
        given: a folder or an http(s) address.
        profile: of the cluster.
        token_file: for a collector; default: the profile's.
        audit: file of the audit trail; default: `actions.jsonl` in the folder, or in the user's state folder.

    Raises:
        UsageError: nothing says where.
    """
    site = profile.vetting if profile is not None else None
    where = given or environ.get("CORDEE_HISTORY") or (site and (site.history or site.collector))
    if not where:
        raise UsageError(
            "nothing says where the history is",
            allowed="a folder, or the address of a collector",
            next="--history DIR|URL, CORDEE_HISTORY, or [vetting] history in the cluster's profile",
        )
    token_file = token_file or environ.get("CORDEE_HISTORY_TOKEN_FILE") or (site.token_file if site else None)
    if where.startswith(("http://", "https://")):
        base = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        trail = Path(audit) if audit else Path(base) / "cordee" / "actions.jsonl"
        return HistoryPlace(trail, url=where.rstrip("/"), token_file=token_file)
    folder = Path(os.path.expandvars(os.path.expanduser(where)))
    return HistoryPlace(Path(audit) if audit else folder / "actions.jsonl", folder=folder)
