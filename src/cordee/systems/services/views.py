"""What is said of a job's services wherever runs are told."""

from __future__ import annotations

from typing import Any

from cordee.telemetry.shown.view import RunView


class ServicesView(RunView):
    """How each service of the job is, or was."""

    def document(self) -> dict[str, Any]:
        """Return `services`, one for each that the journal tells of."""
        return {"services": list(self.state.services.values())} if self.state.services else {}

    def facts(self) -> list[tuple[str, str]]:
        """Return a line for each."""
        return [("service", _words(one)) for one in self.state.services.values()]


def _words(one: dict[str, Any]) -> str:
    if one["state"] == "ready":
        took = f" after {one['seconds']:.1f} s" if one["seconds"] is not None else ""
        return f"{one['service']}: {one['url'] or 'ready'} on {one['node']}, ready{took}"
    return f"{one['service']}: {one['state']} on {one['node']}: {one['why']}"
