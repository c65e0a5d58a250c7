"""What a site adds to a protocol: where results are kept, rules, baselines, switches, folders of checks."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.backends.cluster_here import cluster_here
from cordee.core.backends import HERE
from cordee.core.documents.config_paths import config_folder, profile_names
from cordee.core.documents.faults import fault_error
from cordee.core.documents.files import read_text
from cordee.systems.vetting.protocol.faults import Faults
from cordee.systems.vetting.protocol.rules import rules_of

if TYPE_CHECKING:
    from cordee.job.profile import ClusterProfile

SITE = "site"
_NEEDED = ("vetting", "switches", "python")


@dataclass(frozen=True)
class ProtocolSite:
    """What the profile of a cluster says that matters for a protocol; attributes as in `cordee.job.profile.VettingSite`."""

    name: str = HERE
    python: str | None = None
    switches: dict[str, str] = field(default_factory=dict)
    history: str | None = None
    collector: str | None = None
    token_file: str | None = None
    checks: tuple[str, ...] | None = None
    rules: tuple[str, ...] = ()
    baseline: str | None = None
    environments: str | None = None
    users: str = "name"


def site_of(profile: ClusterProfile) -> ProtocolSite:
    """Return what a profile says that matters for a protocol."""
    own = profile.vetting
    return ProtocolSite(
        name=profile.name,
        python=profile.python,
        switches=dict(profile.switches),
        history=own.history,
        collector=own.collector,
        token_file=own.token_file,
        checks=own.checks,
        rules=own.rules,
        baseline=own.baseline,
        environments=own.environments,
        users=own.users,
    )


def find_site(cluster: str | None = None, environ: Mapping[str, str] = os.environ) -> ProtocolSite:
    """Return what the profile of a cluster says that matters for a protocol.

    Args:
        cluster, environ: as in `vetting_profile`.

    Raises:
        UsageError, DocumentError: as `vetting_profile`.
    """
    name = cluster_here(cluster, environ)
    if name == HERE and HERE not in profile_names(environ):
        return ProtocolSite()
    return site_of(vetting_profile(name, environ))


def vetting_profile(cluster: str | None = None, environ: Mapping[str, str] = os.environ) -> ClusterProfile:
    """Return what the profile of a cluster says of vetting and switches; asks no scheduler, and fills in nothing else.

    Args:
        cluster: its name; None: CORDEE_ON, else the one whose profile names the Slurm of this job, else `local`.
        environ: where variables are read from.

    Raises:
        UsageError: no cluster has this name.
        DocumentError: its profile is wrong.
    """
    from cordee.job.cluster import read_tables

    return read_tables(cluster_here(cluster, environ), _NEEDED, environ)


def site_values(site: ProtocolSite, history: str | None, base: Path, faults: Faults) -> dict[str, Any]:
    """Return the keys of a resolved protocol that the site fills in.

    Args:
        site: what the cluster's profile says.
        history: `site`, a folder or a URL; None: results are not kept.
        base: the folder that a relative folder of `history` begins at.
        faults: where faults are noted.
    """
    return {
        "rules": rules_of([_path(path) for path in site.rules]),
        "history": _kept(site.users, _history(site, history, base, faults)),
        "baseline": read_baseline(_path(site.baseline)) if site.baseline else {},
        "switches": site.switches,
    }


def folders_of_checks(site: ProtocolSite, base: Path) -> tuple[Path, ...]:
    """Return the folders that classes may come from; where the profile names none, the protocol's own."""
    given = site.checks
    return (base,) if given is None else tuple(_path(folder) for folder in given)


def environments_folder(site: ProtocolSite) -> Path | None:
    """Return where environments are prepared: CORDEE_ENVIRONMENTS, else as the profile says; None: the person's cache."""
    given = os.environ.get("CORDEE_ENVIRONMENTS") or site.environments
    return _path(given) if given else None


def prepared_for(requirements: list[str | list[str]], site: ProtocolSite) -> Path | None:
    """Return the interpreter that was prepared for these requirements, None when none was or none is needed.

    Raises:
        PrepareError: the profile's interpreter does not run.
    """
    if not requirements:
        return None
    from cordee.job.prepared import prepared

    return prepared(requirements, site.python, environments_folder(site))


def read_baseline(path: Path) -> dict[str, dict[str, float]]:
    """Return the fleet's values, by check.

    Raises:
        DocumentError: the file is missing or wrong.
    """
    text = read_text(path, "a JSON file")
    allowed = '{"CHECK": {"value": NUMBER, "n": NUMBER}, ...}'
    try:
        values = {
            str(check): {"value": float(entry["value"]), "n": int(entry["n"])}
            for check, entry in json.loads(text).items()
        }
        if not all(math.isfinite(entry["value"]) and entry["value"] > 0 for entry in values.values()):
            raise ValueError("a value is not above 0")
        return values
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = "write it with `cordee nodes baseline --json`"
        raise fault_error(
            f"is not a baseline: {error}", "bad-value", file=str(path), given=text[:80], allowed=allowed, next=what
        ) from None


def _kept(users: str, target: dict[str, str] | None) -> dict[str, str] | None:
    """Return a history's target with how it keeps users, where that is not by name."""
    return target if target is None or users == "name" else {**target, "user": users}


def _history(site: ProtocolSite, given: str | None, base: Path, faults: Faults) -> dict[str, str] | None:
    if given is None:
        return None
    if given == SITE:
        if site.collector:
            return _collector(site.collector, site.token_file)
        if site.history:
            return {"folder": str(_path(site.history))}
        text = f"the profile of {site.name} does not say where results are kept"
        what = "give a folder or a URL, or add [vetting] history to the profile"
        faults.add(("history",), text, given=given, allowed="a folder, or the URL of a collector", next=what)
        return None
    if "://" in given:
        if not given.startswith(("http://", "https://")):
            allowed = "http:// or https://"
            faults.add(
                ("history",), "is not the URL of a collector", given=given, allowed=allowed, next="change history"
            )
        return _collector(given, site.token_file)
    return {"folder": str((base / os.path.expandvars(os.path.expanduser(given))).absolute())}


def _collector(url: str, token_file: str | None) -> dict[str, str]:
    path = _path(token_file) if token_file else config_folder(os.environ) / "collector.token"
    return {"url": url, "token_file": str(path)}


def _path(given: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(given))).absolute()
