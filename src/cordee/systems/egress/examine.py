"""What is planned for a run's egress: which destinations are of which class, how much may go to all others, and what is done then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cordee.core.errors import UsageError
from cordee.core.findings import Finding
from cordee.job.cluster import profile_files
from cordee.job.egress import EgressSite, EgressTable
from cordee.job.load import LoadedJob
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.systems.egress.node.classes import LISTED, OBJECT_STORES, PRIVATE, REGISTRIES, SITE

DEFAULT_MOST = 10**9


class EgressExamination(Examination):
    """The site's table, and the job's where it asks for no less."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        job, (site, demands) = self.loaded.job.egress, site_egress(self.loaded)
        if not job.watch and not demands:
            return Contribution()
        action = "stop" if "stop" in (job.action, site.action) else "report"
        own = dict.fromkeys(job.allow, "") if site.action is None else {}
        limits = [size for size in (job.most, site.most) if size is not None]
        part: dict[str, Any] = {
            "action": action,
            "most": min(limits) if limits else DEFAULT_MOST,
            "every_s": site.every,
            "listed": {**listed_places(site), LISTED: {**own, **_agreed(site)}},
            "counters": site.counters,
            "account": site.account,
            "cluster": self.loaded.cluster.name,
        }
        return Contribution(part, findings=list(self._demanded(job, site, demands)))

    def _demanded(self, job: EgressTable, site: EgressSite, demands: bool) -> Iterable[Finding]:
        """Yield what the job asks for and does not get."""
        asked = [
            ("watch", "watch = false", not job.watch and demands),
            ("action", f'action = "{job.action}"', job.action == "report" and site.action == "stop"),
            ("most", f"most = {job.most}", None not in (job.most, site.most) and (job.most or 0) > (site.most or 0)),
            ("allow", "allow", bool(job.allow) and site.action is not None),
        ]
        for key, words, weaker in asked:
            if weaker:
                file, line = self.loaded.place("egress", key)
                text = f"[egress] {words} is less than the site demands; the site's holds"
                what = "ask the operators to list the destination" if key == "allow" else None
                yield Finding(text, "info", "egress-policy", file=file, line=line, next=what)


def site_egress(loaded: LoadedJob) -> tuple[EgressSite, bool]:
    """Return what the cluster's profile says, and whether the site has said it: then a person's own profile adds nothing."""
    try:
        files = profile_files(loaded.cluster.name)
    except UsageError:  # a profile that no file describes
        files = []
    for file in files:
        if file.kind == "site profile" and isinstance(file.document.get("egress"), dict):
            return EgressSite.model_validate(file.document["egress"]), True
    return loaded.cluster.egress, False


def listed_places(site: EgressSite) -> dict[str, dict[str, str]]:
    """Return the destinations of a profile by class, each with the name that it is agreed on under."""
    own = PRIVATE if site.site is None else site.site
    return {
        SITE: dict.fromkeys(own, ""),
        REGISTRIES: dict.fromkeys(site.registries, ""),
        OBJECT_STORES: dict.fromkeys(site.object_stores, ""),
        LISTED: _agreed(site),
    }


def _agreed(site: EgressSite) -> dict[str, str]:
    return {place: name for name, one in site.agreed.items() for place in one.hosts}
