"""A persistent overlay: a folder of the host that keeps what is written to the root of a container.

```
<folder>/upper, <folder>/work   of overlayfs, or of fuse-overlayfs where the file system refuses that
<folder>/kind                   by which of them, and as root or as a user, it was written: they mark what was removed differently
<folder>/lock                   held for as long as a container uses it: alone where it writes, with others where it only reads
```
"""

from __future__ import annotations

import fcntl
import os
import time

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

FUSE = "fuse-overlayfs"
_FOLDERS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_UP_S = 10.0


class KeptLayer:
    """The folder of a persistent overlay, made where it is missing, and locked until this process ends.

    Args:
        path: of the folder.
        writable: whether it is written to; otherwise many containers may read it at once.

    Raises:
        EngineRefused: another container writes to it, or it cannot be used.
    """

    def __init__(self, path: str, writable: bool) -> None:
        self.path, self.writable = path, writable
        self.server, self._seen = 0, ""
        try:
            self._make(path, 0o700)
            # overlayfs clears its `work`, which may be somebody's in a folder of another use.
            if os.listdir(path) and not os.path.lexists(f"{path}/lock"):
                raise EngineRefused(
                    "the folder of the overlay holds other things, and is no overlay",
                    given=path,
                    next="name a folder in `[stack] overlay` that is empty or not there yet",
                )
            self._lock = os.open(f"{path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._make(f"{path}/upper", 0o755)
            self._make(f"{path}/work", 0o700)
            self._folder = os.open(path, os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            raise EngineRefused(
                f"the overlay cannot be used: {error.strerror}: {error.filename}",
                given=path,
                next="name a folder of yours in `[stack] overlay`; the folder above it has to be there",
            ) from None
        self._take()

    @staticmethod
    def _make(folder: str, mode: int) -> None:
        try:
            os.mkdir(folder, mode)
        except FileExistsError:  # perhaps made by another container that starts now
            if not os.path.isdir(folder):
                raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, (fcntl.LOCK_EX if self.writable else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 200, 0).decode("utf-8", "replace").strip()
            raise EngineRefused(
                f"another container uses the overlay{f': {holder}' if holder else ''}",
                given=self.path,
                next="wait for it, give each its own ({node} in the path stands for the node's name), or read it only: writable = false",
            ) from None
        except OSError as error:
            raise EngineRefused(
                f"the overlay cannot be locked on its file system: {error.strerror}",
                given=self.path,
                next="put it on a file system with locks (flock)",
            ) from None
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        how = "" if self.writable else ", which reads it, perhaps with others"
        note = f"process {os.getpid()} on {os.uname().nodename} since {now}{how}\n"
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, note.encode(), 0)
        except OSError:
            pass  # on a full file system a container has to open all the same, to remove something

    def check(self, kind: str) -> None:
        """Note by what the overlay is written.

        Raises:
            EngineRefused: it was written by something else, which reads it differently.
        """
        place = self.own("kind")
        before = ""
        try:
            if os.path.lexists(place):
                with open(place, encoding="utf-8", errors="replace") as file:
                    before = file.read(100).strip()
            if not before and self.writable:
                with open(place, "w", encoding="utf-8") as file:
                    file.write(kind + "\n")
        except OSError as error:
            raise EngineRefused(
                f"the overlay cannot be used: {error.strerror}: {self.path}/kind",
                given=self.path,
                next="put it on a file system with space, or take another folder",
            ) from None
        if before and before != kind:
            raise EngineRefused(
                f"the overlay was written by {before}, and would be used by {kind} here, which marks removed files otherwise",
                given=self.path,
                next="use it as before, or take another folder",
            )

    def show(self, stage: str) -> None:
        """Mount the folder below the stage: its own path may be covered, or hold letters that options of a mount stumble over.

        Raises:
            OSError: the kernel would not.
        """
        self._seen = f"{stage}/kept"
        os.mkdir(self._seen)
        kernel.mount(f"/proc/self/fd/{self._folder}", self._seen, None, kernel.BIND)

    def own(self, name: str) -> str:
        """Return the path of something in it, once it is shown."""
        return f"{self._seen}/{name}"

    def by_fuse(self, target: str, lower: str) -> None:
        """Join by fuse-overlayfs, which needs nothing of the file system.

        Raises:
            EngineRefused: it is not there, or could not.
        """
        found = next((f"{each}/{FUSE}" for each in _FOLDERS.split(":") if os.access(f"{each}/{FUSE}", os.X_OK)), "")
        kind = _file_system(self.path)
        if not found or not os.access("/dev/fuse", os.R_OK | os.W_OK):
            raise EngineRefused(
                f"the file system of the overlay ({kind}) cannot be written by overlayfs, and {FUSE} is "
                + ("not installed" if not found else "of no use without /dev/fuse"),
                given=self.path,
                next=f"put the overlay on another file system, a disk of the node for example, or install {FUSE}",
            )
        # Before the fork: the server may have mounted by the time that this process runs again.
        before = os.stat(target).st_dev
        parent, self.server = os.getpid(), os.fork()
        if self.server == 0:
            self._serve(found, target, lower, parent)
        until = time.monotonic() + _UP_S
        while os.stat(target).st_dev == before:
            ended, _ = os.waitpid(self.server, os.WNOHANG)
            if ended or time.monotonic() > until:
                if not ended:
                    kernel.end([self.server])
                self.server = 0
                raise EngineRefused(
                    f"neither overlayfs nor {FUSE} can write to the file system of the overlay ({kind})",
                    given=self.path,
                    next="put it on another file system",
                )
            time.sleep(0.01)

    def _serve(self, found: str, target: str, lower: str, parent: int) -> None:
        try:
            os.setsid()
            kernel.die_with_parent()
            if os.getppid() != parent:
                return
            silent = os.open("/dev/null", os.O_RDWR)
            for number in range(3):
                os.dup2(silent, number)
            options = f"lowerdir={lower},upperdir={self.own('upper')},workdir={self.own('work')}"
            os.execv(found, [found, "-f", "-o", options, target])
        finally:
            os._exit(127)


def _file_system(path: str) -> str:
    """Return the kind of the file system of a path, as the kernel calls it."""
    real, best, kind = os.path.realpath(path), "", "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words, _, after = line.partition(" - ")
            at = words.split(" ")[4]
            if (real == at or real.startswith(at.rstrip("/") + "/")) and len(at) >= len(best):
                best, kind = at, after.split(" ")[0]
    return kind
