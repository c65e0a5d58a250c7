"""What can go wrong with a build."""

from __future__ import annotations

from cordee.core.errors import EXIT_BAD, CordeeError


class BuildError(CordeeError):
    """The image cannot be made: a step failed, something locked is not to be had, or there is no room."""

    kind = "build"
    exit_code = EXIT_BAD
