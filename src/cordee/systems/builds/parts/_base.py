"""The seam of a recipe's parts: the build asks each, in the order of the table, to lock itself and for its steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from cordee.systems.builds.bench import BuildBench, BuildStep, StepCommand
from cordee.systems.builds.cache import file_digest
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.layout import link_or_copy
from cordee.systems.builds.lock import BuildPackage
from cordee.systems.builds.recipe import digest_of


class RecipePart:
    """One part of a recipe. What a build calls, in this order: `wanted`, `lock`, `steps`.

    Args:
        bench: of the build; the layers of all parts before this one are on it.
    """

    name = ""
    # Kinds of packages in the lock that are this part's.
    kinds: tuple[str, ...] = ()

    def __init__(self, bench: BuildBench) -> None:
        self.bench = bench
        self.recipe = bench.loaded.recipe

    def wanted(self) -> bool:
        """Return whether the recipe has this part."""
        raise NotImplementedError("a part knows")

    def inputs(self) -> object:
        """Return all that decides what the part resolves to, as JSON takes it; None: there is nothing to resolve."""
        return None

    def resolve(self) -> list[BuildPackage]:
        """Return the packages that it comes to now, fetched.

        Raises:
            BuildError: there are none such, or the index cannot be reached.
        """
        return []

    def fetch(self, missing: list[BuildPackage], folder: Path) -> None:
        """Fetch files that are locked into a folder, under their names.

        Raises:
            BuildError: one is not to be had any more.
        """
        raise NotImplementedError("a part with packages fetches them")

    def steps(self) -> list[BuildStep]:
        """Return what puts the part into the image, as the lock has it."""
        raise NotImplementedError("a part has steps")

    def lock(self, *, anew: bool, frozen: bool) -> None:
        """Bring the lock up to date.

        Args:
            anew: versions are chosen again.
            frozen: a lock that is not up to date is an error.

        Raises:
            BuildError: it cannot be resolved, or not without a network.
        """
        given = self.inputs()
        if given is None:
            return
        lock, now = self.bench.lock, digest_of(given)
        if lock.parts.get(self.name) == now and not anew:
            return
        if frozen or self.bench.offline:
            why = "the lock is older than the recipe" if self.name in lock.parts else "it is not locked yet"
            raise BuildError(
                f"{self.name} would have to be resolved, and may not be: {why}",
                given="--locked" if frozen else "--offline",
                next="cordee env lock, where there is a network",
            )
        lock.replace(self.kinds, self.resolve())
        lock.parts[self.name] = now
        lock.layers = []

    def ensure(self) -> list[BuildPackage]:
        """Return the locked packages of this part, each of them in the cache.

        Raises:
            BuildError: a file is not to be had, or is another one than was locked.
        """
        packages, cache = self.bench.lock.of(*self.kinds), self.bench.cache
        missing = [package for package in packages if not cache.blob(package.hash).is_file()]
        if missing and self.bench.offline:
            names = ", ".join(f"{package.name} {package.version}" for package in missing[:5])
            raise BuildError(
                f"{len(missing)} locked files are not on this machine, and nothing may be fetched",
                given=names,
                next="build once without --offline, or copy the folder of the cache",
            )
        if missing:
            self.bench.say(f"{self.name}: fetching {len(missing)} locked files")
            with cache.temporary() as work:
                into = work / "fetched"
                into.mkdir()
                self.fetch(missing, into)
                for package in missing:
                    self._take(package, into / package.file)
        return packages

    def _take(self, package: BuildPackage, path: Path) -> None:
        if not path.is_file():
            raise self.gone(package, "its index has no such file any more")
        digest, _ = self.bench.cache.keep_blob(path)
        if digest != package.hash:
            os.unlink(self.bench.cache.blob(digest))
            raise self.other(package, digest)

    def other(self, package: BuildPackage, digest: str) -> BuildError:
        """Return the error of a file that is another one than was locked."""
        return BuildError(
            f"the index gives another file for {package.name} {package.version} than was locked",
            given=digest,
            allowed=package.hash,
            next="find out who changed it before you trust it; then `cordee env lock` takes it",
        )

    def gone(self, package: BuildPackage, why: str) -> BuildError:
        """Return the error of a file that cannot be fetched."""
        return BuildError(
            f"{package.name} {package.version} cannot be fetched: {why}",
            given=package.url or package.file,
            next="take versions that are there now: cordee env lock",
        )

    def linked(self, packages: Iterable[BuildPackage], folder: Path) -> Path:
        """Return a folder in which files of the cache have their names.

        Raises:
            BuildError: one of them is damaged; it is removed, so that it is fetched again.
        """
        folder.mkdir()
        for package in packages:
            blob = self.bench.cache.blob(package.hash)
            if file_digest(blob) != package.hash:
                blob.unlink()
                raise BuildError(
                    f"the file of {package.name} {package.version} in the cache of builds was damaged, and is removed",
                    given=str(blob),
                    next="build again, which fetches it",
                )
            link_or_copy(blob, folder / os.path.basename(package.file))
        return folder

    def step(
        self, label: str, inputs: object, command: Callable[[Path], StepCommand], repeats: bool = True
    ) -> BuildStep:
        """Return a step of this part."""
        return BuildStep(label, [self.name, inputs], command, repeats, bool(self.kinds))


def last_line(error: BuildError) -> str:
    """Return what a command said last."""
    lines = [line for line in str(error.given or "").splitlines() if line.strip()]
    return lines[-1].strip() if lines else error.text
