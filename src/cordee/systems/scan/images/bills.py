"""What scan offers other systems: the packages of an image as a bill of materials."""

from __future__ import annotations

from typing import Any

from cordee.systems.scan.images.scan import image_form, look_into
from cordee.systems.scan.packages.sbom import bill


class ScanBills:
    """Fills the port `bills`."""

    def bill(self, image: str, about: str) -> tuple[dict[str, Any], list[str]]:
        """Return the bill of materials of an image, and what could not be looked at."""
        look = look_into(image, image_form(image) or "squashfs")
        unseen = [sight.text for sight in look.facts.sights if sight.severity == "unknown"]
        if not any(one.kind in ("deb", "rpm", "apk") for one in look.facts.packages):
            unseen.append("no packages of dpkg, RPM or apk were found: what its system consists of is not in this bill")
        return bill(look.facts.packages, about), unseen


BILLS = ScanBills()
