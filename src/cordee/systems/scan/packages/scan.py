"""The packages below some paths: asked for by files, installed in environments, or part of images."""

from __future__ import annotations

from collections.abc import Iterable

from cordee.systems.scan.files import Tree
from cordee.systems.scan.images.scan import image_form, look_into
from cordee.systems.scan.node.verdict import FileVerdict
from cordee.systems.scan.packages.judge import PackageJudge, PackageScan
from cordee.systems.scan.packages.site import judge_of, site_of


def scan_packages(tree: Tree, cluster: str, advisories: str | None = None, allowed: Iterable[str] = ()) -> PackageScan:
    """Return what is to be said of the packages of a tree, and of what its images hold.

    Args:
        tree: of files.
        cluster: whose lists of names and snapshot are taken.
        advisories: another snapshot.
        allowed: names in pickles that are known to be harmless.

    Raises:
        UsageError: a list or the snapshot is not there, or is none.
    """
    judge = judge_of(site_of(cluster), advisories)
    for file in tree.files:
        judge.file(file)
    for folder in tree.left_out:
        judge.environment(folder)
    for image in tree.images:
        judge_image(image, judge, allowed)
    return judge.result()


def judge_image(path: str, judge: PackageJudge, allowed: Iterable[str] = ()) -> FileVerdict:
    """Judge what is in an image, and return the verdict."""
    look = look_into(path, image_form(path) or "squashfs", allowed=allowed)
    if not look.confined and look.form != "folder":
        judge.notes.append(
            f"this kernel does not confine the process that looked into {path}: only its memory and time are limited"
        )
    return judge.found(path, ("image", look.form), look.facts.packages, look.facts.sights)
