"""A run's folder in the scratch folder of a job: made fit for this machine when it arrives, and for its way home when it leaves.

HTCondor brings what the submit file names at every start, and on top of it what an eviction has kept. It takes back the whole
run folder; what came along unchanged is not sent home, and nor is what only one start of the job needs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

from cordee.backends.htcondor.node.ads import CLIENT, CLIENT_THERE, CODE, LAST_WORDS, LUGGAGE, CondorStart
from cordee.control.identity import identity
from cordee.runs.folder import RunFolder, say, write_atomically

# Of a job's grace, what stays for the way home.
_HOME_S, _HOME_SHARE = 3.0, 0.3
_OWN = stat.S_IRUSR | stat.S_IWUSR
# In `checkpoints/`: the links that a start has made.
LINKS = ".links.json"
# There too, with the turn of the start that made it: what an eviction would have kept (decision 104), and the name of the newest save
# that came home while it ran, where that is a single file: such are written over, and an eviction's would lie on top of a newer one.
KEPT, SENT = ".kept-", ".sent-"
EVICTED, AGAIN = "evicted", "again"
_EPOCH = re.compile(r"supervisor-(\d+)\.jsonl$")


class Sandbox:
    """The folder of one run on this machine, and how it was when it arrived.

    Args:
        scratch: the job's scratch folder, in which the run's folder lies.
        run: the run's id.
    """

    def __init__(self, scratch: Path, run: str) -> None:
        self.scratch, self.folder = scratch, RunFolder(scratch / run)
        self._unpacked: dict[Path, tuple[int, int]] = {}
        self._saves: dict[Path, tuple[int, int]] = {}
        self._made: list[Path] = []

    def arrive(self, here: CondorStart, fetch: Callable[[str, Path], None]) -> None:
        """Make paths, times and ownership those of this machine.

        Args:
            here: this start.
            fetch: brings a file from the access point: its path below the folder of submission, and where it goes.

        Raises:
            OSError, ValueError, KeyError: what arrived is no run.
        """
        folder = self.folder
        for place, names, _ in os.walk(folder.root):
            for name in names:
                os.chmod(os.path.join(place, name), 0o700)
        own = (folder.journal, folder.telemetry, folder.logs, folder.checkpoints, folder.code, folder.control)
        for path in (folder.root, *own, folder.requests, folder.report, folder.submit, folder.documents):
            path.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)
        with suppress(FileNotFoundError):
            (folder.journal / CLIENT).rename(folder.journal / CLIENT_THERE)
        own_end = folder.journal / f"end-{here.job.partition('.')[0]}.jsonl"
        with suppress(FileNotFoundError):  # an earlier start's; this one's is put there, too, when it comes home
            own_end.rename(folder.journal / f"end-before-{here.turn}.jsonl")
        (self.scratch / LAST_WORDS).write_bytes(b"")
        self._unpack()
        self._put_back(here, fetch)
        self._restore_links()
        self._claim_earlier_epochs()
        plan = json.loads(folder.plan.read_text())
        self._fit(plan, here)
        write_atomically(folder.plan, json.dumps(plan, indent=1))

    def leave(self, here: CondorStart, next_start: Optional[str]) -> None:
        """Leave in the run's folder what is to go home: what was made or changed here.

        Args:
            here: this start.
            next_start: why there is one: "evicted", or "again" where the job ends by itself; None: the run is over. An eviction
                keeps all for the next start. After "again" that one gets what was submitted, and what an earlier eviction kept, so
                that what has changed since is put beside it.
        """
        for path in (*(path for path in self._made if path.is_symlink()), self.folder.journal / CLIENT_THERE):
            with suppress(OSError):
                path.unlink()
        self._keep_logs_alone()
        links: dict[str, str] = {}
        for place, folders, names in os.walk(self.folder.root):
            for name in (*folders, *names):
                try:
                    self._tidy(Path(place, name), links)
                except OSError as error:
                    say(f"cordee: {place}/{name} may not come home: {error.strerror}")
        if next_start is None:
            self._part_last_words()
        write_atomically(self.folder.checkpoints / LINKS, json.dumps(links, indent=1))
        if next_start is not None:
            with tarfile.open(self.folder.checkpoints / f"{KEPT}{here.turn}.tar", "w") as archive:
                for path in self._changed() if next_start == AGAIN else ():
                    archive.add(path, arcname=str(path.relative_to(self.folder.root)))

    def _tidy(self, path: Path, links: dict[str, str]) -> None:
        """Remove what does not go home; what does can be read, and written over."""
        state = path.lstat()
        if stat.S_ISDIR(state.st_mode):
            path.chmod(0o700)
            return
        if stat.S_ISLNK(state.st_mode):
            links[str(path.relative_to(self.folder.root))] = self._target(path)
        if not stat.S_ISREG(state.st_mode) or self._unpacked.get(path) == (state.st_size, state.st_mtime_ns):
            path.unlink()
        elif state.st_mode & _OWN != _OWN:  # it is read here, and written over at home when it comes again
            path.chmod(stat.S_IMODE(state.st_mode) | _OWN)

    def _part_last_words(self) -> None:
        """Take the run's end out of its journal, into a file that comes home after all else: until then the run has not ended."""
        for path in self.folder.journal.glob("supervisor-*.jsonl"):
            data = path.read_bytes()
            begin = last_words_at(data)
            if begin >= 0:
                (self.scratch / LAST_WORDS).write_bytes(data[begin:])
                with open(path, "r+b") as file:
                    file.truncate(begin)

    def _changed(self) -> Iterator[Path]:
        """Yield the files that the script has beside its code, and the saves that were written over here."""
        for place, _, names in os.walk(self.folder.code):
            yield from (Path(place, name) for name in names)
        for path, state in self._saves.items():
            with suppress(OSError):
                now = path.stat()
                if (now.st_size, now.st_mtime_ns) != state:
                    yield path

    def _put_back(self, here: CondorStart, fetch: Callable[[str, Path], None]) -> None:
        """Put what the starts before this one had changed last where it was; remember the saves."""
        job = here.turn.partition("-")[0]
        kept = sorted(self.folder.checkpoints.glob(f"{KEPT}{job}-*.tar"))
        sent = sorted(self.folder.checkpoints.glob(f"{SENT}{job}-*"))
        if sent and (not kept or sent[-1].name[len(SENT) :] > kept[-1].name[len(KEPT) : -len(".tar")]):
            save = self.folder.checkpoints / sent[-1].read_text()
            fetch(str(save.relative_to(self.scratch)), save)
        elif kept:
            with tarfile.open(kept[-1]) as archive:
                for member in archive:
                    if member.isreg() and ".." not in member.name.split("/") and not member.name.startswith("/"):
                        self._extract(archive, member, self.folder.root / member.name)
        for pattern in (f"{KEPT}*", f"{SENT}*"):
            for path in self.folder.checkpoints.glob(pattern):
                path.unlink()
        for place, _, names in os.walk(self.folder.checkpoints):
            for name in names:
                state = os.lstat(os.path.join(place, name))
                self._saves[Path(place, name)] = (state.st_size, state.st_mtime_ns)

    @staticmethod
    def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        source = archive.extractfile(member)
        assert source is not None
        with source, open(path, "wb") as target:
            shutil.copyfileobj(source, target)
        path.chmod(member.mode)

    def _target(self, link: Path) -> str:
        """Return where a link leads to, in words that hold in the next scratch folder too."""
        target = os.readlink(link)
        inside = target.startswith(f"{self.folder.root}/")
        return os.path.relpath(target, link.parent) if inside else target

    def _unpack(self) -> None:
        """Unpack what the run consists of; what an eviction has kept of it is newer."""
        for name in (LUGGAGE, CODE):
            self._unpack_one(self.folder.submit / name)

    def _unpack_one(self, packed: Path) -> None:
        with tarfile.open(packed) as archive:
            for member in archive:
                path = self.folder.root / member.name
                if os.path.lexists(path) or member.name.startswith("/") or ".." in member.name.split("/"):
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                if member.issym():
                    path.symlink_to(member.linkname)
                    self._made.append(path)
                elif member.isdir():
                    path.mkdir(mode=0o700)
                elif member.isreg():
                    self._extract(archive, member, path)
                    state = path.lstat()
                    self._unpacked[path] = (state.st_size, state.st_mtime_ns)

    def _keep_logs_alone(self) -> None:
        aside = self.scratch / f".{self.folder.id}.control"
        self.folder.control.rename(aside)
        self.folder.control.mkdir(mode=0o700)
        for path in aside.glob("*.log"):
            path.rename(self.folder.control / path.name)

    def _restore_links(self) -> None:
        """Make again the links that stayed behind: HTCondor takes no link to a folder, and holds a job that has one."""
        try:
            links = json.loads((self.folder.checkpoints / LINKS).read_text())
        except (OSError, ValueError):
            return
        for name, target in links.items():
            path = self.folder.root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(target)
            except OSError as error:
                say(f"cordee: the link {name} cannot be made again: {error.strerror}")

    def _claim_earlier_epochs(self) -> None:
        """Leave out the epochs of earlier starts, which the journal knows: two supervisors may not write under one name."""
        for path in self.folder.journal.glob("supervisor-*.jsonl"):
            match = _EPOCH.search(path.name)
            if match:
                epoch = self.folder.control / "epochs" / match.group(1)
                epoch.mkdir(parents=True, exist_ok=True)
                write_atomically(epoch / "owner.json", json.dumps({**identity(), "job": None}))

    def _fit(self, plan: dict[str, Any], here: CondorStart) -> None:
        """Have the plan's paths lead to where things are here, and no save take longer than this machine waits for it."""
        step = plan["steps"][0]
        moved = {plan["folder"]: str(self.folder.root)}
        code = self.folder.code
        for data in step.get("data", []):
            place = data["place"]
            if "://" not in place:
                arrived = self.scratch / os.path.basename(place.rstrip("/"))
                moved[place] = str(arrived)
                self._show(code, plan["job_folder"], place, arrived)
        seen_as = step["checkpoint"].get("seen_as")
        if seen_as:
            self._link(code / seen_as, self.folder.checkpoints)
        moved[plan["job_folder"]] = str(code)
        by_length = sorted(moved.items(), key=lambda item: -len(item[0]))
        step = _moved(step, [(_path(old), new) for old, new in by_length])
        plan.update(folder=str(self.folder.root), workdir=str(code), steps=[step], parent=None)  # that one is at home
        step["tasks"]["path_prepend"] = [path for path in step["tasks"]["path_prepend"] if os.path.isdir(path)]
        checkpoint = step["checkpoint"]
        if here.vacate_s is not None:
            grace_s = max(1.0, here.vacate_s - max(_HOME_S, _HOME_SHARE * here.vacate_s))
            checkpoint["grace_s"] = min(checkpoint["grace_s"], grace_s)
            plan["timeouts"]["kill_s"] = min(plan["timeouts"]["kill_s"], max(0.5, 0.1 * here.vacate_s))

    def _show(self, code: Path, job_folder: str, place: str, arrived: Path) -> None:
        """Show a data set where the script expects it, if that is in its own folder."""
        relative = os.path.relpath(place, job_folder)
        if not relative.startswith(".."):
            self._link(code / relative, arrived)

    def _link(self, path: Path, target: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        with suppress(FileNotFoundError):
            path.unlink()
        path.symlink_to(target)
        self._made.append(path)


def _moved(value: Any, moved: list[tuple[re.Pattern[str], str]]) -> Any:
    """Have texts in a document lead to where these paths are now; returns the new value."""
    if isinstance(value, dict):
        return {key: _moved(one, moved) for key, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, moved) for one in value]
    if isinstance(value, str):
        for old, new in moved:
            value = old.sub(new.replace("\\", r"\\"), value)
    return value


def _path(path: str) -> re.Pattern[str]:
    """Return what finds a path in a text, and no longer one that begins alike."""
    return re.compile(rf"(?<![\w./-]){re.escape(path)}(?![\w.-])")


def last_words_at(data: bytes) -> int:
    """Return where the end of the run begins in a journal, -1 where it has none."""
    found = data.rfind(b'"event":"ended"')
    return data.rfind(b"\n", 0, found) + 1 if found >= 0 else -1
