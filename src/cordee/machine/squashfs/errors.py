"""What can go wrong while an environment is packed."""

from __future__ import annotations

from cordee.core.errors import EXIT_BAD, CordeeError


class PackError(CordeeError):
    """An environment could not be packed; the file that was asked for is as it was before."""

    kind = "environment"
    exit_code = EXIT_BAD
