"""What the fake commands share: jobs and switches in a folder, and answers that were recorded from the real ones.

The folder is $FAKE_SLURM. A file there is a switch:

- `full`: nothing starts.
- `away`: the controller answers nobody; the file holds the number of calls for which that is so, or nothing: until it
  is removed. `sacct-away`: the accounting does not answer.
- `lose-answer`: the next submission is accepted, and its answer is lost.
- `accounting`: sacct works.

Every call is appended to `commands.jsonl`, every job is in `jobs.json`.
"""

import fcntl
import json
import os
import re
import sys
from pathlib import Path

FOLDER = Path(os.environ["FAKE_SLURM"])
NAME = Path(sys.argv[0]).name
RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
LOST = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
FIRST_JOB = 101


class Jobs:
    """The jobs, for one call at a time: `with Jobs() as jobs: jobs["101"]["state"]`."""

    def __enter__(self):
        self._lock = (FOLDER / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._path = FOLDER / "jobs.json"
        self.jobs = json.loads(self._path.read_text()) if self._path.exists() else {}
        if not switch("full"):
            for job in self.jobs.values():
                if job["state"] == "PENDING":
                    job.update(state="RUNNING", reason="None")
        return self.jobs

    def __exit__(self, *error):
        self._path.write_text(json.dumps(self.jobs))
        self._lock.close()


def switch(name):
    return (FOLDER / name).exists()


def begin():
    """Note the call, and end it when the controller is away."""
    with (FOLDER / "commands.jsonl").open("a") as log:
        log.write(json.dumps([NAME, *sys.argv[1:]]) + "\n")
    away = FOLDER / ("sacct-away" if NAME == "sacct" else "away")
    if away.exists():
        left = away.read_text().strip()
        if left:
            away.unlink() if int(left) <= 1 else away.write_text(str(int(left) - 1))
        replay("away")


def replay(case, job="JOB"):
    """Answer as Slurm did, and end."""
    recorded = RECORDED[NAME][case]
    sys.stdout.write(recorded.get("stdout", "").replace("JOB", job))
    sys.stderr.write(recorded.get("stderr", "").replace("JOB", job))
    sys.exit(recorded["code"])


def options(known):
    """Return ({option: value}, words); an option that the fake does not know ends it, as sbatch does."""
    found, words = {}, []
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if not word.startswith("-"):
            words.append(word)
        elif name in known:
            found[name] = value
        else:
            sys.stderr.write(f"{NAME}: unrecognized option '{name}'\nTry \"{NAME} --help\" for more information\n")
            sys.exit(255)
    return found, words


def fill(form, fields):
    """Return a format with its %-letters filled in; a letter that the fake does not know ends it."""
    return re.sub(r"%(\w)", lambda match: fields[match.group(1)], form)
