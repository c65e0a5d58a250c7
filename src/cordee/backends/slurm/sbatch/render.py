"""The document of a converted script, with a comment on everything that it does not say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cordee.core.documents.toml_text import quoted
from cordee.job.conversion import Conversion, Left

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def render_conversion(
    found: Conversion, *, source: str, name: str, run: str | Sequence[str], checkpoint: Sequence[str]
) -> str:
    """Return the text of cordee.toml.

    Args:
        source: what the script is called.
        name, run: where the script has none, something else's.
        checkpoint: lines about checkpoints.
    """
    lines = [
        f"# Does what {_comment(source)} does; what differs is at the end.",
        f"name = {quoted(name)}",
        f"run = {quoted(run)}",
    ]
    if found.launch != "fork":
        lines.append(f"launch = {quoted(found.launch)}{' ' * 8}# an MPI program: srun starts it")
    if found.environment:
        lines.append(f"environment = {quoted(found.environment)}")
    if found.setup:
        lines += ["setup = [", *(f"  {quoted(line)}," for line in found.setup), "]"]
    lines += _table("need", found.need)
    if "spare_nodes" not in found.need:
        lines += ["# spare_nodes = 1    # asked for on top, so that a bad node can be left out"]
    lines += _table("vet", found.vet)
    slurm = {"options": found.options, "mpi": found.mpi}
    lines += _table("slurm", {key: value for key, value in slurm.items() if value})
    lines += _table("env", found.env)
    lines += ["", *checkpoint]
    lines += _table("restart", found.restart)
    if found.need.get("gpus_per_node"):
        lines += ["", "# [on.local]         # what differs on a machine without GPUs"]
        lines += ["# need = { nodes = 1, min_nodes = 1, gpus_per_node = 0, ranks_per_node = 1 }"]
    lines += _left(found.left, source)
    return "\n".join(lines) + "\n"


def group_left(left: Sequence[Left]) -> dict[str, list[Left]]:
    """Return what is left by reason, in the order of lines."""
    groups: dict[str, list[Left]] = {}
    for one in left:
        groups.setdefault(one.why, []).append(one)
    return groups


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    if not values:
        return []
    lines = ["", f"[{name}]"]
    for key, value in values.items():
        shown = str(value) if isinstance(value, int) else quoted(value)
        lines.append(f"{key if _BARE_KEY.match(key) else quoted(key)} = {shown}")
    return lines


def _left(left: Sequence[Left], source: str) -> list[str]:
    if not left:
        return []
    lines = ["", f"# Lines of {_comment(source)} that are not carried over, or mean something else here:"]
    for why, group in group_left(left).items():
        lines += [f"# - {_comment(why)}", *(f"#   {one.line:>4}  {_comment(one.shown)}" for one in group)]
    return lines


def _comment(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
