"""Stages of a site: stores that an image comes into one after the other, when it is what each of them asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from cordee.core.errors import UsageError
from cordee.core.ports.images import ImageWorkshop
from cordee.core.registry import said_of_image
from cordee.core.words import nearest
from cordee.job.profile import ImageStage
from cordee.systems.builds.cache import own_cache
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.made import MadeImage

_NAMESPACE = "cordee-image"
SCANNED, SIGNED = "scanned", "signed"


class Promotion(NamedTuple):
    """An image that was taken to a stage.

    Attributes:
        stage: its name.
        path: of the squashfs file there.
        checked: what was asked for and is so, one line each.
    """

    stage: str
    path: Path
    checked: tuple[str, ...]


def promote(
    made: MadeImage,
    stage: str,
    stages: Mapping[str, ImageStage],
    workshop: ImageWorkshop,
    cluster: str,
    say: Callable[[str], None],
) -> Promotion:
    """Take an image to a stage of the site.

    Raises:
        UsageError: the site has no such stage.
        BuildError: the image is not what the stage asks for.
        CordeeError: the stage's store is full.
    """
    if stage not in stages:
        raise UsageError(
            "the site has no such stage",
            given=stage,
            allowed=sorted(stages) or "none: [environment.stages.NAME] in the cluster's profile names them",
            next=f"did you mean {near}?" if (near := nearest(stage, stages)) else None,
        )
    wanted = stages[stage]
    checked = []
    if wanted.after:
        checked.append(_was_in(made, wanted.after, stages))
    for each in wanted.require:
        say(f"is it {each}?")
        checked.append(_scanned(made, cluster) if each == SCANNED else _signed(made, stage, wanted))
    path = workshop.copy_to(made.hand, made.given.image, Path(os.path.expanduser(wanted.store)), wanted.quota)
    return Promotion(stage, path, tuple(checked))


def _was_in(made: MadeImage, before: str, stages: Mapping[str, ImageStage]) -> str:
    if before not in stages:
        raise UsageError(
            "the stage comes after one that the site does not have",
            given=f'after = "{before}"',
            allowed=sorted(stages),
            next="correct it in [environment.stages] of the cluster's profile",
        )
    place = Path(os.path.expanduser(stages[before].store)) / "images" / made.digest.replace(":", "-")
    if not place.is_dir():
        raise BuildError(
            f"the image is not in the stage {before}, which comes before",
            given=made.digest,
            next=f"cordee env promote {made.given.path} {before}",
        )
    return f"it is in the stage {before}"


def _scanned(made: MadeImage, cluster: str) -> str:
    found = said_of_image(made.hand.path, cluster)
    bad = [finding for finding in found if finding.severity != "info"]
    if bad:
        raise BuildError(
            f"the scan of the image has {len(bad)} findings: {bad[0].text}",
            given=made.digest,
            next=bad[0].next or f"cordee scan {made.hand.path}",
        )
    return "scanned, without a finding"


def signature_path(digest: str) -> Path:
    """Return where the signature of an image of this person is kept."""
    return own_cache().images_folder / f"{digest.replace(':', '-')}.sig"


def sign(digest: str, key: Path) -> Path:
    """Sign an image's digest with a key of OpenSSH, and return the signature's file.

    Raises:
        BuildError: OpenSSH is not here, or cannot use the key.
    """
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "digest"
        text.write_text(digest)
        done = _ssh_keygen(["-Y", "sign", "-n", _NAMESPACE, "-f", str(key), str(text)], b"")
        if done.returncode:
            raise BuildError(
                f"the image cannot be signed: {done.stderr.decode(errors='replace').strip()[-300:]}",
                given=str(key),
                allowed="a private key of OpenSSH, or the public one of a key that your agent has",
                next="ssh-keygen -t ed25519 -f KEY",
            )
        shutil.copyfile(f"{text}.sig", signature_path(digest))
    return signature_path(digest)


def _signed(made: MadeImage, name: str, stage: ImageStage) -> str:
    if not stage.keys:
        raise BuildError(
            "the stage asks for a signature and names no keys",
            given=name,
            next="set keys of the stage to an allowed_signers file",
        )
    signature = signature_path(made.digest)
    if not signature.is_file():
        raise BuildError(
            "the image is not signed", given=made.digest, next=f"cordee env sign {made.given.path} --key KEY"
        )
    keys = os.path.expanduser(stage.keys)
    try:
        Path(keys).read_bytes()
    except OSError as error:
        raise BuildError(
            f"the keys of the stage cannot be read: {error.strerror}",
            given=keys,
            allowed="an allowed_signers file, as ssh-keygen reads them",
            next=f"correct [environment.stages.{name}] keys",
        ) from None
    found = _ssh_keygen(["-Y", "find-principals", "-s", str(signature), "-f", keys], b"")
    who = found.stdout.decode(errors="replace").strip().splitlines()
    said = found.stderr
    for each in who:
        words = ["-Y", "verify", "-n", _NAMESPACE, "-I", each, "-s", str(signature), "-f", keys]
        verified = _ssh_keygen(words, made.digest.encode())
        if verified.returncode == 0:
            return f"signed by {each}"
        said += verified.stderr
    raise BuildError(
        "the image is not signed by a key of the stage",
        given=", ".join(filter(None, (made.digest, str(signature), said.decode(errors="replace").strip()[-300:]))),
        allowed=f"keys in {keys}",
        next="have somebody sign it whose key is there",
    )


def _ssh_keygen(words: list[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise BuildError(
            "signatures are made and verified by ssh-keygen, which is not installed", next="install OpenSSH"
        )
    return subprocess.run([program, *words], input=text, capture_output=True, check=False)
