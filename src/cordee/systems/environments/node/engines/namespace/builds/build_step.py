"""A step of a build in namespaces of its own: no right of the machine is needed, and nothing of the step is left running."""

from __future__ import annotations

import json
import os
import socket

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.builds.copied import copy_in
from cordee.systems.environments.node.engines.namespace.builds.layer_archive import LayerArchive, sweep
from cordee.systems.environments.node.engines.namespace.builds.ownership import filter_process, keep_owners
from cordee.systems.environments.node.engines.namespace.builds.step_order import StepOrder, read_order
from cordee.systems.environments.node.engines.namespace.execute import ENGINE, become, begin_in, say
from cordee.systems.environments.node.engines.namespace.isolation import enter_namespaces
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.root.devices import mount_devices
from cordee.systems.environments.node.engines.namespace.root.mounts import bind, restrict
from cordee.systems.environments.node.engines.namespace.root.tree import RootTree

_NEWNET = 0x40000000
_PAGE_BYTES = 4096  # the most that mount(2) takes of options
_PLACES = ("proc", "sys", "dev", "tmp", "run", "etc")
_HOSTS_FILES = ("/etc/resolv.conf", "/etc/hosts")


def build_step(path: str) -> int:
    """Do what the order in a file says; return the command's exit code.

    Raises:
        EngineRefused, OSError: the container cannot be made, or the archive not written.
    """
    order = read_order(path)
    kernel.die_with_parent()
    os.umask(0o022)
    if order.do == "pack":
        return _pack(order)
    servers: list[int] = []
    try:
        base = _base(order, servers)
        kernel.unshare(kernel.NEWPID)
        first = os.fork()
        if first == 0:
            _inside(order, base)
        return kernel.exit_code(os.waitpid(first, 0)[1])
    finally:
        kernel.end(servers)


def _pack(order: StepOrder) -> int:
    servers: list[int] = []
    try:
        if order.layer:
            folder = f"{order.folder}/{order.layer}"
            if os.geteuid() != 0:
                enter_namespaces(0, kernel.NEWUSER | kernel.NEWNS)
            if order.sweep:
                sweep(os.fsencode(folder))
        else:
            folder = _base(order, servers)
        with open(order.archive, "wb") as out:
            packed = LayerArchive(
                folder, out, epoch=order.epoch, since_ns=order.since_ns, layered=bool(order.layer)
            ).pack()
            out.flush()
            os.fsync(out.fileno())
    finally:
        kernel.end(servers)
    print(json.dumps(packed), flush=True)
    return 0


def _base(order: StepOrder, servers: list[int]) -> str:
    """Enter the step's namespaces with the base mounted, and return where it is.

    Who serves a file system in a namespace speaks of users in that namespace's numbers: a base whose files are the builder's
    is mounted under the builder's own number, in a namespace around that of the step.
    """
    uid = os.geteuid()
    last = kernel.NEWUSER | kernel.NEWNS | (0 if order.network or order.do != "run" else _NEWNET)
    if uid == 0:
        enter_namespaces(None, kernel.NEWNS)
    elif order.own:
        enter_namespaces(uid, kernel.NEWUSER | kernel.NEWNS)
    else:
        enter_namespaces(0, last)
    point = order.base
    if os.path.isdir(order.base) and order.do == "run":
        point = f"{order.work}/base"
        os.makedirs(point, exist_ok=True)
        bind(order.base, point)
    elif order.base and not os.path.isdir(order.base):
        from cordee.systems.environments.node.engines.namespace.root.squashfs import mount_squashfs

        point = f"{order.work}/base"
        os.makedirs(point, exist_ok=True)
        server = mount_squashfs(order.base, point, uid == 0, order.base)
        if server is not None:
            servers.append(server)
    if (uid != 0 and order.own) or order.do == "run":
        enter_namespaces(0, last)
    return point


def _inside(order: StepOrder, base: str) -> None:
    """Be the first process of the step; ends with the command's exit code and returns never."""
    try:
        kernel.die_with_parent()
        _assemble(order, base)
        mine, other = socket.socketpair()
        if os.fork() == 0:
            _keep(mine, other)
        mine.close()
        command = os.fork()
        if command == 0:
            if order.copied:
                os._exit(copy_in(*order.copied))
            begin_in(order.workdir)
            filter_process(other)
            other.close()
            become(order.argv, {os.fsencode(key): os.fsencode(value) for key, value in order.env.items()})
        other.close()
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == command:
                os._exit(kernel.exit_code(status))
    except EngineRefused as refused:
        say(refused.words())
    except OSError as error:
        say(f"the container could not be made: {error}")
    finally:
        os._exit(ENGINE)


def _keep(mine: socket.socket, other: socket.socket) -> None:
    try:
        kernel.die_with_parent()
        other.close()
        keep_owners(mine)
    finally:
        os._exit(0)


def _assemble(order: StepOrder, base: str) -> None:
    for name in ("upper", "work", "root", "tmp", "below"):
        os.makedirs(f"{order.work}/{name}", exist_ok=True)
    os.chmod(f"{order.work}/tmp", 0o1777)
    # Mount points that the image lacks are made below it, where no layer sees them.
    below = f"{order.work}/below"
    for name in _PLACES:
        os.makedirs(f"{below}/{name}", exist_ok=True)
    targets = [*order.mounts, *((path, path, False) for path in _HOSTS_FILES if order.network and os.path.exists(path))]
    for source, target, _ in targets:
        if not target.startswith(("/run/", "/tmp/")):
            _point(below + target, os.path.isdir(source))
    lowers = [f"{name}/diff" for name in order.layers] + ([base] if base else []) + [below]
    # Commas and colons part the words of the kernel: names of people's folders are none of them.
    os.chdir(order.folder)
    work = os.path.relpath(order.work)
    lower = ":".join(os.path.relpath(each) if each.startswith("/") else each for each in lowers)
    options = f"lowerdir={lower},upperdir={work}/upper,workdir={work}/work,userxattr"
    root = f"{order.work}/root"
    if len(os.fsencode(options)) >= _PAGE_BYTES:
        raise EngineRefused(
            f"the kernel does not join {len(lowers)} layers",
            given=order.folder,
            next="put several lines of commands into one, with && between them",
        )
    try:
        kernel.mount("overlay", root, "overlay", kernel.NODEV, options)
    except OSError as error:
        raise EngineRefused(
            f"the kernel would not lay a layer over the image (overlay): {error.strerror}",
            given=order.folder,
            next="Linux 5.11 lets users do this, on a local disk: name a folder there with CORDEE_BUILD_CACHE",
        ) from None
    kernel.mount("proc", f"{root}/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
    bind("/sys", f"{root}/sys")
    mount_devices(f"{root}/dev")
    kernel.mount("tmpfs", f"{root}/run", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755")
    bind(f"{order.work}/tmp", f"{root}/tmp")
    tree = RootTree(root)
    for source, target, writable in targets:
        at = root + tree.resolve(target)[0]
        if not os.path.lexists(at):
            _point(at, os.path.isdir(source))
        bind(source, at)
        if not writable:
            restrict(at, kernel.RDONLY)
    kernel.pivot(root)
    kernel.unmount(".")
    os.chdir("/")


def _point(path: str, folder: bool) -> None:
    os.makedirs(path if folder else os.path.dirname(path), exist_ok=True)
    if not folder and not os.path.lexists(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
