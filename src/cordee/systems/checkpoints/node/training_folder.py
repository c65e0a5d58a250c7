"""One training's part of a checkpoint folder, which others may use, too: its names, and what it may restore, replace and remove."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import socket
from pathlib import Path
from typing import Any, Mapping, Optional

from cordee.runs.checkpoint import Checkpoint
from cordee.systems.checkpoints.node.folder import MANIFEST, candidates, find_checkpoints, read_manifest, run_of

_OLD, _GONE = ".old", ".gone"


class CheckpointPlace:
    """The folder as the training of this process sees it: that of a run (CORDEE_RUN_ID), or one outside a run.

    Of a training's ranks the first alone changes anything there.

    Attributes:
        saved: paths of the checkpoints that this process saved.
        goes_on: whether the training was restored, or would have been.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._run = os.environ.get("CORDEE_RUN_ID") or None
        self._attempt = os.environ.get("CORDEE_ATTEMPT") or "0"
        self._epoch = _number("CORDEE_EPOCH")
        self._token = secrets.token_hex(4)
        self._looked_at: set[Checkpoint] = set()
        self.saved: set[str] = set()
        self.goes_on = False

    def handed_over(self) -> dict[str, Any]:
        """Return what `taken_over` needs to know, as JSON can hold it."""
        maker = {"run": self._run, "attempt": self._attempt, "epoch": self._epoch}
        return {
            **maker,
            "folder": self._folder,
            "token": self._token,
            "saved": sorted(self.saved),
            "goes_on": self.goes_on,
        }

    @classmethod
    def taken_over(cls, told: Mapping[str, Any]) -> CheckpointPlace:
        """Return the place as another process sees it, in place of this rank."""
        place = cls(told["folder"])
        place._run, place._attempt, place._epoch = told["run"], told["attempt"], told["epoch"]
        place._token, place.saved, place.goes_on = told["token"], set(told["saved"]), told["goes_on"]
        return place

    def maker(self) -> dict[str, Any]:
        """Return what a manifest says of who saved: run, epoch, attempt; None where that is not known."""
        if self._run is None:
            return {"run": None, "epoch": None, "attempt": None}
        return {
            "run": self._run,
            "epoch": self._epoch,
            "attempt": int(self._attempt) if self._attempt.isdigit() else None,
        }

    def hidden(self, name: str) -> str:
        """Return where a checkpoint lies before it has its name, and after it has lost it."""
        return os.path.join(self._folder, f".{name}.tmp-{self._who()}")

    def fresh(self, name: str) -> str:
        """Return where a new save lies before it has its name: nothing else is ever called so."""
        return f"{self.hidden(name)}-{secrets.token_hex(4)}"

    def _who(self) -> str:
        """Return who writes, as in the names of hidden folders: this attempt of the run, else this process."""
        maker = f"{self._run}.{self._attempt}" if self._run else f"{socket.gethostname()}.{os.getpid()}"
        return f"{maker}.{self._token}"

    def begin(self, partial: str) -> None:
        os.makedirs(self._folder, exist_ok=True)
        self._refuse_if_followed()
        self.put_back()
        for name in os.listdir(self._folder):
            hidden, _, who = name.partition(".tmp-")
            for suffix in (_GONE, _OLD):
                who = who[: -len(suffix)] if who.endswith(suffix) else who
            if hidden.startswith(".step-") and self._is_left_over(who):
                discard(os.path.join(self._folder, name))
        os.mkdir(partial)

    def _refuse_if_followed(self) -> None:
        """Raise where a later attempt of the run has saved: this one was given up, and would replace and remove what that has."""
        for found in candidates(Path(self._folder), "step-*") if self._run else []:
            if found in self._looked_at or run_of(found.path)[1] != self._run:
                continue
            later = self._attempt_of(found.path)
            if later > int(self._attempt):
                raise OSError(
                    f"attempt {later} of this run has saved {found.name}: attempt {self._attempt} was given up"
                )
            self._looked_at.add(found)

    def _is_left_over(self, who: str) -> bool:
        """Return whether a hidden folder is what an earlier attempt of this run, or a process that is gone, left."""
        maker, _, number = who.rpartition(".")[0].rpartition(".")
        if self._run:
            return maker == self._run and number.isdigit() and int(number) < int(self._attempt)
        return maker == socket.gethostname() and number.isdigit() and not _lives(int(number))

    def put_back(self) -> None:
        """Give a checkpoint its name back that was set aside for a newer one of the same step, which a kill prevented."""
        if not os.path.isdir(self._folder):
            return
        for name in os.listdir(self._folder):
            if name.startswith(".step-") and name.endswith(_OLD):
                aside = os.path.join(self._folder, name)
                taken = [target for target in self._targets(name[1:].partition(".tmp-")[0]) if os.path.lexists(target)]
                free = [target for target in self._targets(name[1:].partition(".tmp-")[0]) if target not in taken]
                if free and run_of(aside) == (True, self._run) and not any(map(self._is_of_run, taken)):
                    os.rename(aside, free[0])

    def renamed(self, partial: str, name: str) -> str:
        """Give a complete folder its name, with the run's behind it where another run's checkpoint has that name."""
        for target in self._targets(name):
            if os.path.lexists(target):
                if not self._is_mine(target):
                    continue
                os.rename(target, partial + _OLD)
            try:
                os.rename(partial, target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                continue  # another run's came in this moment
            return target
        raise FileExistsError(errno.EEXIST, "others have taken its name", name)

    def _targets(self, name: str) -> list[str]:
        """Return what a checkpoint may be called: its plain name, and that with the run's behind it."""
        return [os.path.join(self._folder, choice) for choice in (name, f"{name}-{self._run or self._token}")]

    def _is_of_run(self, path: str) -> bool:
        return run_of(path) == (True, self._run)

    def remove_old(self, keep: int, milestones: int = 0) -> None:
        """Remove all but the `keep` checkpoints that this run saved last; hidden first, so that none is ever half there.

        Args:
            milestones: the first checkpoint of every so many steps stays; 0: none does for that.
        """
        mine = sorted(
            (found for found in _whole(self._folder) if self._is_mine(found.path)), key=lambda found: found.mtime_ns
        )
        stays = staying(mine, keep, milestones)
        for found in mine:
            if found.path in stays:
                continue
            hidden = self.hidden(found.name)
            try:
                os.rename(found.path, hidden)
            except OSError:
                continue
            shutil.rmtree(hidden, ignore_errors=True)

    def _is_mine(self, path: str) -> bool:
        """Return whether a checkpoint may be replaced or removed: this run made it; outside a run, this training did.

        Outside a run nobody tells trainings apart, so that a script that restores goes on with what lies there, and one
        that does not leaves it alone.
        """
        has_manifest, run = run_of(path)
        return has_manifest and run == self._run and (run is not None or self.goes_on or path in self.saved)

    def restorable(self) -> list[Checkpoint]:
        """Return what `restore` tries, in this order: this run's own, then the one that the run was told to begin from."""
        there = _whole(self._folder)
        if self._run is None:  # of equal steps the one that has the name alone
            there.sort(key=lambda found: (found.step or 0, "-" not in found.name[len("step-") :]))
            return there[::-1]
        if self._in_own_folder():
            return self._not_passed_over(there)[::-1]
        mine = [found for found in there if run_of(found.path)[1] == self._run]
        return [*self._not_passed_over(mine)[::-1], *self._told(mine)]

    def _not_passed_over(self, mine: list[Checkpoint]) -> list[Checkpoint]:
        """Return the one that the supervisor chose and what is before it; of what is behind it only what this attempt saved."""
        chosen = os.path.abspath(os.environ.get("CORDEE_RESUME_FROM") or "")
        paths = [found.path for found in mine]
        at = paths.index(chosen) + 1 if chosen in paths else len(mine)
        return [*mine[:at], *(found for found in mine[at:] if self._attempt_of(found.path) == int(self._attempt))]

    @staticmethod
    def _attempt_of(path: str) -> int:
        """Return the number of the attempt that saved a checkpoint, 0 where that is not known."""
        try:
            return int(read_manifest(path)["attempt"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def _in_own_folder(self) -> bool:
        run_folder = os.environ.get("CORDEE_RUN_DIR")
        return bool(run_folder) and self._folder.startswith(os.path.join(os.path.abspath(str(run_folder)), ""))

    def _told(self, mine: list[Checkpoint]) -> list[Checkpoint]:
        """Return the checkpoint that the supervisor chose, where it is another run's, and older ones of that run."""
        chosen = os.path.abspath(os.environ.get("CORDEE_RESUME_FROM") or "")
        has_manifest, run = run_of(chosen)
        if not has_manifest or run == self._run or chosen in [found.path for found in mine]:
            return []
        beside = [found for found in _whole(os.path.dirname(chosen)) if run_of(found.path)[1] == run]
        paths = [found.path for found in beside]
        return beside[paths.index(chosen) :: -1] if chosen in paths else []


def staying(found: list[Checkpoint], keep: int, milestones: int) -> set[str]:
    """Return the paths of those that stay: the last `keep`, and the first in every so many steps from the first milestone on.

    Args:
        found: checkpoints in the order in which they were saved.
        milestones: 0: none stays for that.
    """
    by_number: dict[int, Checkpoint] = {}
    for one in found:
        number = (one.step or 0) // milestones if milestones > 0 else 0
        if number and (number not in by_number or (one.step or 0) < (by_number[number].step or 0)):
            by_number[number] = one
    return {one.path for one in [*found[-keep:], *by_number.values()]}


def discard(path: str) -> None:
    """Remove a hidden folder; it loses its name first, so that whoever still writes into it cannot complete it."""
    gone = path if path.endswith(_GONE) else path + _GONE
    with contextlib.suppress(OSError):
        if gone != path:
            os.rename(path, gone)
        shutil.rmtree(gone, ignore_errors=True)


def _whole(folder: str) -> list[Checkpoint]:
    """Return the complete checkpoints of a folder that Cordée made, by whichever run, the newest last."""
    found = find_checkpoints(folder, "step-*")
    return [checkpoint for checkpoint in found if os.path.isfile(os.path.join(checkpoint.path, MANIFEST))]


def _number(variable: str) -> Optional[int]:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
