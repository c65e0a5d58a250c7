"""An image that has just been pulled or packed is looked into."""

from __future__ import annotations

from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.words import counted
from cordee.systems.scan.packages.scan import judge_image
from cordee.systems.scan.packages.site import judge_of, site_of
from cordee.systems.scan.rules import RULES

_MOST = 10


def image_findings(path: str, cluster: str) -> list[Finding]:
    """Return what is to be said of an image: errors where the site's policy refuses it, one line for what is only worth knowing."""
    try:
        site = site_of(cluster)
        judge = judge_of(site)
    except CordeeError as error:
        return [Finding(error.text, "warn", "scan-packages", given=error.given, next=error.next)]
    verdict = judge_image(path, judge, site.allow)
    bad = [sight for sight in verdict.sights if sight.severity != "warn"]
    severity = "error" if site.policy == "block" else "warn"
    findings = [
        Finding(
            f"{sight.text} [{sight.where}]" if sight.where else sight.text,
            severity,
            f"scan-{sight.rule}",
            file=path,
            next=RULES[sight.rule].next if sight.rule in RULES else None,
        )
        for sight in bad[:_MOST]
    ]
    if len(verdict.sights) > len(findings):
        said = f"{counted(len(verdict.sights) - len(findings), 'more finding')} about the image"
        findings.append(Finding(said, "info", "scan-more", file=path, next=f"cordee scan {path}"))
    return findings
