"""The causes of a hang as findings: `python -m cordee.systems.explain.hang_report RUN NUMBER` prints `{"findings": [...]}`.

The supervisor starts it when agents have told what they collected. It is a process of its own, since dumps are large and
whatever they hold must not end a run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cordee.core.draw.clean import one_line
from cordee.core.errors import UsageError
from cordee.core.findings import Finding
from cordee.systems.explain.flight.analysis import analyse
from cordee.systems.explain.flight.files import find_dumps
from cordee.systems.explain.hang.evidence import Hang, read_hang
from cordee.systems.explain.hang.judge import judge
from cordee.systems.explain.hang.words import hang_finding


def hang_findings(run: Path, number: int) -> list[Finding]:
    """Return the causes of a hang.

    Args:
        run: the run's folder.
        number: of the hang.

    Raises:
        UsageError: there is no such hang.
    """
    hang = read_hang(run, number)
    return [hang_finding(verdict, hang) for verdict in judge(hang, flight_of(run, hang))]


def flight_of(run: Path, hang: Hang) -> list[dict[str, Any]]:
    """Return what the Flight Recorder's dumps of the hang's attempt say; nothing where there are none that can be read."""
    try:
        return analyse(find_dumps(run / "flight", hang.attempt), hang.world).findings
    except UsageError:
        return []
    except Exception as error:  # whatever a dump holds: what else was collected is judged without it
        print(f"the dumps cannot be judged: {one_line(error)}", file=sys.stderr)
        return []


def main() -> int:
    """Print the findings of one hang."""
    run, number = Path(sys.argv[1]), int(sys.argv[2])
    print(json.dumps({"findings": [finding.document() for finding in hang_findings(run, number)]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
