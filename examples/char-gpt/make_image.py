"""Makes an image for env.toml out of this machine's own files, in seconds: no registry, no network, no privileges.

In it are the Python that this virtual environment stands on, a shell and a few programs, the shared libraries that they
and the environment's packages need, certificates and time zones. The environment itself stays outside: env.toml mounts it.

    python make_image.py             # ~/.cache/cordee/char-gpt.sqsh, unless a newer one is there
    python make_image.py image.sqsh --force
"""

import argparse
import os
import pwd
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from cordee.core.errors import CordeeError
from cordee.systems.environments.venv_image.interpreter import interpreter_of
from cordee.systems.environments.venv_image.tree import SquashfsEntry, read_tree
from cordee.systems.environments.venv_image.write import write

PROGRAMS = "sh bash env cat ls cp mv rm mkdir ln readlink uname date sleep head tail wc sort tr cut tee id hostname \
nproc true false test stat df du grep sed find xargs getent tar gzip"
FOLDERS = "proc sys dev run tmp var/tmp etc root home opt mnt"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
AS_THEY_ARE = f"{CERTIFICATES} /etc/localtime /etc/hosts /etc/ld.so.cache /usr/share/zoneinfo \
/usr/lib/locale/C.utf8 /usr/lib/ssl/openssl.cnf /etc/ssl/openssl.cnf"
# The C library and threads open these when they are first needed; no program names them.
OPENED_LATE = ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2")
NOT_NEEDED = re.compile(r"test|idlelib|turtledemo|ensurepip|site-packages|dist-packages|config-.*|.*\.a")


def default_path() -> Path:
    """Return where env.toml looks for the image."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordee" / "char-gpt.sqsh"


def libraries_of(binaries: Iterable[Path]) -> set[Path]:
    """Return the shared libraries that the dynamic linker finds for programs and libraries, itself included."""
    done = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False)
    return {Path(path) for path in re.findall(r"(?:=> |^\t)(/\S+) \(0x", done.stdout, re.MULTILINE)}


class Root:
    """The entries of an image: each file at its real path, links where it is known by other names."""

    def __init__(self) -> None:
        self.entries: dict[str, SquashfsEntry] = {}

    def _put(self, entry: SquashfsEntry) -> None:
        for above in reversed(Path(entry.name).parents[:-1]):
            self.entries.setdefault(str(above), SquashfsEntry(str(above), "folder"))
        self.entries.setdefault(entry.name, entry)

    def folder(self, name: str) -> None:
        self._put(SquashfsEntry(name, "folder", 0o1777 if name.endswith("tmp") else 0o755))

    def text(self, name: str, text: str) -> None:
        self._put(SquashfsEntry(name, "file", 0o644, data=text.encode()))

    def link(self, path: Path, target: str) -> None:
        self._put(SquashfsEntry(str(path).lstrip("/"), "link", 0o777, target=target))

    def file(self, path: Path) -> None:
        """Take one file along, whatever links lead to it."""
        real = path.resolve()
        status = real.stat()
        mode = 0o755 if status.st_mode & 0o100 else 0o644
        self._put(SquashfsEntry(str(real).lstrip("/"), "file", mode, int(status.st_mtime), status.st_size, real))
        known_as = path.parent.resolve() / path.name
        if known_as != real:
            self.link(known_as, str(real))

    def tree(self, path: Path) -> None:
        real = path.resolve()
        self.folder(str(real).lstrip("/"))
        found = read_tree(real, str(real).lstrip("/"), lambda _: True, lambda at: bool(NOT_NEEDED.fullmatch(at.name)))
        for entry in found.entries:
            self._put(entry)


def python_files() -> Iterator[Path]:
    """Yield the interpreter that this environment stands on, by every name that leads to it, and its own library."""
    path = Path(sys.executable)
    while path.is_symlink():
        path = path.parent / os.readlink(path)
        if not path.parent.resolve().is_relative_to(Path(sys.prefix).resolve()):
            yield path
    yield path.resolve()
    yield from Path(sysconfig.get_config_var("LIBDIR") or sys.base_prefix).glob("libpython3*.so*")


def image() -> Root:
    """Return what goes into the image."""
    root = Root()
    for top in ("bin", "sbin", "lib", "lib64"):
        if Path("/", top).is_symlink():
            root.link(Path("/", top), os.readlink(f"/{top}"))
    for name in FOLDERS.split():
        root.folder(name)
    programs = [Path(found) for found in map(shutil.which, PROGRAMS.split()) if found]
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    packages = [path for path in Path(sys.prefix).rglob("*.so*") if path.is_file() and not path.is_symlink()]
    libraries = libraries_of([*programs, *python_files(), *stdlib.rglob("*.so"), *packages])
    folders = {library.parent for library in libraries if library.name.startswith("libc.so")}
    libraries |= {folder / name for folder in folders for name in OPENED_LATE if (folder / name).exists()}
    ours = Path(sys.prefix).resolve()
    for path in [*programs, *python_files(), *sorted(libraries)]:
        if not path.resolve().is_relative_to(ours):
            root.file(path)
    root.tree(stdlib)
    for path in map(Path, AS_THEY_ARE.split()):
        if path.exists():
            root.tree(path) if path.is_dir() else root.file(path)
    # OpenSSL looks there, or for files named by their hashes.
    root.link(Path(ssl.get_default_verify_paths().openssl_cafile), CERTIFICATES)
    me = pwd.getpwuid(os.getuid())
    people = {0: "root:x:0:0::/root:/bin/sh", me.pw_uid: f"{me.pw_name}:x:{me.pw_uid}:{me.pw_gid}::{me.pw_dir}:/bin/sh"}
    root.text("etc/passwd", "\n".join(people.values()) + "\n")
    root.text("etc/group", "root:x:0:\n" + (f"{me.pw_name}:x:{me.pw_gid}:\n" if me.pw_gid else ""))
    root.text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    root.text("etc/os-release", 'NAME="Made for char-gpt"\nID=char-gpt\n')
    root.text("etc/resolv.conf", "")
    return root


def is_current(path: Path) -> bool:
    """Return whether an image is there that is newer than what it was made from."""
    sources = [Path(__file__), Path(sys.executable).resolve(), Path(sysconfig.get_paths()["purelib"])]
    return path.is_file() and path.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=default_path(), help="default: where env.toml looks")
    parser.add_argument("--force", action="store_true", help="make it even if one is there")
    options = parser.parse_args()
    if is_current(options.file) and not options.force:
        print(f"{options.file} is there")
        return
    options.file.parent.mkdir(parents=True, exist_ok=True)
    root = image()
    try:
        interpreter = interpreter_of(Path(sys.prefix))
        counts, size = write(list(root.entries.values()), options.file.absolute(), interpreter, Path("/"), "zstd", True)
    except CordeeError as error:
        sys.exit(str(error))
    print(f"{options.file}: {counts.files:,} files, {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
