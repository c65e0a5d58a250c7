"""The packages that a job will run with: which environment that is, whether its PyTorch fits the nodes, and what the project asks for."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.words import counted
from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan
from cordee.systems.scan.node.verdict import FileVerdict, Sight, worst
from cordee.systems.scan.packages.installed import InstalledEnvironment, environment_at, installed_packages
from cordee.systems.scan.packages.judge import PackageJudge
from cordee.systems.scan.packages.site import judge_of
from cordee.systems.scan.packages.startup import startup_sights
from cordee.systems.scan.policy import ScanPolicy
from cordee.systems.scan.rules import RULES

_TORCH_RULES = ("package-torch-cpu", "package-torch-driver")
_VERSION_BYTES = 1 << 16
_ACTIVATED = re.compile(r"(?:^|[;&\s])(?:source|\.)\s+[\"']?(?P<path>[^\s\"';&]+)/bin/activate\b")
_SAID = re.compile(r"^(?P<key>__version__|cuda|hip)\b[^=\n]*=\s*(?:'(?P<value>[^']*)'|(?P<none>None))", re.MULTILINE)
# The oldest driver of each CUDA: any driver from there on runs all builds of that major version (CUDA's release notes, table 2).
_OLDEST_DRIVERS = {11: (450, 80), 12: (525, 60), 13: (580, 65)}


class TorchBuild(NamedTuple):
    """What an installed PyTorch was built for.

    Attributes:
        version: such as `2.4.0+cpu`.
        cuda: such as `12.4`; empty: not for CUDA.
        rocm: whether it was built for ROCm.
    """

    version: str
    cuda: str
    rocm: bool


def torch_build(text: str) -> TorchBuild | None:
    """Return what a PyTorch was built for, by its `version.py`; None: it does not say."""
    said = {one["key"]: one["value"] for one in _SAID.finditer(text)}
    if "__version__" not in said or "cuda" not in said:
        return None
    return TorchBuild(said["__version__"] or "", said["cuda"] or "", bool(said.get("hip")))


def torch_sights(build: TorchBuild, gpu_driver: str | None) -> Iterator[Sight]:
    """Yield why a PyTorch cannot use the GPUs of the nodes.

    Args:
        build: that will be used.
        gpu_driver: the version of NVIDIA's driver there; None: nobody knows.
    """
    if not build.cuda and not build.rocm:
        said = f"the job asks for GPUs, and its PyTorch ({build.version}) was built without them"
        yield Sight("package-torch-cpu", "warn", said)
    needed = _OLDEST_DRIVERS.get(int(build.cuda.partition(".")[0]) if build.cuda[:1].isdigit() else 0)
    numbers = re.match(r"(\d+)(?:\.(\d+))?", gpu_driver or "")
    if needed and numbers and (int(numbers[1]), int(numbers[2] or 0)) < needed:
        said = (
            f"its PyTorch ({build.version}) was built for CUDA {build.cuda}, which needs a driver from {needed[0]}.{needed[1]} on; "
            f"the nodes have {gpu_driver}"
        )
        yield Sight("package-torch-driver", "warn", said)


def environment_of(plan: Plan) -> InstalledEnvironment | None:
    """Return the environment of Python that a job's command will find, where it is one on this machine's disks."""
    tasks = plan.step.tasks
    for line in reversed(tasks.setup):
        activated = _ACTIVATED.search(line)
        if activated and "$" not in activated["path"]:
            return environment_at(os.path.expanduser(activated["path"]))
    path = os.pathsep.join([*tasks.path_prepend, tasks.env.get("PATH", os.environ.get("PATH", ""))])
    program = shutil.which(tasks.argv[0], path=path) if tasks.argv else None
    return environment_at(str(Path(program).absolute().parent.parent)) if program else None


def job_findings(loaded: LoadedJob, plan: Plan, policy: ScanPolicy) -> Iterator[Finding]:
    """Yield what is to be said of the environment that a job will use, and of the files by which its project asks for packages.

    What a file asks for happens when somebody installs it, not in the job: it stops a job only where a site wants all to be known.
    """
    try:
        judge = judge_of(loaded.cluster.scan)
    except CordeeError as error:
        yield Finding(error.text, "warn", "scan-packages", given=error.given, next=error.next)
        return
    driver, inside = loaded.cluster.scan.gpu_driver, list(_images(plan))
    environment = environment_of(plan) if plan.step.environment is None else None
    if environment is not None:
        yield from _of_environment(environment_verdict(environment, plan, driver, judge), policy)
    if inside:
        yield from _of_images(inside, plan, driver, judge, policy)
    for name in sorted(os.listdir(loaded.folder)):
        path = str(loaded.folder / name)
        if os.path.isfile(path):
            judge.file(path)
    for verdict in judge.result().verdicts:
        for sight in verdict.sights if verdict.path not in inside else ():
            if sight.severity != "warn" and not sight.rule.startswith("advisories"):
                yield _finding(verdict.path, sight, "error" if policy.word == "block" else "warn")


def environment_verdict(
    environment: InstalledEnvironment, plan: Plan, gpu_driver: str | None, judge: PackageJudge
) -> FileVerdict:
    """Return what is to be said of the environment of a job; of its packages only the names and versions are read."""
    sights = [
        *startup_sights(environment),
        *judge.installed(installed_packages(environment, metadata=False)),
    ]
    for site in environment.sites if plan.step.request.gpus_per_node else ():
        text = environment.folder.read(f"{site}/torch/version.py".lstrip("/"), _VERSION_BYTES)
        build = torch_build(text.decode("utf-8", "replace")) if text is not None else None
        sights += torch_sights(build, gpu_driver) if build else ()
    return FileVerdict(
        environment.path, worst(sight.severity for sight in sights), ("environment",), tuple(dict.fromkeys(sights))
    )


def _images(plan: Plan) -> Iterator[str]:
    """Yield the images that a job runs in, those that are mounted over others first: packed environments, then the root."""
    document = plan.step.environment.document if plan.step.environment is not None else {}
    for mount in document.get("mounts") or ():
        if "sqsh" in mount["flags"]:
            yield mount["source"]
    root = document.get("root") or {}
    if root.get("kind") in ("squashfs", "folder"):
        yield root["path"]


def _of_images(
    paths: Iterable[str], plan: Plan, gpu_driver: str | None, judge: PackageJudge, policy: ScanPolicy
) -> Iterator[Finding]:
    from cordee.systems.scan.images.scan import image_form, look_into  # deferred: most jobs have no image

    is_told = not plan.step.request.gpus_per_node
    for path in paths:
        form = image_form(path)
        if form is None:
            continue
        look = look_into(path, form, allowed=policy.allowed)
        sights = list(judge.found(path, ("image", form), look.facts.packages, look.facts.sights).sights)
        build = torch_build(look.facts.torch)
        if build is not None and not is_told:
            is_told = True
            sights += torch_sights(build, gpu_driver)
        yield from _of_environment(FileVerdict(path, worst(one.severity for one in sights), (), tuple(sights)), policy)


def _of_environment(verdict: FileVerdict, policy: ScanPolicy) -> Iterator[Finding]:
    known = [sight for sight in verdict.sights if sight.rule == "package-advisory"]
    for sight in verdict.sights:
        if sight.severity != "warn" or sight.rule in _TORCH_RULES:
            yield _finding(verdict.path, sight, policy.severity(verdict._replace(verdict=sight.severity)))
    if known:
        said = f"of {counted(len(known), 'package')} of the environment vulnerabilities are known"
        yield Finding(said, "info", "scan-package-advisory", file=verdict.path, next=f"cordee scan {verdict.path}")


def _finding(path: str, sight: Sight, severity: str) -> Finding:
    where = f" ({sight.where})" if sight.where else ""
    return Finding(f"{sight.text}{where}", severity, f"scan-{sight.rule}", file=path, next=RULES[sight.rule].next)
