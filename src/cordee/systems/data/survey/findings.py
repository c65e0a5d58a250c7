"""What of a survey is worth a warning."""

from __future__ import annotations

from collections.abc import Sequence

from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size
from cordee.systems.data.survey.advice import many_small_files
from cordee.systems.data.survey.model import Survey
from cordee.systems.data.survey.places import ReadingNode
from cordee.systems.data.survey.purge import Purge, time_text
from cordee.systems.data.survey.quota import Quota
from cordee.systems.data.survey.shown_paths import counted, quoted, shown

MANY_ENTRIES = 10_000
_NEARLY = 0.9


def findings_of(
    survey: Survey, machine: ReadingNode, quotas: Sequence[Quota], purge: Purge | None
) -> tuple[Finding, ...]:
    """Return the findings on what was found, the worst first."""
    found = [
        *_of_what_was_missed(survey),
        *_of_limits(survey, machine, quotas),
        *_of_purge(purge),
        *_of_form(survey),
    ]
    return tuple(sorted(found, key=lambda finding: finding.severity != "warn"))


def _of_what_was_missed(survey: Survey) -> list[Finding]:
    found = []
    if survey.unreadable_count:
        found.append(
            Finding(
                f"{counted(survey.unreadable_count, 'folder')} could not be looked into: the counts are of the rest",
                "warn",
                "unreadable",
                given=_named(survey.unreadable),
                next="ask their owner for `chmod -R a+rX`, or survey what you can read",
            )
        )
    if survey.unreadable_files:
        text = f"{counted(survey.unreadable_files, 'file')} cannot be read by you"
        given = _named(survey.unreadable_names)
        found.append(Finding(text, "warn", "unreadable-files", given=given))
    if survey.unsaved:
        text = "the state of the survey could not be written down, so --resume and --last do not know of it"
        found.append(Finding(text, "warn", "unsaved", given=survey.unsaved))
    if survey.links_out:
        found.append(
            Finding(
                f"links that lead out of the tree: {survey.links_out:,} of {survey.links:,}; what they point at is not counted",
                "warn" if survey.links_out >= survey.files else "info",
                "links-out",
                next="survey the folders that they point at",
            )
        )
    if survey.not_crossed_count:
        found.append(
            Finding(
                f"another file system begins in {counted(survey.not_crossed_count, 'folder')}, not looked into",
                "info",
                "other-file-system",
                given=_named(survey.not_crossed),
                next="--cross looks into them",
            )
        )
    if survey.vanished:
        found.append(
            Finding(f"{counted(survey.vanished, 'name')} went away meanwhile: the tree is in use", "info", "vanished")
        )
    return found


def _of_limits(survey: Survey, machine: ReadingNode, quotas: Sequence[Quota]) -> list[Finding]:
    found = []
    for quota in quotas:
        for what, used, limit in (
            ("files", quota.used_files, quota.limit_files),
            ("bytes", quota.used_bytes, quota.limit_bytes),
        ):
            here = survey.files + (survey.folders or 0) if what == "files" else survey.allocated_bytes or survey.bytes
            if limit is None:
                continue
            if used is not None and used > _NEARLY * limit:
                text = f"{_shown(used, what)} of your {_shown(limit, what)} are used"
                found.append(Finding(text, "warn", "quota", evidence=quota.document()))
            elif here > 0.25 * limit:
                text = f"this data set is {here / limit:.0%} of your quota of {_shown(limit, what)}"
                found.append(
                    Finding(text, "warn" if here > 0.5 * limit else "info", "quota", evidence=quota.document())
                )
    place = machine.data_place
    if place.free_files is not None and place.free_files < survey.files:
        found.append(Finding(f"{place.path} has room for only {place.free_files:,} more files", "info", "free-files"))
    return found


def _of_purge(purge: Purge | None) -> list[Finding]:
    if purge is None or not purge.soon_files:
        return []
    when = time_text(purge.first_s)[:10]
    return [
        Finding(
            f"{counted(purge.soon_files, 'file')}, {format_size(purge.soon_bytes)}, will be purged within {purge.within_days} days, the "
            f"first on {when}: files that nobody has written or read for {format_duration(purge.after_s)} are removed there",
            "warn",
            "purge",
            next="copy them to storage that is kept, as one packed data set",
        )
    ]


def _of_form(survey: Survey) -> list[Finding]:
    found = []
    if survey.largest_folders and survey.largest_folders[0].entries >= MANY_ENTRIES:
        largest = survey.largest_folders[0]
        found.append(
            Finding(
                f"one folder has {largest.entries:,} entries, which slows everybody's metadata server",
                "warn" if many_small_files(survey) else "info",
                "crowded-folder",
                given=shown(largest.path),
            )
        )
    badly = [chunks for chunks in survey.chunks if not chunks.fits]
    for chunks in badly[:3]:
        found.append(Finding(f"{shown(chunks.array)}: {chunks.reason}", "warn", "chunks", file=shown(chunks.path)))
    if survey.chunks_unknown:
        found.append(Finding(shown(survey.chunks_unknown), "info", "chunks-unknown"))
    for each in survey.formats:
        if each.name == "python environment" and each.examples:
            text = f"a Python environment of {each.files:,} files: every start of it opens thousands of them"
            command = f"cordee env pack {quoted(each.examples[0])}"
            found.append(Finding(text, "info", "environment", given=_named(each.examples), next=command))
    if survey.empty_files:
        found.append(Finding(f"{counted(survey.empty_files, 'empty file')}", "info", "empty-files"))
    if survey.allocated_bytes is not None and survey.sparse_files:
        text = f"{counted(survey.sparse_files, 'file')} sparse or on tape: {format_size(survey.allocated_bytes)} are allocated for all files"
        found.append(Finding(text, "info", "sparse"))
    return found


def _named(paths: Sequence[str], most: int = 3) -> str:
    more = f", and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(shown(path) for path in paths[:most]) + more


def _shown(count: int, what: str) -> str:
    return format_size(count) if what == "bytes" else f"{count:,} files"
