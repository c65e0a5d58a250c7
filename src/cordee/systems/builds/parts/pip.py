"""`pip`: packages of a Python index, resolved by pip or uv and installed by a pip that is locked like them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cordee.core.documents.files import read_text
from cordee.systems.builds.bench import INSIDE, BuildStep, StepCommand
from cordee.systems.builds.cache import file_digest
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.host_settings import Mount, host_pip, network_variables, pip_variables
from cordee.systems.builds.lock import BuildPackage
from cordee.systems.builds.parts._base import RecipePart, last_line
from cordee.systems.builds.recipe import digest_of

_LARGEST_LIST = 32 << 20  # a lock has hashes of every wheel
_QUIET = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_NO_INPUT": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}
# The image's pip, else this machine's, fetches the one that the lock names.
_TOOL = f"""set -e
"$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' > version
mkdir -p tool wheels
"$1" -m pip --version > /dev/null 2>&1 || export PYTHONPATH={INSIDE}/host-pip
exec "$1" -m pip download -q --no-deps --only-binary :all: -d tool pip
"""
_DOWNLOAD = f"""set -e
export PYTHONPATH=$(echo {INSIDE}/tool/pip-*.whl)
python=$1; shift
exec "$python" -m pip download -q --only-binary :all: -d wheels "$@"
"""
_INSTALL = f"""set -e
export PYTHONPATH=$(echo {INSIDE}/tool/pip-*.whl)
"$1" -m pip install -q --no-index --find-links {INSIDE}/wheels --no-deps --require-hashes --no-compile \
  --break-system-packages -r {INSIDE}/pinned.txt
unset PYTHONPATH
exec "$1" -B {INSIDE}/compile.py
"""
# Byte code by content and not by time; each worker has its files in the same order everywhere, and so the same history.
COMPILE = """import os, py_compile, sysconfig
roots = sorted({sysconfig.get_path(name) for name in ("purelib", "platlib")})
mode = getattr(py_compile, "PycInvalidationMode", None)
found = []
for root in roots:
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != "__pycache__")
        found += [os.path.join(folder, name) for name in sorted(files) if name.endswith(".py")]
children = []
for worker in range(4):
    child = os.fork()
    if not child:
        for path in found[worker::4]:
            target = __import__("importlib.util").util.cache_from_source(path)
            try:
                if not os.path.exists(target):
                    py_compile.compile(path, target, doraise=True, invalidation_mode=mode.UNCHECKED_HASH)
            except Exception:
                pass  # it is not meant for this Python
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""
_INDEX_WORDS = {"-i": "--index-url", "-f": "--find-links"}
_INDEX_LINE = re.compile(
    r"^\s*(-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host)[\s=]\s*(\S+)", re.MULTILINE
)
# Folders, files and repositories: what they are tomorrow, no lock can say.
_NOT_LOCKED = re.compile(
    r"\s*(-e\b|--editable\b|-r\b|--requirement\b|-c\b|--constraint\b|(?:-f|--find-links)[\s=]+(?!\w+://)|[./~]"
    r"|[^#]*\b(git|hg|svn|bzr)\+|[^#]*@\s*file:)"
)
_HASHED = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)[^#\n]*--hash", re.MULTILINE)
_HASH = re.compile(r"--hash[\s=]+sha256:([0-9a-f]{64})")
_UNREACHABLE = re.compile(
    r"Failed to establish a new connection|Max retries exceeded|Connection refused|Name or service not known"
)
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl\Z")


class PipPackages(RecipePart):
    """Packages of a Python index, for the Python of the image."""

    name = "pip"
    kinds = ("tool", "pypi")

    def wanted(self) -> bool:
        """Return whether there are any."""
        return bool(self.recipe.pip.packages or self.recipe.pip.requirements)

    def inputs(self) -> object:
        """Return what decides which packages they come to: the texts, and the Python that they are for."""
        pip = self.recipe.pip
        below = [self.bench.base.digest, sorted(package.hash for package in self.bench.lock.of("deb", "conda"))]
        found: list[object] = [*below, list(pip.packages), self._texts(), pip.resolver, pip.python]
        if pip.indexes:
            wheels = [path for folder in self._folders().values() for path in sorted(folder.glob("*.whl"))]
            found.append([list(pip.indexes), [f"{path.name} {file_digest(path)}" for path in wheels]])
        return found

    def _folders(self) -> dict[str, Path]:
        """Return the indexes that are folders of this machine, by where commands find them."""
        found = {}
        for number, name in enumerate(self.recipe.pip.indexes):
            if name.startswith("."):
                folder = self.bench.loaded.file(name, ("pip", "indexes", number))
                found[f"{INSIDE}/index-{number}"] = folder.resolve()
        return found

    def _indexes(self, *, inside: bool) -> list[str]:
        """Return the words that name the recipe's indexes to pip in a command, or to uv on this machine."""
        words = [f"--extra-index-url={name}" for name in self.recipe.pip.indexes if not name.startswith(".")]
        words += [f"--find-links={name if inside else path}" for name, path in self._folders().items()]
        if inside:  # a locked file is fetched, and uv's choice downloaded, without the list of requirements
            words += [
                f"{_INDEX_WORDS.get(word, word)}={url}"
                for word, url in _INDEX_LINE.findall(self._texts().get("requirements", ""))
            ]
        return words

    def _texts(self) -> dict[str, str]:
        pip, found = self.recipe.pip, {}
        for key, name in (("requirements", pip.requirements), ("constraints", pip.constraints)):
            if name:
                path = self.bench.loaded.file(name, ("pip", key))
                found[key] = read_text(path, f"a list of {key}", _LARGEST_LIST)
                for number, line in enumerate(found[key].splitlines(), 1):
                    if _NOT_LOCKED.match(line):
                        raise _no_requirement(path, number, line)
        return found

    def resolve(self) -> list[BuildPackage]:
        """Return the packages, fetched: the resolver's choice, as wheels that fit the image's Python."""
        self.bench.say("pip: resolving")
        with self.bench.trial("pip: resolving") as (files, run):
            try:
                run(self._command(files, _TOOL, []))
                words = [*self._indexes(inside=True), "-r", f"{INSIDE}/requirements"]
                texts = self._texts()
                (files / "requirements").write_text(
                    "\n".join([*self.recipe.pip.packages, texts.get("requirements", "")])
                )
                if "constraints" in texts:
                    (files / "constraints").write_text(texts["constraints"])
                    words += ["-c", f"{INSIDE}/constraints"]
                if self.recipe.pip.resolver == "uv":
                    words = [*self._indexes(inside=True), "--no-deps", "-r", f"{INSIDE}/{self._by_uv(files)}"]
                run(self._command(files, _DOWNLOAD, words))
            except BuildError as error:
                raise self._refused(error) from None
            tools = [self._locked("tool", path) for path in sorted((files / "tool").iterdir())]
            packages = [self._locked("pypi", path) for path in sorted((files / "wheels").iterdir())]
            self._refuse_other_hashes(packages)
            return tools + packages

    def _refuse_other_hashes(self, packages: list[BuildPackage]) -> None:
        """Hold what was fetched against the hashes of the list of requirements, which uv does not look at."""
        lines = self._texts().get("requirements", "").replace("\\\n", " ").splitlines()
        allowed = {_plain(found[1]): _HASH.findall(line) for line in lines if (found := _HASHED.match(line))}
        for package in packages:
            digests = allowed.get(_plain(package.name))
            if digests is not None and package.hash.removeprefix("sha256:") not in digests:
                raise BuildError(
                    f"the index gives another file for {package.name} {package.version} than the requirements allow",
                    given=package.hash,
                    allowed=[f"sha256:{digest}" for digest in digests] or "hashes of sha256",
                    next="find out who changed it before you trust it",
                )

    def _by_uv(self, files: Path) -> str:
        """Write the versions that uv chooses for the image's Python; return the file's name."""
        program = shutil.which("uv", path=f"{os.environ.get('PATH', '')}:{os.path.dirname(sys.executable)}")
        if program is None:
            raise BuildError(
                "uv is not installed on this machine", given='resolver = "uv"', next="pip install uv, or take pip"
            )
        told, _ = pip_variables()
        env = {**os.environ, "UV_NO_PROGRESS": "1"}
        for key, name in (
            ("INDEX_URL", "UV_DEFAULT_INDEX"),
            ("EXTRA_INDEX_URL", "UV_INDEX"),
            ("FIND_LINKS", "UV_FIND_LINKS"),
        ):
            if f"PIP_{key}" in told:
                separator = "," if key == "FIND_LINKS" else " "
                env.setdefault(name, separator.join(told[f"PIP_{key}"].split()))
        words = ["pip", "compile", "-q", "--no-annotate", "--no-header", "--only-binary", ":all:"]
        words += ["--index-strategy", "unsafe-best-match", "--python-version", (files / "version").read_text().strip()]
        words += self._indexes(inside=False)
        words += ["--no-index"] if told.get("PIP_NO_INDEX", "0").lower() not in ("0", "no", "false", "off") else []
        for limits in (files / "constraints", Path(told.get("PIP_CONSTRAINT", os.devnull))):
            words += ["-c", str(limits)] if limits.is_file() else []
        done = subprocess.run(
            [program, *words, "-o", str(files / "chosen"), str(files / "requirements")],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = done.stderr.strip()[-2000:]
            hint = "correct names, versions and indexes; only wheels that fit the image's Python are taken"
            raise BuildError("uv cannot resolve the packages", given="\n" + said, next=hint)
        return "chosen"

    def _locked(self, kind: str, path: Path) -> BuildPackage:
        found = _WHEEL.match(path.name)
        if found is None:
            raise BuildError("the index gave what is no wheel", given=path.name, next="name a version that has wheels")
        digest, size = self.bench.cache.keep_blob(path)
        return BuildPackage(kind, found["name"].replace("_", "-"), found["version"], digest, path.name, size)

    def fetch(self, missing: list[BuildPackage], folder: Path) -> None:
        """Fetch locked wheels by name, version and hash, from the index that this machine is told."""
        with self.bench.trial("pip: fetching") as (files, run):
            (files / "tool").mkdir()
            (files / "wheels").mkdir()
            (files / "pinned.txt").write_text(_pinned(missing))
            script = _DOWNLOAD.replace(
                "export PYTHONPATH=", '"$1" -m pip --version > /dev/null 2>&1 || export PYTHONPATH='
            )
            script = script.replace(f"$(echo {INSIDE}/tool/pip-*.whl)", f"{INSIDE}/host-pip")
            indexes = self._indexes(inside=True)
            try:
                run(
                    self._command(
                        files, script, [*indexes, "--no-deps", "--require-hashes", "-r", f"{INSIDE}/pinned.txt"]
                    )
                )
            except BuildError as error:
                raise self._not_given(missing, error) from None
            for path in (files / "wheels").iterdir():
                path.rename(folder / path.name)

    def _not_given(self, missing: list[BuildPackage], error: BuildError) -> BuildError:
        said = str(error.given)
        named = [each for each in missing if each.name.lower().replace("_", "-") in said.lower().replace("_", "-")]
        package = (named or missing)[0]
        got = re.search(r"Got\s+([0-9a-f]{64})", said)
        if got or "DO NOT MATCH THE HASHES" in said:
            return self.other(package, f"sha256:{got.group(1)}" if got else "a file with another hash")
        return self.gone(package, last_line(error))

    def steps(self) -> list[BuildStep]:
        """Return the one step that installs all of them."""
        packages = self.ensure()
        hashes = sorted(package.hash for package in packages)
        count = len(self.bench.lock.of("pypi"))
        inputs = [hashes, self.recipe.pip.python, digest_of([_INSTALL, COMPILE])]
        return [self.step(f"pip: {count} packages", inputs, self._installing)]

    def _installing(self, files: Path) -> StepCommand:
        wheels = self.linked(self.bench.lock.of("pypi"), files / "wheels")
        tool = self.linked(self.bench.lock.of("tool"), files / "tool")
        (files / "pinned.txt").write_text(_pinned(self.bench.lock.of("pypi")))
        (files / "compile.py").write_text(COMPILE)
        mounts = [(files / name, f"{INSIDE}/{name}", False) for name in ("pinned.txt", "compile.py")]
        mounts += [(wheels, f"{INSIDE}/wheels", False), (tool, f"{INSIDE}/tool", False)]
        env = {**_QUIET, "PIP_CONFIG_FILE": "/dev/null"}
        return StepCommand(["/bin/sh", "-c", _INSTALL, "sh", self.recipe.pip.python], mounts, env)

    def _command(self, files: Path, script: str, words: list[str]) -> StepCommand:
        variables, mounts = network_variables()
        told, named = pip_variables()
        folders: list[Mount] = [(path, name, False) for name, path in self._folders().items()]
        return StepCommand(
            ["/bin/sh", "-c", script, "sh", self.recipe.pip.python, *words],
            [(files, INSIDE, True), *host_pip(), *mounts, *named, *folders],
            {**_QUIET, **variables, **told},
            True,
            INSIDE,
        )

    def _refused(self, error: BuildError) -> BuildError:
        said = str(error.given)
        if f"{self.recipe.pip.python}: not found" in said:
            return BuildError(
                "the image has no Python for pip",
                given=self.recipe.pip.python,
                next='add apt = ["python3"], or name another interpreter: [build.pip] python = "..."',
            )
        if error.text.startswith("uv"):
            return error
        lines = [line for line in said.splitlines() if line.startswith("ERROR:")] or [last_line(error)]
        text, hint = lines[-1].removeprefix("ERROR: "), error.next
        if _UNREACHABLE.search(said):
            text, hint = "an index cannot be reached", "look at its address, and at proxies"
        elif "No matching distribution" in said:
            hint = "only wheels that fit the image's Python are taken: name a version that has one"
        return BuildError(f"pip cannot resolve the packages: {text}", given=said.strip(), next=hint)


def _no_requirement(path: Path, number: int, line: str) -> BuildError:
    return BuildError(
        f"{path.name}:{number}: no lock can hold what this line names",
        given=line.strip(),
        allowed="requirements of an index, and lines that name indexes",
        next="take it out (`uv export --no-emit-project`); a package of your own comes as a wheel, its folder named in indexes",
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pinned(packages: list[BuildPackage]) -> str:
    return "".join(f"{each.name}=={each.version} --hash={each.hash}\n" for each in packages)
