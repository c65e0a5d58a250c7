"""What Slurm says of itself, asked with a few quick commands and remembered for a minute."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cordee.backends.slurm.node.commands import SlurmError, patiently, run_command
from cordee.core.documents.config_paths import cache_folder
from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes

KEPT_S = 60.0
ACCOUNTING_KEPT_S = 600.0
_ANSWER_S = 10.0
_ACCOUNTING_S = 4.0
_MOST_SAMPLES = 200
_COMMANDS = {
    "nodes": ("sinfo", "--noheader", "--exact", "--format=%R|%D|%T|%c|%m|%G|%f|%N"),
    "partitions": ("scontrol", "show", "partition", "--oneliner"),
    "config": ("scontrol", "show", "config"),
    "reservations": ("scontrol", "show", "reservation", "--oneliner"),
}
_QOS = (
    *("sacctmgr", "--noheader", "--parsable2", "show", "qos"),
    "format=Name,MaxWall,MaxSubmitJobsPerUser,MaxJobsPerUser,MaxTRES,MaxTRESPerUser,Flags",
)
_ENFORCED = re.compile(r"^AccountingStorageEnforce\s*=.*\b(associations|qos)\b", re.MULTILINE)
_NEEDED = ("nodes", "partitions", "config")


@dataclass(frozen=True)
class Answers:
    """What the commands printed.

    Attributes:
        texts: standard output by name: nodes, partitions, config, reservations, samples; user and qos too, where
            accounting enforces them or when everything was asked anew.
        refused: why there is no text of a name.
        accounting_at: when user and qos were asked, in seconds of the epoch.
    """

    texts: dict[str, str]
    refused: dict[str, str] = field(default_factory=dict)
    accounting_at: float = 0.0


def ask_slurm(environ: Mapping[str, str] = os.environ, *, fresh: bool = False, most_s: float = 0.0) -> Answers:
    """Return what Slurm says of itself, at most a minute old, and of this person, at most ten minutes old.

    While its controller is busy, what it said before is returned, however old.

    Args:
        environ: where PATH, SLURM_CONF and the cache folder are looked up.
        fresh: ask everything again, whatever is remembered.
        most_s: how long a busy controller is waited for when nothing older is remembered.

    Raises:
        SlurmError: no Slurm answers here; `missing` when there is none, `busy` when its controller cannot be reached.
    """
    _require_slurm(environ)
    path = _cache_path(environ)
    kept = _kept(path)
    if kept is not None and not fresh and 0 <= time.time() - kept[0] < KEPT_S:
        return kept[1]
    known = None if fresh or kept is None else kept[1]
    try:
        answers = _ask(environ, known, everything=fresh)
    except SlurmError as error:
        if not error.busy:
            raise
        if known is not None:
            _keep(path, known)  # for the next minute nobody waits for it again
            return known
        patiently(lambda: run_command(_COMMANDS["config"], env=environ, timeout_s=_ANSWER_S), most_s=most_s)
        answers = _ask(environ, None, everything=fresh)
    _keep(path, answers)
    return answers


def _require_slurm(environ: Mapping[str, str]) -> None:
    """Raise SlurmError (missing) where Slurm's commands or their configuration are not there."""
    if shutil.which("sinfo", path=environ.get("PATH", "")) is None:
        raise SlurmError(["sinfo"], "not found: Slurm's commands are not on PATH", missing=True)
    given = environ.get("SLURM_CONF")
    if given and not os.path.isfile(given):  # the commands would wait a minute for it
        raise SlurmError(["sinfo"], f"SLURM_CONF names {given}, which is no file", missing=True)


def _ask(environ: Mapping[str, str], known: Answers | None, *, everything: bool) -> Answers:
    """Ask the controller, then the accounting, which takes its time: only where it matters, and seldom."""
    answers = _run_all(_COMMANDS, environ, _ANSWER_S)
    for name in _NEEDED:
        if name in answers.errors:
            raise answers.errors[name]
    samples = _samples(answers.texts["nodes"])
    if samples:
        shown = {"samples": ("scontrol", "show", "node", "--oneliner", ",".join(samples))}
        answers = answers.with_more(_run_all(shown, environ, _ANSWER_S))
    asked_at = known.accounting_at if known else 0.0
    if known is not None and 0 <= time.time() - asked_at < ACCOUNTING_KEPT_S:
        answers.texts.update({name: known.texts[name] for name in ("user", "qos") if name in known.texts})
    elif everything or _ENFORCED.search(answers.texts["config"]):
        asked_at = time.time()
        answers = answers.with_more(_run_all({"user": _user_command(), "qos": _QOS}, environ, _ACCOUNTING_S))
    return Answers(answers.texts, {name: error.text for name, error in answers.errors.items()}, asked_at)


@dataclass(frozen=True)
class _Outcome:
    """What several commands printed, and the errors of those that failed."""

    texts: dict[str, str]
    errors: dict[str, SlurmError]

    def with_more(self, other: _Outcome) -> _Outcome:
        return _Outcome({**self.texts, **other.texts}, {**self.errors, **other.errors})


def _run_all(commands: Mapping[str, tuple[str, ...]], environ: Mapping[str, str], timeout_s: float) -> _Outcome:
    """Run commands at the same time, without the person's own defaults for sinfo."""
    outcome = _Outcome({}, {})
    env = {name: value for name, value in environ.items() if not name.startswith("SINFO_")}

    def run(name: str, argv: tuple[str, ...]) -> None:
        try:
            outcome.texts[name] = run_command(argv, env=env, timeout_s=timeout_s)
        except SlurmError as error:
            outcome.errors[name] = error

    with ThreadPoolExecutor(len(commands)) as pool:
        list(pool.map(run, commands.keys(), commands.values()))
    return outcome


def _user_command() -> tuple[str, ...]:
    return (
        *("sacctmgr", "--noheader", "--parsable2", "show", "user", "withassoc", f"name={_person()}"),
        "format=User,DefaultAccount,Cluster,Account,Partition,QOS,DefaultQOS,MaxWall,MaxSubmitJobs,MaxJobs,MaxTRES",
    )


def _person() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _samples(nodes: str) -> list[str]:
    """Return one node of each kind: what a kind keeps for the system is only said of single nodes."""
    found: dict[str, None] = {}
    for line in nodes.splitlines():
        name_list = line.rpartition("|")[2].strip()
        try:
            found.update(dict.fromkeys(expand_nodes(name_list)[:1]))
        except CordeeError:
            continue
    return list(found)[:_MOST_SAMPLES]


def _cache_path(environ: Mapping[str, str]) -> Path:
    """Return the file that answers are kept in: another configuration or another PATH has another one."""
    configuration = environ.get("SLURM_CONF", "")
    parts = [shutil.which("sinfo", path=environ.get("PATH", "")) or "", configuration, str(os.getuid())]
    parts += [environ.get(name, "") for name in ("SLURM_CLUSTERS", "SLURM_CONF_SERVER")]
    try:
        parts.append(str(os.stat(configuration).st_mtime_ns))
    except OSError:
        pass
    return cache_folder(environ) / f"slurm-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}.json"


def _kept(path: Path) -> tuple[float, Answers] | None:
    try:
        document = json.loads(path.read_text())
        return path.stat().st_mtime, Answers(**document)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, answers: Answers) -> None:
    """Write the answers for the next minute; a folder that cannot be written only costs the next one a few commands."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".slurm-")
        with os.fdopen(descriptor, "w") as stream:
            json.dump(asdict(answers), stream)
        os.replace(temporary, path)
    except OSError:
        pass
