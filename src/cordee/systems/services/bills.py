"""The hook for a centre's billing: each day of a service that is over is handed to a command, until the command has taken it."""

from __future__ import annotations

import fcntl
import json
import shlex
import subprocess
from typing import Any, NamedTuple

from cordee.core.clock import unix_s
from cordee.core.errors import UsageError
from cordee.systems.services.accounts import UsedDay, day_of, used_days
from cordee.systems.services.instance import ServiceError, services_folder

_BILLED = ".billed"
_TIMEOUT_S = 300.0
# Samples and requests of the last minutes of a day come a little later.
_LATE_S = 3600.0


class Bill(NamedTuple):
    """One line for the billing: what a service has used on a day, on whose account.

    Attributes:
        id: the same for the same line, however often it is handed over.
    """

    id: str
    day: UsedDay

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        day = self.day
        about = {"service": day.service, "day": day.day, "project": day.project, "owner": day.owner}
        return {"schema": "cordee.service-bill/1", "id": self.id, **about, **day.use.document()}


def open_bills(billed: set[str]) -> list[Bill]:
    """Return what is over and was not billed, a line for each service, day and account."""
    until = day_of(unix_s() - _LATE_S)
    sums: dict[str, Bill] = {}
    for one in used_days():
        name = f"{one.owner}/{one.service}/{one.day}/{one.project}"
        if one.day < until and name not in billed:
            known = sums.setdefault(name, Bill(name, UsedDay(one.service, one.day, one.project, one.owner)))
            known.day.use.add(one.use)
    return [sums[name] for name in sorted(sums)]


def bill(command: str) -> list[Bill]:
    """Hand what was not billed to a command as JSON lines on its standard input, and note it once that exits with 0.

    Killed between the two, the same lines come again, with the same ids.

    Raises:
        UsageError: there is no such command.
        ServiceError: it did not take them, or another one is billing now.
    """
    base = services_folder()
    base.mkdir(0o700, parents=True, exist_ok=True)
    with (base / _BILLED).open("a+") as notes:
        try:
            fcntl.flock(notes, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ServiceError("another command is billing now", given=str(base), next="wait for its end") from None
        notes.seek(0)
        bills = open_bills(set(notes.read().splitlines()))
        if bills:
            _hand_over(command, "".join(json.dumps(one.document()) + "\n" for one in bills))
            notes.writelines(one.id + "\n" for one in bills)
        return bills


def _hand_over(command: str, text: str) -> None:
    try:
        done = subprocess.run(shlex.split(command), input=text, text=True, timeout=_TIMEOUT_S, capture_output=True)
    except (ValueError, IndexError, OSError) as error:
        raise UsageError(f"the command for bills cannot be run: {error}", given=command) from error
    except subprocess.TimeoutExpired:
        raise ServiceError(
            f"the command for bills did not end within {_TIMEOUT_S:.0f} s", given=command, next="it is asked again"
        ) from None
    if done.returncode:
        raise ServiceError(
            f"the command for bills exited with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}",
            given=command,
            allowed="exit code 0 once it has taken all lines",
            next="nothing counts as billed; the same lines, with the same ids, come next time",
        )
