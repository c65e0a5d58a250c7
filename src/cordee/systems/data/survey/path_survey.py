"""The survey of one path: counted, its formats told, and what follows from it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cordee.core.errors import DataError, UsageError
from cordee.core.findings import Finding
from cordee.job.profile import ClusterProfile
from cordee.systems.data.survey.advice import ReadingAdvice, advise
from cordee.systems.data.survey.chunks import hdf5_chunks, zarr_chunks
from cordee.systems.data.survey.findings import findings_of
from cordee.systems.data.survey.forecast import TierForecast, forecast
from cordee.systems.data.survey.formats import formats
from cordee.systems.data.survey.model import Chunks, Folder, SizeBin, Survey, SurveyedFormat
from cordee.systems.data.survey.objects import survey_store
from cordee.systems.data.survey.places import ReadingNode, machine_of
from cordee.systems.data.survey.purge import WARNING_DAYS, Purge, purge_of
from cordee.systems.data.survey.quota import Quota, quotas
from cordee.systems.data.survey.scan import Scan, file_system
from cordee.systems.data.survey.totals import SurveyState, Totals
from cordee.systems.data.survey.worker import Part
from cordee.wire.stores import is_remote


@dataclass(frozen=True)
class JudgedSurvey:
    """A survey and all that follows from it for one cluster."""

    survey: Survey
    machine: ReadingNode
    forecast: tuple[TierForecast, ...]
    quotas: tuple[Quota, ...]
    purge: Purge | None
    findings: tuple[Finding, ...]
    advice: ReadingAdvice

    def document(self) -> dict[str, Any]:
        """Return what `cordee data survey --json` prints."""
        return {
            **self.survey.document(),
            "cluster": self.machine.cluster,
            "node_memory_bytes": self.machine.memory_bytes,
            "tiers": [
                {**place, "forecast": each.document()}
                for place, each in zip(self.machine.document()["places"], self.forecast, strict=True)
            ],
            "quotas": [quota.document() for quota in self.quotas],
            "purge": self.purge.document() if self.purge else None,
            "findings": [finding.document() for finding in self.findings],
            "advice": self.advice.document(),
        }


def survey(
    path: str,
    *,
    cross: bool = False,
    workers: int | None = None,
    resume: bool = False,
    progress: Callable[[Totals], None] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Survey:
    """Look through everything below a path and return what is there; changes nothing, follows no link.

    Args:
        path: a folder, a file, a link to one of them, or an s3:// address.
        cross: look also where other file systems begin.
        workers: how many processes at most; None: as many as there are cores, and more while they wait for storage.
        resume: go on with a survey of this path that was interrupted.
        progress: called with what was counted so far, about once a second.

    Raises:
        UsageError: there is no such folder or file, or nothing to go on with.
        DataError: nothing of it can be looked at, or a store does not answer.
    """
    if is_remote(path):
        return survey_store(path, progress)
    begin = time.monotonic()
    top = _real(path)
    scan = Scan(top, cross=cross, workers=workers, resume=resume, progress=progress, environ=environ)
    counted = scan.run().part
    if not counted["folders"] and counted["unreadable_count"]:
        raise DataError(
            "it cannot be looked into", given=counted["unreadable"][0], next="ask its owner for the right to read it"
        )
    seconds = round(time.monotonic() - begin, 3)
    return _survey_of(top, counted, scan.began_s, seconds=seconds, resumed=scan.resumed, unsaved=scan.unsaved)


def last_survey(path: str, environ: Mapping[str, str] = os.environ) -> Survey | None:
    """Return what the last whole survey of a path has found, without another look at its files; None: there was none.

    Raises:
        UsageError: there is no such folder or file.
        DataError: it cannot be looked at.
    """
    if is_remote(path):
        return None
    top = _real(path)
    state = SurveyState(top, environ)
    kept = state.read(state.whole)
    return None if kept is None else _survey_of(top, Totals(kept["counted"]).part, kept["options"]["now_s"], kept=True)


def _real(path: str) -> str:
    top = os.path.realpath(path)
    allowed = "a folder, a file, or an s3:// address"
    try:
        mode = os.lstat(top if path else path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError("there is nothing at this path", given=path, allowed=allowed) from None
    except OSError as error:
        raise DataError(
            "it cannot be looked at", given=f"{path}: {error.strerror}", next="ask its owner for the right to read it"
        ) from None
    if stat.S_ISLNK(mode):
        raise UsageError("this link leads to itself", given=path, allowed=allowed)
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise UsageError("this is neither a folder nor a file", given=path, allowed=allowed)
    return top


def _survey_of(
    top: str,
    counted: Part,
    began_s: float,
    *,
    seconds: float = 0.0,
    resumed: bool = False,
    kept: bool = False,
    unsaved: str | None = None,
) -> Survey:
    told = formats(counted)
    chunks, chunks_unknown = _chunks(told, counted)
    return Survey(
        path=top,
        files=counted["files"],
        bytes=counted["bytes"],
        allocated_bytes=counted["allocated"],
        folders=counted["folders"],
        depth=counted["depth"],
        links=counted["links"],
        links_out=counted["links_out"],
        names_more=counted["names_more"],
        other_files=counted["others"],
        empty_files=counted["empty"],
        sparse_files=counted["sparse"],
        vanished=counted["vanished"],
        unreadable_count=counted["unreadable_count"],
        unreadable_files=counted["unreadable_files"],
        unreadable=tuple(counted["unreadable"]),
        unreadable_names=tuple(counted["unreadable_names"]),
        not_crossed_count=counted["not_crossed_count"],
        not_crossed=tuple(counted["not_crossed"]),
        sizes=tuple(SizeBin(1 << bits, files, size) for bits, (files, size) in sorted(counted["sizes"].items())),
        formats=told,
        largest_folders=tuple(Folder(where, entries) for entries, where in counted["largest_folders"]),
        file_system=file_system(top)[0],
        began_s=began_s,
        seconds=seconds,
        resumed=resumed,
        kept=kept,
        unsaved=unsaved,
        ages={day: (files, size) for day, (files, size) in counted["ages"].items()},
        oldest_s=counted["oldest_s"],
        chunks=tuple(chunks),
        chunks_unknown=chunks_unknown,
        samples=tuple(where for each in counted["samples"].values() for where, _ in each),
    )


def _chunks(told: Sequence[SurveyedFormat], counted: Part) -> tuple[list[Chunks], str | None]:
    """Return how arrays lie in the samples of HDF5 files and in Zarr stores, and why some are not known."""
    found, unknown = zarr_chunks(counted["marked"].get("zarr", {"paths": []})["paths"]), None
    for path in next((each.examples for each in told if each.name == "hdf5"), ()):
        arrays, unknown = hdf5_chunks(path)
        found += arrays
    return found, unknown


def judge(found: Survey, profile: ClusterProfile, within_days: int = WARNING_DAYS) -> JudgedSurvey:
    """Return what follows from a survey for a cluster: forecast, quotas, purge, findings and advice.

    Args:
        within_days: of purges, those within so many days are told.
    """
    machine = machine_of(profile, found.path, found.samples)
    limits = quotas(machine.data_place, found.path, file_system(found.path))
    purge = purge_of(found.ages, found.oldest_s, found.began_s, machine.data_place.purge_s, within_days)
    return JudgedSurvey(
        survey=found,
        machine=machine,
        forecast=forecast(found.files, found.named_bytes, machine),
        quotas=limits,
        purge=purge,
        findings=findings_of(found, machine, limits, purge),
        advice=advise(found, machine),
    )
