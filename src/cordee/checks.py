"""What a check of one's own imports: the published name of `cordee.systems.vetting.node.checks`."""

from __future__ import annotations

from cordee.systems.vetting.node.checks import *  # noqa: F403
from cordee.systems.vetting.node.checks import __all__ as __all__
