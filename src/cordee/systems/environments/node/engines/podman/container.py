"""A container of podman's, opened in namespaces of this process.

The root is made here: the image, squashfs or folder, and an overlay whose upper layer is in memory. So podman needs no
storage of its own, a user no subordinate ids, and all of it is gone with the namespace.
"""

from __future__ import annotations

import os
import stat

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.gpus.edits import Edits
from cordee.systems.environments.node.engines.namespace.isolation import OTHER_ENGINE, why
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.root.squashfs import mount_squashfs
from cordee.systems.environments.node.engines.namespace.root.tree import RootTree
from cordee.systems.environments.node.engines.podman import pause
from cordee.systems.environments.node.engines.podman.argv import podman_words
from cordee.systems.environments.node.engines.podman.devices import devices_for
from cordee.systems.environments.node.engines.podman.layer import PodmanLayer, make_layer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cordee.systems.environments.node.engines.podman.question import PodmanQuestion

HOST_ROOT = "CORDEE_HOST_ROOT"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED_ON = ("CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE")
_BEFORE_WORDS = "Error: "
_NESTED = (("user", kernel.NEWUSER), ("mnt", kernel.NEWNS), ("ipc", 0x08000000), ("pid", kernel.NEWPID))


class PodmanContainer:
    """A container that is open as long as this process lives.

    Args:
        asked: what is wanted.
        host_processes: whether it shares the host's process ids.

    Attributes:
        request: what is wanted of any engine.
        pid: of its first process.
        servers: processes that serve squashfs files, to be ended with it.
        variables, appended: what its devices add to the environment of commands, as `add_variables` takes it.
    """

    def __init__(self, asked: PodmanQuestion, host_processes: bool) -> None:
        self._asked = asked
        self.request = asked.request
        self._host_processes = host_processes
        self._uid, self._gid = os.geteuid(), os.getegid()
        self.user = self._uid != 0
        self.servers: list[int] = []
        self._edits = Edits()
        self.variables: list[tuple[str, str]] = []
        self.appended: list[tuple[str, str]] = []
        self.pid = 0

    def open(self, mask: set[int]) -> None:
        """Make the root and have podman open the container.

        Args:
            mask: of signals, for podman: this process has them blocked.

        Raises:
            Refused: something is missing, or podman's own words.
            OSError: the kernel would not.
        """
        request, place = self.request, self._asked.place
        self._edits, request.devices = devices_for(request.devices, os.environ.get(HOST_ROOT, ""))
        self.variables, self.appended = self._edits.variables, self._edits.appended
        # What the EDF mounts goes over what devices bring.
        request.mounts = [*self._edits.mounts, *request.mounts]
        for source, _, _ in request.mounts:
            if not os.path.exists(source):
                raise EngineRefused(
                    "the source of a mount does not exist on this host",
                    given=source,
                    next="make it, or take the mount out of the EDF",
                )
        _make_place(place, self._uid)
        self._leave_host()
        kernel.mount("cordee", place, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0700")
        for name in ("home", "image", "layer", "work", "root", "files"):
            os.mkdir(f"{place}/{name}")
        os.chmod(f"{place}/layer", 0o755)
        self._mount_files()
        self._make_layer()
        self._join()
        self._start(mask)

    def namespaces(self) -> list[tuple[int, int]]:
        """Return the container's namespaces that this process is not in, open, in the order of joining; with their kinds."""
        found = []
        for name, kind in _NESTED:
            theirs = f"/proc/{self.pid}/ns/{name}"
            if os.readlink(theirs) != os.readlink(f"/proc/self/ns/{name}"):
                found.append((os.open(theirs, os.O_RDONLY | os.O_CLOEXEC), kind))
        return sorted(found, key=lambda each: each[1] == kernel.NEWNS)

    def become_oneself(self) -> None:
        """Leave podman's user namespace, where this user is called root, for one where it has its own number."""
        if self.user:
            kernel.unshare(kernel.NEWUSER)
            kernel.let_own_processes_look()
            _map_ids(f"{self._uid} 0 1", f"{self._gid} 0 1")

    def _leave_host(self) -> None:
        if not self.user:
            kernel.unshare(kernel.NEWNS)
        else:
            try:
                kernel.unshare(kernel.NEWUSER | kernel.NEWNS)
                kernel.let_own_processes_look()
                _map_ids(f"0 {self._uid} 1", f"0 {self._gid} 1", deny=True)
            except OSError as error:
                text = f"user namespaces cannot be used here: {error.strerror}"
                raise EngineRefused(text, given=why(), next=OTHER_ENGINE.replace("podman", "apptainer")) from None
        kernel.mount(None, "/", None, kernel.REC | kernel.SLAVE)

    def _mount_files(self) -> None:
        request, place = self.request, self._asked.place
        if request.kind == "squashfs":
            self._mount_squashfs(request.path, f"{place}/image")
        elif not os.path.isdir(request.path):
            raise EngineRefused(
                "the image is not a folder",
                given=request.path,
                next="give a folder that holds a root (/bin, /etc, ...)",
            )
        for number, (source, _, flags) in enumerate(request.mounts):
            if "sqsh" in flags:
                os.mkdir(f"{place}/files/{number}")
                self._mount_squashfs(source, f"{place}/files/{number}")

    def _mount_squashfs(self, path: str, target: str) -> None:
        server = mount_squashfs(path, target, not self.user, path)
        if server is not None:
            self.servers.append(server)

    def _image(self) -> str:
        request = self.request
        return os.path.realpath(request.path) if request.kind == "folder" else f"{self._asked.place}/image"

    def _make_layer(self) -> None:
        place, image = self._asked.place, self._image()
        kind = PodmanLayer if self.user else RootTree
        tree = kind(f"{place}/layer", image)
        make_layer(tree, image, self.request, f"{place}/files", (self._uid, self._gid))
        for path, goal in self._edits.links:
            tree.link(path, goal)

    def _join(self) -> None:
        place, image = self._asked.place, self._image()
        # A colon parts folders here and a comma options: the image is found through an open folder in place of its name.
        opened = os.open(image, os.O_PATH | os.O_DIRECTORY)
        options = f"lowerdir=/proc/self/fd/{opened},upperdir={place}/layer,workdir={place}/work"
        try:
            kernel.mount("overlay", f"{place}/root", "overlay", 0, options + (",userxattr" if self.user else ""))
        except OSError as error:
            raise EngineRefused(
                f"the kernel would not join the image and the layer above it (overlay): {error.strerror}",
                given=self.request.path,
                next="Linux 5.11 lets users do this",
            ) from None
        finally:
            os.close(opened)

    def _start(self, mask: set[int]) -> None:
        """Run podman and wait for it; the pipe's end that this process keeps is what holds the container."""
        place = self._asked.place
        host_ipc = not self.user or os.path.isdir("/dev/mqueue")
        words = podman_words(self._asked, self._host_processes, host_ipc, self._edits.nodes)
        reading, self._held = os.pipe()
        said = os.open(f"{place}/said", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        child = os.fork()
        if child == 0:
            _become_podman(words, self._environment(), reading, said, mask)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        if status:
            raise EngineRefused(
                f"podman could not open the container: {_last_words(said)}", next="`-v` shows other engines"
            )
        with open(f"{place}/pid", encoding="utf-8") as file:
            self.pid = int(file.read())

    def _environment(self) -> dict[str, str]:
        """Return podman's own environment: nothing of the command's, so that neither disturbs the other."""
        home = f"{self._asked.place}/home"
        found = {"PATH": _PATH, "HOME": home, "XDG_RUNTIME_DIR": home, "LANG": "C.UTF-8"}
        found.update({name: os.environ[name] for name in _PASSED_ON if name in os.environ})
        if self.user:
            # As `podman unshare` says it: the user namespace is there already.
            found["_CONTAINERS_USERNS_CONFIGURED"] = "done"
            found["_CONTAINERS_ROOTLESS_UID"], found["_CONTAINERS_ROOTLESS_GID"] = str(self._uid), str(self._gid)
        return found


def _map_ids(users: str, groups: str, deny: bool = False) -> None:
    if deny:
        with open("/proc/self/setgroups", "w", encoding="utf-8") as file:
            file.write("deny")
    for name, content in (("uid_map", users), ("gid_map", groups)):
        with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
            file.write(content)


def _make_place(place: str, uid: int) -> None:
    try:
        os.mkdir(place, 0o700)
    except FileExistsError:
        found = os.lstat(place)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
            raise EngineRefused(
                "the folder for podman's state belongs to somebody else", given=place, next="remove it"
            ) from None


def _become_podman(words: list[str], environment: dict[str, str], reading: int, said: int, mask: set[int]) -> None:
    try:
        program = os.memfd_create("cordee-pause", 0)
        os.write(program, pause.program())
        os.fchmod(program, 0o755)
        silent = os.open("/dev/null", os.O_RDWR)
        # Above all of the places that they go to, so that none overwrites another.
        reading, program, silent, said = (_above(each) for each in (reading, program, silent, said))
        for number, source in enumerate((silent, said, said, reading, program)):
            os.dup2(source, number, inheritable=True)
        os.chdir("/")
        kernel.restore_ignored()
        kernel.set_signals(mask)
        os.execve(words[0], words, environment)
    finally:
        os._exit(127)


def _above(descriptor: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 16)


def _last_words(said: int) -> str:
    lines = os.pread(said, 65536, 0).decode("utf-8", "replace").strip().splitlines()
    words = next((line for line in reversed(lines) if line.startswith(_BEFORE_WORDS)), lines[-1] if lines else "")
    return words[len(_BEFORE_WORDS) :] if words.startswith(_BEFORE_WORDS) else words or "it said nothing"
