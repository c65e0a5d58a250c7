"""`python -m cordee.faces.report FOLDER` renders a run's report and prints where it is."""

from __future__ import annotations

import sys

from cordee.core.errors import CordeeError
from cordee.faces.report import render

if len(sys.argv) != 2:
    sys.exit("usage: python -m cordee.faces.report FOLDER")
try:
    print(render(sys.argv[1]))
except CordeeError as error:
    print(f"cordee report: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
