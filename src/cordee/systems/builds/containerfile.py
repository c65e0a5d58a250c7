"""Containerfiles, built by whoever understands them: buildah or podman; what comes of it is an image like others."""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from cordee.core.documents.files import read_text
from cordee.machine.images.oci import open_image
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.lock import DIGEST, BuildPackage
from cordee.systems.builds.recipe import LABEL, LoadedRecipe

_NAMES = ("buildah", "podman")
# What stands between these belongs to the instruction before it.
_HERE_DOCUMENT = re.compile(r"""(?:^|\s)\d*<<-?(["']?)([A-Za-z_]\w*)\1(?=\s|$)""")
_FROM = re.compile(r"^(\s*FROM\s+(?:--\S+\s+)*)(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_ARGUMENT = re.compile(r"""\b(\w+)=("[^"]*"|'[^']*'|\S*)""")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")
# Images of these are where they are, and have no name with a digest in it.
_PLACES = ("oci:", "oci-archive:", "docker-archive:", "dir:", "containers-storage:")


def base_images(text: str) -> list[str]:
    """Return the images that the stages of a Containerfile begin with, each once, arguments put in.

    Raises:
        BuildError: one names an argument that has no value.
    """
    stages, found = {"scratch"}, list[str]()
    for _, match, image in _lines(text):
        if match:
            if image.lower() not in stages:
                found.append(image)
            stages.add((match[3] or "").lower())
    return list(dict.fromkeys(found))


def _lines(text: str) -> Iterator[tuple[str, re.Match[str] | None, str]]:
    """Yield each instruction; where a stage begins, what matches, and the image with the arguments that stand before the first stage."""
    known: dict[str, str] = {}
    began = False
    for lines, joined in _instructions(text.splitlines()):
        match = _FROM.match(joined)
        began = began or match is not None
        if not began and joined.strip().upper().startswith("ARG "):
            for each in _ARGUMENT.finditer(joined):
                known[each[1]] = _put_in(each[2].strip("\"'"), known)
        yield "\n".join(lines), match, _put_in(match[2], known) if match else ""


def _instructions(lines: list[str]) -> Iterator[tuple[list[str], str]]:
    """Yield the lines of each instruction, those of its here-documents too, and itself on one line; a comment counts as one."""
    at = 0
    while at < len(lines):
        first, parts, goes_on = at, list[str](), True
        while goes_on and at < len(lines):
            line = lines[at].strip()
            at += 1
            if line and not line.startswith("#"):
                goes_on = line.endswith("\\")
                parts.append(line.removesuffix("\\").strip())
            elif not parts:
                break
        joined = " ".join(parts)
        for found in _HERE_DOCUMENT.finditer(joined):
            ends = [index for index in range(at, len(lines)) if lines[index].strip("\t") == found[2]]
            at = ends[0] + 1 if ends else at
        yield lines[first:at], joined


def _put_in(text: str, known: dict[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        given = known.get(name) or _put_in(found[3] or "", known)
        if not given:
            raise BuildError(
                f"the Containerfile names an argument that has no value: {name}",
                given=text,
                allowed=f"ARG {name}=VALUE before the first FROM; nothing is given to it from outside",
                next="give it a value there, or name the image",
            )
        return given

    return _VARIABLE.sub(value, text)


def locked_bases(text: str, folder: Path) -> list[BuildPackage]:
    """Return the base images of a Containerfile with the digests that they have now.

    Args:
        text: of the Containerfile.
        folder: that relative paths of images begin in.

    Raises:
        BuildError: skopeo is not installed, or one is not to be had.
    """
    program = shutil.which("skopeo")
    images = base_images(text)
    if images and program is None:
        raise BuildError("base images are looked up by skopeo, which is not installed", next="install skopeo")
    return [_locked(str(program), image, folder) for image in images]


def _locked(program: str, image: str, folder: Path) -> BuildPackage:
    at = image if image.startswith(_PLACES) else f"docker://{image}"
    if image.startswith("localhost/"):
        at = f"containers-storage:{image}"
    words = [program, "inspect", "--no-tags", "--format", "{{.Digest}}", at]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=folder)
    digest = done.stdout.strip()
    if done.returncode or not DIGEST.fullmatch(digest):
        said = (done.stderr.strip() or digest)[-500:]
        raise BuildError(f"the base image {image} cannot be looked up", given=said, next="correct FROM, or log in")
    return BuildPackage("image", image, _tag(image)[1], digest, "image", 0)


def with_locked_bases(text: str, bases: list[BuildPackage], folder: Path) -> str:
    """Return a Containerfile whose base images are named by their digests.

    Raises:
        BuildError: one that lies on this machine is another one now.
    """
    by_name, lines = {base.name: base for base in bases}, []
    for line, match, image in _lines(text):
        base = by_name.get(image)
        if match and base and base.name.startswith((*_PLACES, "localhost/")):
            now = locked_bases(f"FROM {image}", folder)[0].hash
            if now != base.hash:
                raise BuildError(
                    "the base image is another one than was locked",
                    given=f"{base.name} is {now} now",
                    allowed=base.hash,
                    next="bring the locked one back, or take what is there now: cordee env lock",
                )
        elif match and base:
            line = f"{match[1]}{_tag(base.name)[0]}@{base.hash}" + (f" AS {match[3]}" if match[3] else "")
        lines.append(line)
    return "\n".join(lines) + "\n"


def _tag(image: str) -> tuple[str, str]:
    """Return an image's name without tag and digest, and its tag."""
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return f"{folder}{slash}{last}", tag or "latest"


def containerfile_layout(
    loaded: LoadedRecipe,
    path: Path,
    work: Path,
    bases: list[BuildPackage],
    epoch: int,
    offline: bool,
    say: Callable[[str], None],
) -> tuple[Path, str]:
    """Build a Containerfile and return the image's OCI layout in a folder of `work`, and its digest.

    Args:
        loaded: its recipe; COPY takes from the EDF's folder.
        path: the Containerfile.
        work: an empty folder.
        bases: its base images as they are locked.
        epoch: seconds, the time of everything in it.
        offline: nothing may be fetched.

    Raises:
        BuildError: no builder is installed, or it failed.
    """
    if offline:
        raise BuildError(
            "what the lines of a Containerfile reach cannot be shut off: they reach the network as they like",
            given=f"--offline with {path}",
            allowed="a recipe of from, apt, pip, copy and commands",
        )
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        raise BuildError(
            "a Containerfile is built by buildah or podman, and neither is installed",
            given=str(path),
            allowed="a recipe of from, apt, pip, copy and commands, which needs neither",
            next="install buildah",
        )
    layout, file, ignored = (work / name for name in ("layout", "Containerfile", "ignored"))
    name = f"localhost/cordee-{secrets.token_hex(8)}"
    file.write_text(with_locked_bases(read_text(path, "a Containerfile"), bases, loaded.folder))
    ignored.write_text(_ignored(loaded, path))
    say(f"{program} build -f {path}")
    isolation = ["--isolation=chroot"] if program.endswith("buildah") else []
    # A base that was built here has a label of its own recipe.
    told = ["--label", f"{LABEL}=sha256:{loaded.digest}", "--ignorefile", str(ignored)]
    words = ["build", *isolation, *told, "--timestamp", str(epoch), "-t", name, "-f", str(file)]
    _run([program, *words, str(loaded.folder)], path, loaded.folder)
    push = ["push", "--disable-compression"] if program.endswith("buildah") else ["push"]
    try:
        _run([program, *push, name, f"oci:{layout}"], path, loaded.folder)
    finally:
        # Under other names it stays; podman's steps stay, too, for the next build.
        kept = ["--no-prune"] if program.endswith("podman") else []
        subprocess.run([program, "rmi", *kept, name], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return layout, open_image(layout).digest


def _ignored(loaded: LoadedRecipe, path: Path) -> str:
    """Return what COPY leaves out: what the person says, and what a build writes, with which no image would be made twice."""
    beside = [path.with_name(f"{path.name}.{kind}ignore") for kind in ("container", "docker")]
    files = [*beside, loaded.folder / ".containerignore", loaded.folder / ".dockerignore"]
    said = next((read_text(each, "a list of what is left out") for each in files if each.is_file()), "")
    written = [each.name for each in loaded.written() if each.parent == loaded.folder.resolve()]
    return "\n".join([said, *(re.sub(r"([*?\[\]\\])", r"\\\1", f"/{name}") for name in written), ""])


def _run(command: list[str], path: Path, folder: Path) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise BuildError(
            f"{path.name}: {Path(command[0]).name} failed with {done.returncode}",
            given="\n" + said,
            next=f"try it by hand: {shlex.join([command[0], 'build', '-f', str(path), str(folder)])}",
        )
