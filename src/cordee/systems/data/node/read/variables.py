"""How a data set of the job document is called in the environment of its ranks."""

from __future__ import annotations

import re

_OTHER = re.compile(r"[^A-Za-z0-9]")


def data_variable(name: str) -> str:
    """Return the variable that holds where `[data.NAME]` lies: CORDEE_DATA_ and the name in capitals, other signs as `_`."""
    return "CORDEE_DATA_" + _OTHER.sub("_", name).upper()
