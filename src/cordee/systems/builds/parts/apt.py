"""`apt`: packages of Debian and Ubuntu, resolved and installed by the image's own apt."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from cordee.systems.builds.bench import INSIDE, BuildStep, StepCommand
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.host_settings import apt_lines, network_variables, without_login
from cordee.systems.builds.lock import BuildPackage
from cordee.systems.builds.parts._base import RecipePart, last_line

_SETTINGS = [
    'APT::Sandbox::User "root";',
    'APT::Install-Recommends "false";',
    'APT::Get::Assume-Yes "true";',
    'Acquire::Languages "none";',
    'Acquire::Retries "3";',
    f'Dir::State::lists "{INSIDE}/lists";',
    f'Dir::Cache::archives "{INSIDE}/archives";',
    'Dir::Cache::pkgcache "";',
    'Dir::Cache::srcpkgcache "";',
    'DPkg::Options { "--force-unsafe-io"; "--force-confdef"; "--force-confold"; };',
    'DPkg::Use-Pty "false";',
]
_RESOLVE = """set -e
mkdir -p lists/partial archives/partial
apt-get -q update
apt-get -qq install --print-uris "$@" > uris
apt-get -q install --download-only "$@"
"""
_FETCH = """set -e
while read -r uri file hash; do /usr/lib/apt/apt-helper download-file "$uri" "archives/$file" "SHA256:$hash"; done < wanted
"""
# Services are not started while an image is made: packages ask this file (invoke-rc.d(8)).
_INSTALL = f"""set -e
mkdir -p {INSIDE}/lists/partial {INSIDE}/archives/partial
policy=/usr/sbin/policy-rc.d
if [ -e "$policy" ]; then policy=; else printf '#!/bin/sh\\nexit 101\\n' > "$policy"; chmod 755 "$policy"; fi
apt-get -q install -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null {INSIDE}/debs/*.deb
if [ -n "$policy" ]; then rm "$policy"; fi
"""


class AptPart(RecipePart):
    """Packages of the base image's distribution."""

    name = "apt"
    kinds = ("deb",)

    def wanted(self) -> bool:
        """Return whether there are any."""
        return bool(self.recipe.apt)

    def inputs(self) -> object:
        """Return what decides which packages they come to."""
        return [self.bench.base.digest, list(self.recipe.apt)]

    def resolve(self) -> list[BuildPackage]:
        """Return the packages that are missing in the image, fetched."""
        self.bench.say(f"apt: resolving {len(self.recipe.apt)} packages")
        with self.bench.trial("apt: resolving") as (files, run):
            try:
                run(self._command(files, _RESOLVE, list(self.recipe.apt)))
            except BuildError as error:
                raise self._refused(error) from None
            return [self._locked(line, files / "archives") for line in (files / "uris").read_text().splitlines()]

    def _locked(self, line: str, folder: Path) -> BuildPackage:
        """Return one line of `apt-get --print-uris`: 'URI' FILE BYTES HASH."""
        uri, file, _, given = (*line.split(), "")[:4]
        name, version = (unquote(part) for part in file.removesuffix(".deb").split("_")[:2])
        digest, size = self.bench.cache.keep_blob(folder / file)
        package = BuildPackage("deb", name, version, digest, file, size, without_login(uri.strip("'")))
        kind, _, digits = given.partition(":")
        if kind == "SHA256" and digest != f"sha256:{digits}":
            raise self.other(package, f"sha256:{digits}")
        return package

    def fetch(self, missing: list[BuildPackage], folder: Path) -> None:
        """Fetch locked packages by apt's own helper."""
        with self.bench.trial("apt: fetching") as (files, run):
            lines = [f"{each.url} {each.file} {each.hash.partition(':')[2]}\n" for each in missing]
            (files / "wanted").write_text("".join(lines))
            (files / "archives").mkdir()
            try:
                run(self._command(files, _FETCH, []))
            except BuildError as error:
                package = next(each for each in missing if not (files / "archives" / each.file).is_file())
                if "Hash Sum mismatch" in str(error.given):
                    raise self.other(package, "a file with another hash") from None
                raise self.gone(package, last_line(error)) from None
            for each in missing:
                (files / "archives" / each.file).rename(folder / each.file)

    def steps(self) -> list[BuildStep]:
        """Return the one step that installs all of them."""
        packages = self.ensure()
        if not packages:
            return []
        hashes = sorted(package.hash for package in packages)
        return [self.step(f"apt: {len(packages)} packages", [hashes, _INSTALL, _SETTINGS], self._installing)]

    def _installing(self, files: Path) -> StepCommand:
        debs = self.linked(self.bench.lock.of("deb"), files / "debs")
        settings = files / "apt.conf"
        settings.write_text("\n".join(_SETTINGS) + "\n")
        return StepCommand(
            ["/bin/sh", "-c", _INSTALL],
            [(debs, f"{INSIDE}/debs", False), (settings, f"{INSIDE}/apt.conf", False)],
            {"APT_CONFIG": f"{INSIDE}/apt.conf"},
        )

    def _command(self, files: Path, script: str, words: list[str]) -> StepCommand:
        variables, mounts = network_variables()
        (files / "apt.conf").write_text("\n".join([*_SETTINGS, *apt_lines()]) + "\n")
        env = {**variables, "APT_CONFIG": f"{INSIDE}/apt.conf"}
        return StepCommand(["/bin/sh", "-c", script, "sh", *words], [*mounts, (files, INSIDE, True)], env, True, INSIDE)

    def _refused(self, error: BuildError) -> BuildError:
        said = str(error.given)
        if "apt-get: not found" in said:
            return BuildError(
                "the base image has no apt-get",
                given=self.recipe.from_,
                next="take an image of Debian or Ubuntu as from",
            )
        lines = [line for line in said.splitlines() if line.startswith("E: ")] or [last_line(error)]
        return BuildError(
            f"apt cannot resolve the packages: {lines[0].removeprefix('E: ')}",
            given=", ".join(self.recipe.apt),
            next="look at the names, and at the sources in /etc/apt of the base image",
        )
