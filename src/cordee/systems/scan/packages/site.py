"""What a site says of packages, from its profile and from options."""

from __future__ import annotations

from cordee.job.cluster import read_tables
from cordee.job.profile import ScanSite
from cordee.systems.scan.packages.judge import PackageJudge
from cordee.systems.scan.packages.names import known_names


def site_of(cluster: str) -> ScanSite:
    """Return what the profile of a cluster says.

    Raises:
        UsageError: no cluster has this name.
        DocumentError: the profile is wrong there.
    """
    return read_tables(cluster, ("scan",)).scan


def judge_of(site: ScanSite, advisories: str | None = None) -> PackageJudge:
    """Return what judges packages at a site.

    Args:
        site: what its profile says.
        advisories: another snapshot than the site's.

    Raises:
        UsageError: a list or a snapshot is not there, or is none.
    """
    known = known_names(site.packages, site.internal)
    place = advisories or site.advisories
    if not place:
        return PackageJudge(known)
    from cordee.systems.scan.packages.advisories import AdvisorySnapshot  # deferred: most sites have none

    return PackageJudge(known, AdvisorySnapshot(place))
