"""A cluster profile drafted from what Slurm says; what could not be found out is said, not guessed."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from cordee.backends.profile_draft import ProfileDraft, name_of_cluster
from cordee.backends.slurm.node.commands import SlurmError, parse_records, run_command
from cordee.backends.slurm.site import no_slurm
from cordee.backends.slurm.site.ask import Answers, ask_slurm
from cordee.backends.slurm.site.draft import draft_text
from cordee.backends.slurm.site.values import accounts_of, config_of, duration_of, qos_of, site_values
from cordee.core.documents.config_paths import profile_folders
from cordee.core.findings import Finding
from cordee.job.profile import ClusterProfile

_PATIENCE_S = 60.0
_SACCT_S = 4.0
_UNKNOWN = {
    "user": "accounts: sacctmgr does not say which you have",
    "qos": "QOS and their limits: sacctmgr does not say",
    "reservations": "reservations: scontrol does not say",
    "samples": "what nodes keep for the system: scontrol does not show nodes",
}


def discover(name: str | None = None, environ: Mapping[str, str] = os.environ) -> ProfileDraft:
    """Return a profile of the Slurm that answers here, asked anew.

    Args:
        name: of the cluster in Cordée; None for Slurm's own name of it.

    Raises:
        UsageError: no Slurm answers here, or the name is none.
        SlurmError: the controller was busy for a minute.
    """
    try:
        answers = ask_slurm(environ, fresh=True, most_s=_PATIENCE_S)
    except SlurmError as error:
        raise no_slurm(error, environ) from None
    values, config = site_values(answers), config_of(answers)
    chosen = name_of_cluster(name, config.get("ClusterName", ""), "slurm")
    values = {**values, "name": chosen, "slurm_cluster": config.get("ClusterName")}
    facts = _facts(answers, config, environ)
    unenforced = _unenforced(answers, values)
    findings = tuple(_unknown(answers, values, facts))
    found = ClusterProfile.model_validate(values)
    text = draft_text(found, facts, unenforced, [finding.text for finding in findings])
    profile = ClusterProfile.model_validate(tomllib.loads(text))
    return ProfileDraft(chosen, text, profile, facts, findings, profile_folders(environ)[-1] / f"{chosen}.toml")


def _facts(answers: Answers, config: dict[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what a profile has no key for."""
    auth = dict(part.split("=", 1) for part in config.get("AuthInfo", "").split(",") if "=" in part)
    expire = auth.get("cred_expire", "")
    keeps = config.get("AccountingStorageType", "") == "accounting_storage/slurmdbd"
    return {
        "slurm_version": config.get("SLURM_VERSION"),
        "job_requeue": config.get("JobRequeue") == "1" if "JobRequeue" in config else None,
        "preempt_type": config.get("PreemptType"),
        "preempt_mode": config.get("PreemptMode"),
        "accounting_enforce": config.get("AccountingStorageEnforce"),
        "sacct": _sacct_works(environ),
        "job_comments_kept": "job_comment" in config.get("AccountingStoreFlags", "").split(",") if keeps else False,
        "job_environment_stored": "job_env" in config.get("AccountingStoreFlags", "").split(",") if keeps else False,
        "cred_expire_s": int(expire) if expire.isdigit() else None,
        "min_job_age_s": _seconds(config.get("MinJobAge", "")),
        "kill_wait_s": _seconds(config.get("KillWait", "")),
        "over_time_limit": config.get("OverTimeLimit"),
        "interfaces": _interfaces(),
        "partition_preempt_modes": _preempt_modes(answers),
    }


def _preempt_modes(answers: Answers) -> dict[str, str]:
    records = parse_records(answers.texts["partitions"])
    return {record["PartitionName"]: record["PreemptMode"] for record in records if "PreemptMode" in record}


def _sacct_works(environ: Mapping[str, str]) -> bool:
    try:
        run_command(["sacct", "--allocations", "--noheader", "--starttime=now"], timeout_s=_SACCT_S, env=environ)
    except SlurmError:
        return False
    return True


def _seconds(text: str) -> float | None:
    """Return the seconds in `300 sec` or a clock time."""
    number, _, unit = text.partition(" ")
    return float(number) if number.isdigit() and unit.startswith("sec") else duration_of(text)


def _interfaces() -> list[str]:
    try:
        return sorted(name for name in os.listdir("/sys/class/net") if name != "lo")
    except OSError:
        return []


def _unenforced(answers: Answers, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the accounts and QOS that this site knows and does not enforce: to be shown, not to be held to."""
    found: dict[str, dict[str, Any]] = {}
    if "accounts" not in values and "user" in answers.texts:
        found["accounts"] = accounts_of(answers)
    if "qos" not in values and "qos" in answers.texts:
        found["qos"] = qos_of(answers)
    return found


def _unknown(answers: Answers, values: dict[str, Any], facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield what could not be found out."""
    for name, text in _UNKNOWN.items():
        if name in answers.refused:
            yield Finding(text, "info", "not-found-out", evidence=answers.refused[name])
    if not facts["sacct"]:
        text = "sacct does not answer: the end of a job that squeue has forgotten is read from the run's own journal"
        yield Finding(text, "info", "no-sacct")
    for name, partition in values["partitions"].items():
        if not partition["nodes"]:
            yield Finding(f"partition {name}: sinfo shows none of its nodes", "info", "not-found-out")
        elif "memory" not in partition:
            yield Finding(f"partition {name}: the memory of its nodes is not configured", "info", "not-found-out")
        if any(group.get("gpus") and "gpu_model" not in group for group in partition.get("groups", [partition])):
            text = f"partition {name}: its GPUs have no model in Slurm; add gpu_model and [gpu.MODEL]"
            yield Finding(text, "info", "not-found-out")
