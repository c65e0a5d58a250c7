"""Images: what a reference means, archives read without being unpacked, a store, and where an image lies here."""

from __future__ import annotations

from cordee.machine.images.errors import ImageError, StoreError
from cordee.systems.environments.images.locate import locate
from cordee.systems.environments.images.reference import read_reference
from cordee.systems.environments.images.store.image_store import ImageStore, own_store

__all__ = ["ImageError", "ImageStore", "StoreError", "locate", "own_store", "read_reference"]
