"""The document of a converted script, with a comment on everything that it does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cordee.core.documents.toml_text import quoted, quoted_key, value_text
from cordee.job.conversion import Conversion, Left


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
    if found.code != "live":
        lines.append(
            f"code = {quoted(found.code)}{' ' * 8}# what lies beside this file goes along; no shared folder is needed"
        )
    if found.setup:
        lines += ["setup = [", *(f"  {quoted(line)}," for line in found.setup), "]"]
    lines += _table("need", found.need)
    if "nodes" in found.need and "spare_nodes" not in found.need:
        lines += ["# spare_nodes = 1    # asked for on top, so that a bad node can be left out"]
    lines += _table("sweep", found.sweep)
    lines += _table("farm", found.farm)
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
    return [*lines, *(f"{quoted_key(key)} = {value_text(value)}" for key, value in values.items())]


def _left(left: Sequence[Left], source: str) -> list[str]:
    if not left:
        return []
    lines = ["", f"# Lines of {_comment(source)} that are not carried over, or mean something else here:"]
    for why, group in group_left(left).items():
        lines += [f"# - {_comment(why)}", *(f"#   {one.line:>4}  {_comment(one.shown)}" for one in group)]
    return lines


def _comment(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def duration_text(seconds: int) -> str:
    """Return seconds as documents have them: `2h`, `1d12h`, `90s`."""
    text = ""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def size_text(size_bytes: int) -> str:
    """Return bytes as documents have them, exactly: `64GiB`, `1536MiB`."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size_bytes % (1 << power) == 0:
            return f"{size_bytes >> power}{unit}"
    return str(size_bytes)
