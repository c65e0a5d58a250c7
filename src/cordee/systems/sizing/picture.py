"""Memory against speed of all layouts of a plan, as a chart: in the report, and as a page of its own."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.draw.charts import COLOURS, MOST_LINES, ChartLine, line_chart
from cordee.core.draw.pages import page_environment
from cordee.core.errors import UsageError

if TYPE_CHECKING:
    from cordee.systems.sizing.plan import SizedPlan


def trade_off(layouts: Sequence[Mapping[str, Any]], memory_bytes: float | None) -> str:
    """Return a chart as SVG, a dot for each layout whose pace is known, and the memory of a GPU; empty: there are not two dots.

    Args:
        layouts: as `RankedLayout.short` gives them.
    """
    known = [one for one in layouts if one.get("pace")][: MOST_LINES - 1]
    if len(known) < 2:
        return ""
    lines = [ChartLine(str(one["name"]), [float(one["pace"])], [float(one["peak_bytes"])]) for one in known]
    if memory_bytes:
        paces = [float(one["pace"]) for one in known]
        lines.append(ChartLine("memory of a GPU", [min(paces), max(paces)], [float(memory_bytes)] * 2))
    title = "Peak of memory over speed, for each layout"
    return line_chart(title, lines, x_label=f"{known[0]['unit']}/s", y_kind="bytes", zero=True)


def write_picture(plan: SizedPlan, path: Path) -> None:
    """Write the chart of a plan as a page.

    Raises:
        UsageError: there is nothing to draw, or the file cannot be written.
    """
    chart = trade_off([one.short() for one in plan.ranking], plan.device.memory if plan.device else None)
    if not chart:
        raise UsageError(
            "there are no two layouts to draw",
            given=plan.model.name,
            next="give --gpu MODEL and --gpus N, for a model of known sizes",
        )
    style = page_environment("cordee.core.draw").get_template("style.css.j2").render(colours=range(COLOURS))
    title = html.escape(plan.model.name)
    page = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>'
    try:
        path.write_text(f"{page}<body><main><h1>{title}</h1>{chart}</main></body></html>\n")
    except OSError as error:
        raise UsageError("the picture cannot be written", given=str(path), next=str(error.strerror)) from None
