"""The port `bills`: what packages are in an image, for whoever makes images."""

from __future__ import annotations

from typing import Any, Protocol

PORT = "bills"


class ImageBills(Protocol):
    """Who looks into images and says what packages they hold."""

    def bill(self, image: str, about: str) -> tuple[dict[str, Any], list[str]]:
        """Return the bill of materials of an image as CycloneDX 1.6, and what could not be looked at.

        Args:
            image: path of a squashfs file or folder.
            about: what people call it.
        """
        ...
