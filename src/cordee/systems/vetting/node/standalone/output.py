"""What the task that conducted says on standard output."""

from __future__ import annotations

import json
import sys
from typing import Any

from cordee.systems.vetting.node.judge.table import render_table
from cordee.systems.vetting.node.standalone.settings import VetOptions


def show(document: dict[str, Any], options: VetOptions) -> None:
    """Print the allocation document, or the table that a person reads."""
    if options.as_json:
        text = json.dumps(document, indent=2) + "\n"
    else:
        text = render_table(document, colour=sys.stdout.isatty())
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    sys.stdout.write(text)
    sys.stdout.flush()
