"""One call of `cordee record`, whoever parsed it."""

from __future__ import annotations

import json
import os
import sys

from cordee.telemetry.node.record.options import RecordError, RecordOptions
from cordee.telemetry.node.record.start import RecordStart


def run(options: RecordOptions, *, as_json: bool = False) -> int:
    """Record a command: become it, or stay with it and return its exit code (128 + n for signal n).

    Args:
        as_json: its output goes to standard error, and one document about it to standard output.

    Raises:
        CordeeError: nothing was started; `exit_code` is 127 or 126 for the command's faults, 125 for ours.
    """
    if not options.argv:
        raise RecordError("there is no command to record", next="cordee record -- python train.py")
    start = RecordStart(options)
    if not as_json and os.getpid() != 1:
        start.go()
    # As the first process of a container the command would inherit the sampler, and its end would be the sampler's.
    from cordee.telemetry.node.record.accompany import accompany

    document = accompany(start, output_to_stderr=as_json)
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        sys.stdout.flush()
    return int(document["exit_code"])
