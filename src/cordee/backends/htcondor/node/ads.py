"""What HTCondor tells a job of itself and of its machine, as files in its scratch folder."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Optional

# The submit file has the job stay in the queue when it ends with this: the run goes on in another start.
EXIT_AGAIN = 99
# In the run's `submit/`: what it consists of, its code, and the node side of Cordée; runs of one parent share the latter two.
LUGGAGE, CODE, NODE_SIDE = "luggage.tar.gz", "code.tar.gz", "node.zip"
# The journal of who asked for the run: it is written at home alone. On a machine it has the second name.
CLIENT, CLIENT_THERE = "client.jsonl", "asked.jsonl"
# In the scratch folder: the run's last words, which come home after all else, and where they go.
LAST_WORDS = "last-words.jsonl"
LAST_WORDS_HOME = "end-$(Cluster).jsonl"
# What of a run's folder comes home, before its journal; those that a run need not have are removed at home where they are empty.
OPTIONAL = ("flight", "hangs", "profiles", "tasks")
OUTPUTS = ("checkpoints", "code", "control", "documents", "logs", "report", "telemetry", *OPTIONAL)
# When the first process of this start began, in epoch seconds: for the processes below it.
STARTED = "CORDEE_JOB_STARTED"
_LINE = re.compile(r"^(\w+)\s*=\s*(.*)$")


def read_ad(variable: str) -> dict[str, str]:
    """Return the attributes of the ad that a variable names, `_CONDOR_JOB_AD` or `_CONDOR_MACHINE_AD`, without quotes.

    What cannot be read is empty; expressions stay as they are written.
    """
    found: dict[str, str] = {}
    try:
        with open(os.environ.get(variable, ""), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                match = _LINE.match(line.strip())
                if match:
                    found[match.group(1).lower()] = match.group(2).strip('"')
    except OSError:
        pass
    return found


class CondorStart(NamedTuple):
    """One start of a job.

    Attributes:
        job: its id, `12.0`.
        start: which one it is, from 0: HTCondor starts a job again after an eviction.
        node: what this machine is called.
        vacate_s: how long the job has to leave, in seconds; None: the machine does not say.
        lost_at: when the start before this one was lost or left its machine, in UTC epoch seconds; None: that is not known.
    """

    job: str
    start: int
    node: str
    vacate_s: Optional[float] = None
    lost_at: Optional[float] = None

    @classmethod
    def here(cls) -> Optional[CondorStart]:
        """Return the start that this process belongs to, None outside of a job."""
        job, machine = read_ad("_CONDOR_JOB_AD"), read_ad("_CONDOR_MACHINE_AD")
        if "clusterid" not in job:
            return None
        name = re.sub(r"[^A-Za-z0-9._-]", "-", machine.get("name", "").partition("@")[2]) or "node"
        asked, most = _seconds(job.get("jobmaxvacatetime")), _seconds(machine.get("machinemaxvacatetime"))
        given = [seconds for seconds in (asked, most) if seconds is not None]
        starts = int(_seconds(job.get("numshadowstarts")) or 1)
        id = f"{job['clusterid']}.{job.get('procid', '0')}"
        began = _seconds(job.get("joblaststartdate")) or 0.0
        left = [_seconds(job.get(key)) or 0.0 for key in ("jobdisconnecteddate", "lastvacatetime")]
        lost_at = min((moment for moment in left if moment > began), default=None)  # older ones are of earlier starts
        return cls(id, max(0, starts - 1), name, min(given, default=None), lost_at)

    @property
    def turn(self) -> str:
        """Its place among all starts of all jobs, as a text that sorts."""
        return f"{int(self.job.partition('.')[0]):09d}-{self.start:06d}"

    def document(self) -> dict[str, object]:
        """Return what tells it from others, as the journal has it."""
        return {"job": self.job, "requeues": self.start}


def _seconds(value: Optional[str]) -> Optional[float]:
    try:
        return float(value) if value is not None else None
    except ValueError:
        return None
