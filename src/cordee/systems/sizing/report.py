"""The peak of memory that was predicted, beside the one that was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cordee.core.units import format_size
from cordee.telemetry.shown.section import Reported, Section

SECTIONS: tuple[type[Section], ...] = ()
