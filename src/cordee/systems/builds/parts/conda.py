"""`conda`: packages of conda channels, resolved and put together on this machine by rattler, for a folder of the image."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from cordee.machine.processes.parent import die_with_parent
from cordee.systems.builds.bench import INSIDE, BuildStep, StepCommand
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.lock import BuildPackage
from cordee.systems.builds.parts._base import RecipePart
from cordee.systems.builds.parts.pip import COMPILE
from cordee.systems.builds.recipe import digest_of

_MOST_AT_ONCE = 8
_SILENT_S = 60.0
_Said = TypeVar("_Said")
_LIBC = "getconf GNU_LIBC_VERSION > libc 2> /dev/null || : > libc"
# Packages may bring a script for when they are in their place; `order` has who needs whom before.
_INSTALL = f"""set -e
if [ -e "$1/conda-meta" ]; then echo "the image has packages of conda in $1: name another prefix" >&2; exit 1; fi
mkdir -p "$1"
cp -R -P -p {INSIDE}/conda/. "$1/"
export PREFIX="$1" ROOT_PREFIX="$1"
shell=$(command -v bash || command -v sh)
while read -r PKG_NAME PKG_VERSION PKG_BUILDNUM; do
  export PKG_NAME PKG_VERSION PKG_BUILDNUM
  script="$1/bin/.$PKG_NAME-post-link.sh"
  if [ -f "$script" ]; then "$shell" "$script" < /dev/null; fi
done < {INSIDE}/order
if [ -x "$1/bin/python" ]; then exec "$1/bin/python" -B {INSIDE}/compile.py; fi
"""
# Packages name the files that they bring, and rattler believes them: it runs where it can write nowhere else, and its threads may
# outlive the interpreter, which is ended at once. What it notes of
# its own folders is taken out, and which folders of files that two packages have are empty is chance.
_PUT_TOGETHER = """import asyncio, contextlib, json, os, pathlib, rattler, sys
HERE = ("link", "extracted_package_dir", "package_tarball_full_path", "requested_specs")
urls = json.loads(pathlib.Path("urls.json").read_text())
made = pathlib.Path("conda")

async def main():
    records = [await rattler.RepoDataRecord.from_package_archive(pathlib.Path("archives") / name) for name in urls]
    await rattler.install(records, made, cache_dir="cache", show_progress=False, alternative_target_prefix=sys.argv[1])
    ordered = rattler.PackageRecord.sort_topologically(records)
    lines = [f"{each.name.normalized} {each.version} {each.build_number}" for each in ordered]
    pathlib.Path("order").write_text("".join(f"{line}\\n" for line in lines))

try:
    asyncio.run(main())
except Exception as error:
    print(error, file=sys.stderr, flush=True)
    os._exit(1)
(made / "CACHEDIR.TAG").unlink(missing_ok=True)
for folder, _, _ in os.walk(made / "__clobbers__", topdown=False):
    with contextlib.suppress(OSError):
        os.rmdir(folder)
for path in (made / "conda-meta").glob("*.json"):
    said = {key: value for key, value in json.loads(path.read_text()).items() if key not in HERE}
    url = urls[said["fn"]]
    path.write_text(json.dumps({**said, "url": url, "channel": url.rsplit("/", 2)[0]}, indent=1, sort_keys=True))
    path.chmod(0o644)
os._exit(0)
"""


class CondaPackages(RecipePart):
    """Packages of conda channels, in a folder of the image that they are made for."""

    name = "conda"
    kinds = ("conda",)

    def wanted(self) -> bool:
        """Return whether there are any."""
        return bool(self.recipe.conda.packages)

    def inputs(self) -> object:
        """Return what decides which packages they come to."""
        return [self.bench.base.digest, list(self.recipe.conda.packages), list(self.recipe.conda.channels)]

    def resolve(self) -> list[BuildPackage]:
        """Return the packages, fetched: the solver's choice for the C library of the image."""
        self.bench.say("conda: resolving")
        with self.bench.trial("conda: resolving") as (files, run):
            _library()
            run(StepCommand(["/bin/sh", "-c", _LIBC], [(files, INSIDE, True)], workdir=INSIDE))
            libc = (files / "libc").read_text().rpartition(" ")[2].strip()
            channels = [self._channel(each) for each in self.recipe.conda.channels]
            try:
                records = _in_child(_chosen, channels, self.recipe.conda.packages, libc, files / "channels")
            except RuntimeError as error:
                raise self._refused(error, libc) from None
            found = [BuildPackage("conda", name, version, "", file, 0, url) for name, version, file, url, _ in records]
            self.fetch(found, files)
            return [self._locked(package, files, said) for package, (*_, said) in zip(found, records, strict=True)]

    def _channel(self, name: str) -> str:
        path = os.path.expanduser(name)
        if not path.startswith((".", "/")):
            return name
        return Path(os.path.normpath(self.bench.loaded.folder / path)).as_uri()

    def _locked(self, package: BuildPackage, folder: Path, said: bytes | None) -> BuildPackage:
        digest, size = self.bench.cache.keep_blob(folder / package.file)
        locked = replace(package, hash=digest, bytes=size)
        if said is not None and digest != f"sha256:{said.hex()}":
            raise self.other(locked, f"sha256:{said.hex()}")
        return locked

    def fetch(self, missing: list[BuildPackage], folder: Path) -> None:
        """Fetch packages from where they were found."""
        _library()

        try:
            errors = _in_child(_fetched, [(each.url, folder / each.file) for each in missing])
        except RuntimeError as failed:
            errors = [str(failed)] * len(missing)
        for package, error in zip(missing, errors, strict=True):
            if error:
                raise self.gone(package, error)

    def steps(self) -> list[BuildStep]:
        """Return the one step that installs all of them."""
        packages = self.ensure()
        inputs = [
            sorted(each.hash for each in packages),
            self.recipe.conda.prefix,
            digest_of([_PUT_TOGETHER, _INSTALL, COMPILE]),
        ]
        return [self.step(f"conda: {len(packages)} packages", inputs, self._installing)]

    def _installing(self, files: Path) -> StepCommand:
        packages, prefix = self.bench.lock.of("conda"), self.recipe.conda.prefix
        _library()
        self.linked(packages, files / "archives")
        (files / "put_together.py").write_text(_PUT_TOGETHER)
        (files / "urls.json").write_text(json.dumps({each.file: each.url for each in packages}))
        with self.bench.trial("conda: putting together") as (_, run):
            words = [sys.executable, f"{INSIDE}/put_together.py", prefix]
            env = {"PYTHONPATH": ":".join(filter(os.path.isabs, sys.path))}
            run(StepCommand(words, [(files, INSIDE, True)], env, workdir=INSIDE, here=True))
        (files / "compile.py").write_text(COMPILE)
        mounts = [(files / name, f"{INSIDE}/{name}", False) for name in ("conda", "order", "compile.py")]
        return StepCommand(["/bin/sh", "-c", _INSTALL, "sh", prefix], mounts)

    def _refused(self, error: Exception, libc: str) -> BuildError:
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
        return BuildError(
            f"conda cannot resolve the packages: {lines[0]}",
            given="\n" + "\n".join(lines)
            if len(lines) > 1
            else f"{', '.join(self.recipe.conda.packages)} from {', '.join(self.recipe.conda.channels)}",
            allowed=f"packages for {platform.machine()} with the image's C library, "
            + (f"glibc {libc}" if libc else "which is not glibc or tells no version"),
            next="look at names, versions and channels; CONDA_OVERRIDE_CUDA says what CUDA the nodes have",
        )


def _in_child(work: Callable[..., Coroutine[Any, Any, _Said]], *given: Any) -> _Said:
    """Return what rattler has done in a process of its own: its threads may outlive the interpreter, which ends in a crash.

    Raises:
        RuntimeError: what the library said.
    """
    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_done, args=(there, os.getpid(), work, given), daemon=True)
    child.start()
    there.close()
    try:
        well, said = here.recv()
    except EOFError:
        well, said = False, "rattler has crashed"
    finally:
        child.kill()
        child.join()
    if not well:
        raise RuntimeError(said)
    return cast(_Said, said)


def _done(
    there: Connection, parent: int, work: Callable[..., Coroutine[Any, Any, _Said]], given: tuple[Any, ...]
) -> None:
    async def told() -> None:
        try:
            there.send((True, await work(*given)))
        except Exception as error:  # the library raises whatever a channel makes it meet
            there.send((False, str(error) or type(error).__name__))
        os._exit(0)

    die_with_parent(parent)
    asyncio.run(told())


async def _unless_silent(work: Awaitable[_Said], place: Path) -> _Said:
    """Return what is awaited.

    Raises:
        TimeoutError: for `_SILENT_S` nothing has come into `place`, nor was anything computed.
    """
    task, seen, since = asyncio.ensure_future(work), (-1, 0), 0.0
    while not (await asyncio.wait({task}, timeout=1.0))[0]:
        now = _bytes(place), int(time.process_time())
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > _SILENT_S:
            raise TimeoutError(f"the channel has sent nothing for {_SILENT_S:.0f} s")
    return task.result()


def _bytes(place: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):  # files come and go meanwhile
        for each in (place, *place.rglob("*")):
            total += each.lstat().st_size
    return total


async def _chosen(
    channels: list[str], packages: list[str], libc: str, cache: Path
) -> list[tuple[str, str, str, str, bytes | None]]:
    """Return what the solver takes: name, version, file, URL and SHA-256 of each package."""
    import rattler
    from rattler.virtual_package import Override, VirtualPackageOverrides

    told = VirtualPackageOverrides.from_env()
    told.libc = Override.string(libc or "0")
    told.archspec = told.archspec or Override.string(platform.machine())
    has = [each.into_generic() for each in rattler.VirtualPackage.detect(told)]
    solved = rattler.solve(
        channels,
        packages,
        gateway=rattler.Gateway(cache_dir=cache, client=rattler.Client.authenticated_client()),
        virtual_packages=[each for each in has if libc or each.name.normalized != "__glibc"],
    )
    found = await _unless_silent(solved, cache)
    return [(each.name.normalized, str(each.version), each.file_name, each.url, each.sha256) for each in found]


async def _fetched(wanted: list[tuple[str, Path]]) -> list[str]:
    """Fetch URLs into files; returns for each what went wrong, or nothing."""
    import rattler
    from rattler.package_streaming import download_to_path

    client, gate = rattler.Client.authenticated_client(), asyncio.Semaphore(_MOST_AT_ONCE)

    async def one(url: str, path: Path) -> str:
        async with gate:
            try:
                if url.startswith("file://"):
                    shutil.copyfile(unquote(url.removeprefix("file://")), path)
                else:
                    await _unless_silent(download_to_path(client, url, path), path)
            except Exception as error:
                return str(error).strip().partition("\n")[0] or type(error).__name__
        return ""

    return await asyncio.gather(*(one(*each) for each in wanted))


def _library() -> None:
    """Raise a BuildError where rattler is not installed."""
    try:
        import rattler  # noqa: F401
    except ImportError:
        raise BuildError(
            "packages of conda are resolved and put together by py-rattler, which is not installed",
            next="pip install 'cordee[conda]'",
        ) from None
