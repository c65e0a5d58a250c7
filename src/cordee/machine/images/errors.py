"""What can be wrong with an image and with the store."""

from __future__ import annotations

from cordee.core.errors import EXIT_INTERNAL, EXIT_USAGE, CordeeError


class ImageError(CordeeError):
    """An image cannot be found, read or used."""

    kind = "image"
    exit_code = EXIT_USAGE


class StoreError(CordeeError):
    """The image store cannot be read or written (full, read-only, in use)."""

    kind = "image_store"
    exit_code = EXIT_INTERNAL


class NoStoreError(StoreError):
    """`EDF_IMAGESTORE` names no folder that could be a store."""

    exit_code = EXIT_USAGE
