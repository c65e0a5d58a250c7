"""Images: what a reference means, archives read without being unpacked, a store, and where an image lies here."""

from __future__ import annotations

from cordee.environment.images.errors import ImageError, StoreError
from cordee.environment.images.locate import locate
from cordee.environment.images.reference import read_reference
from cordee.environment.images.store import Store, own_store

__all__ = ["ImageError", "Store", "StoreError", "locate", "own_store", "read_reference"]
