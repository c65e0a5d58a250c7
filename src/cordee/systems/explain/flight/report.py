"""What the Flight Recorder's dumps say, in a run's report: who sent how much to whom, and who waited for whom."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from cordee.core.draw.clean import clean
from cordee.core.draw.images import LEVELS, data_uri, encode_png, ramp, to_levels
from cordee.core.draw.pages import page_environment
from cordee.core.errors import CordeeError, UsageError
from cordee.core.units import format_size
from cordee.systems.explain.flight.files import find_dumps
from cordee.systems.explain.flight.views import flight_of_run
from cordee.systems.explain.flight.words import traffic_lines
from cordee.telemetry.shown.section import Reported, Section

if TYPE_CHECKING:
    import numpy as np

_WIDE, _MOST_DIMENSIONS = 80, 6
_SIDE = 320  # of a picture, in pixels of the page
# Reading more would keep the end of a run waiting for minutes.
_MOST_BYTES = 32 << 20


class CommunicationSection(Section):
    """The matrices of each dimension; nothing where the run has left no dump."""

    name = key = "communication"
    place = "logged"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        self._traffic: dict[str, Any] | None = None
        self._why = ""
        run = reported.run.folder
        try:
            files = find_dumps(run.root / "flight", None)
        except UsageError:
            return
        large = sum(file.path.stat().st_size for file in files.files)
        if large > _MOST_BYTES:
            self._why = f"its dumps have {format_size(large)}; ask for it by `cordee flight {run.id} --matrix`"
            return
        try:
            _, document = flight_of_run(run, None, matrix=True)
        except CordeeError as error:
            self._why = str(error)
            return
        self._traffic = document["traffic"]

    @property
    def missing(self) -> list[str]:
        return [f"who sent how much to whom: {self._why}"] if self._why else []

    def document(self) -> Any:
        return self._traffic

    def lines(self) -> list[str]:
        found = []
        for line in traffic_lines(self._traffic):
            indent = " " * (len(line) - len(line.lstrip()) + 4)
            found += textwrap.wrap(clean(line), _WIDE, subsequent_indent=indent)
        return ["Communication", *found] if found else []

    def html(self) -> str:
        if self._traffic is None or not self._traffic["calls"]:
            return ""
        count = len(self._traffic["cells"])
        pictures = [
            {
                "name": one["name"],
                "sent": _picture(one["sent"], count),
                "most_sent": format_size(int(max((cell[2] for cell in one["sent"]), default=0))),
                "waited": _picture(one["waited"], count),
                "most_waited": f"{max((cell[2] for cell in one['waited']), default=0.0):.3g} s",
            }
            for one in self._traffic["dimensions"][:_MOST_DIMENSIONS]
        ]
        template = page_environment(__name__.rpartition(".")[0]).get_template("report.html.j2")
        first, last = (self._traffic["cells"][at]["label"] for at in (0, -1))
        return template.render(
            side=_SIDE, pictures=pictures, first=first, last=last, text="\n".join(traffic_lines(self._traffic)[1:])
        )


def _picture(cells: list[list[float]], count: int) -> Markup:
    """Return a matrix as the address of a picture: rows are who sends or waits, dark is little, and blank nothing."""
    import numpy as np

    values: np.ndarray = np.full((count, count), np.nan)
    for row, column, amount in cells:
        values[int(row), int(column)] = amount
    most = max((cell[2] for cell in cells), default=1.0)
    return Markup(data_uri(encode_png(to_levels(values, 0.0, most), [(0, 0, 0), *ramp(LEVELS)], transparent=0)))
