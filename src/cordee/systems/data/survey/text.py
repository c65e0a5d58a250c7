"""A survey as one screen of plain words."""

from __future__ import annotations

from cordee.core.units import format_duration, format_size, utc_text
from cordee.systems.data.survey.forecast import Epoch
from cordee.systems.data.survey.path_survey import JudgedSurvey
from cordee.systems.data.survey.places import ASSUMED, MEASURED
from cordee.systems.data.survey.purge import time_text
from cordee.systems.data.survey.shown_paths import counted, shown

_STEPS = (4096, 65536, 1 << 20, 16 << 20, 256 << 20)
_MOST_FORMATS = 6
_BASES = {ASSUMED: "assumed", MEASURED: "measured here, one reader", "profile": "as the profile says"}


def lines_of(judged: JudgedSurvey) -> list[str]:
    """Return the lines; names in them may hold anything that a file name can."""
    found = judged.survey
    lines = [f"{shown(found.path)}: {counted(found.files, 'file')}, {format_size(found.bytes)}{_allocated(judged)}"]
    if found.folders is not None:
        lines.append(
            f"  {counted(found.folders, 'folder')}, {found.depth} deep, at most {_most_entries(judged):,} entries in one"
            + (f"; {counted(found.links, 'link')} not followed" if found.links else "")
        )
    if found.kept:
        lines.append(f"  as it was on {utc_text(found.began_s)[:16].replace('T', ' at ')} UTC")
    if not found.complete:
        lines.append("  not all of it: some could not be looked at")
    if found.files:
        lines += ["", *_formats(judged), *_sizes(judged), "", *_tiers(judged)]
    lines += [f"  quota     {text}" for text in _quotas(judged)]
    if judged.purge:
        text = f"{counted(judged.purge.soon_files, 'file')} within {judged.purge.within_days} days"
        lines.append(f"  purge     {text}; the first on {time_text(judged.purge.first_s)[:10]}")
    advice = judged.advice
    lines += [
        "",
        f"tier: {advice.tier} ({advice.kind}, {shown(advice.path)})",
        f"  {advice.reason}.",
        f"do: {advice.action}",
    ]
    return lines


def _allocated(judged: JudgedSurvey) -> str:
    found = judged.survey
    mean = f", {format_size(found.mean_bytes)} each" if found.files else ""
    if found.allocated_bytes is None:
        return mean
    return f" ({format_size(found.allocated_bytes)} allocated){mean}"


def _most_entries(judged: JudgedSurvey) -> int:
    return max((folder.entries for folder in judged.survey.largest_folders), default=0)


def _formats(judged: JudgedSurvey) -> list[str]:
    lines = []
    for each in judged.survey.formats[:_MOST_FORMATS]:
        how = "" if each.by == "content" else f", by {each.by}"
        lines.append(f"  {each.name:19}{each.files:>12,} files {format_size(each.bytes):>9}{how}")
    rest = judged.survey.formats[_MOST_FORMATS:]
    if rest:
        size = format_size(sum(each.bytes for each in rest))
        lines.append(f"  {f'{len(rest)} more formats':19}{sum(each.files for each in rest):>12,} files {size:>9}")
    return lines


def _sizes(judged: JudgedSurvey) -> list[str]:
    parts, below = [], 0
    for step in (*_STEPS, None):
        count = sum(each.files for each in judged.survey.sizes if step is None or each.below_bytes <= step) - below
        below += count
        if count:
            parts.append(f"{count:,} {f'below {_binary(step)}' if step else 'larger'}")
    return [f"  sizes     {', '.join(parts)}"] if parts else []


def _binary(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _tiers(judged: JudgedSurvey) -> list[str]:
    lines = ["one epoch of one node, from  opens as it is / packed       time as it is             packed"]
    for each in judged.forecast:
        name = f"{each.tier} ({shown(each.path)})"
        opens = f"{each.as_it_is.opens:,} / {each.packed.opens:,}"
        times = f"{_time(each.as_it_is):25} {_time(each.packed)}"
        lines.append(f"  {name:26} {opens:29} {times}")
    bases = {each.opens_basis for each in judged.forecast} | {each.read_basis for each in judged.forecast}
    for basis in sorted(bases - {"profile"}):
        names = [each.tier for each in judged.forecast if basis in (each.opens_basis, each.read_basis)]
        lines.append(f"  rates of {', '.join(names)}: {_BASES[basis]}")
    return lines


def _time(epoch: Epoch) -> str:
    low, high = (format_duration(seconds) for seconds in epoch.seconds)
    return low if low == high else f"{low} to {high}"


def _quotas(judged: JudgedSurvey) -> list[str]:
    found = []
    for quota in judged.quotas:
        parts = []
        if quota.limit_files is not None:
            used = "" if quota.used_files is None else f"{quota.used_files:,} of "
            parts.append(f"{used}{quota.limit_files:,} files")
        if quota.limit_bytes is not None:
            used = "" if quota.used_bytes is None else f"{format_size(quota.used_bytes)} of "
            parts.append(f"{used}{format_size(quota.limit_bytes)}")
        if parts:
            found.append(f"{', '.join(parts)} ({quota.source})")
    return found
