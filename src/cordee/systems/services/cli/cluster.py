"""What `cordee service deploy|rollback|stop` do on Kubernetes, and the options of its places."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import cluster_name, duration

if TYPE_CHECKING:
    from cordee.job.profile import KubernetesSite
    from cordee.systems.services.blueprint import LoadedBlueprint
    from cordee.systems.services.kubernetes.release import ObjectChange, Release

SCHEMA = "cordee.service-release/1"
_SHOWN = 120

F = TypeVar("F", bound=Callable[..., Any])


def place_options(function: F) -> F:
    """Add what `KubernetesPlace` has: where a service is on Kubernetes, and for whom."""
    for option in reversed(
        (
            click.option("--namespace", default="", help="Its namespace (default: the service's name)."),
            click.option(
                "--project", default="", help="The group that may see the namespace (default: the blueprint's)."
            ),
            click.option(
                "--ingress", default="", metavar="HOST", help="Publish its first HTTP port under this name, by TLS."
            ),
            click.option("--on-gpu-nodes", is_flag=True, help="Let it run on nodes with GPUs although it needs none."),
            click.option(
                "--load-balancer", is_flag=True, help="Give ports that speak no HTTP an address outside of the cluster."
            ),
        )
    ):
        function = option(function)
    return function


def cluster_options(function: F) -> F:
    """Add which cluster, and whether others' fields are taken over."""
    function = click.option(
        "--force-conflicts", "force", is_flag=True, help="Take over fields on Kubernetes that somebody else has set."
    )(function)
    return click.option("--context", default="", help="Of the kubeconfig (default: the current one).")(function)


def site_of(cluster: str | None) -> KubernetesSite:
    """Return what the profile of a cluster says of the centre's Kubernetes.

    Raises:
        UsageError: no cluster has this name.
        DocumentError: the profile is wrong there.
    """
    from cordee.job.cluster import read_tables

    return read_tables(cluster_name(cluster), ["kubernetes"]).kubernetes


def require_none(options: dict[str, Any]) -> None:
    """Raise UsageError where options of Kubernetes are given for another target."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if given:
        raise UsageError("these options are of Kubernetes", given=given, next="leave them out, or --target kubernetes")


def _release(service: str, namespace: str, context: str) -> Release:
    from cordee.systems.services.kubernetes.kubectl import Kubectl
    from cordee.systems.services.kubernetes.release import Release

    return Release(Kubectl(context), service, namespace)


def apply_release(
    loaded: LoadedBlueprint,
    parameters: dict[str, str],
    cluster: str | None,
    options: dict[str, Any],
    others: tuple[Any, ...],
    wait: str,
    as_json: bool,
) -> None:
    """Apply a service's manifests, or only show what that would change."""
    from cordee.systems.services.kubernetes.lint import manifest_findings
    from cordee.systems.services.kubernetes.manifests import manifests, secret_manifests
    from cordee.systems.services.kubernetes.part import place_at

    if any(others):
        text = "names, models, replicas, ports, idle and times are of the other targets"
        raise UsageError(
            text, given=[one for one in others if one], next="leave them out; a blueprint of its own has its name"
        )
    wait_s = duration(wait, "--wait")
    context, dry, force = (options.pop(key) for key in ("context", "dry_run", "force"))
    place = place_at(site_of(cluster), cluster_name(cluster), loaded.blueprint.name, options)
    documents = manifests(loaded, parameters, place)
    if not as_json:
        print_findings([one for one in manifest_findings(documents) if one.severity == "warn"])
    name = loaded.blueprint.name
    release = _release(name, place.namespace, context)
    if dry:
        _show(name, release.changes(documents, force), False, as_json)
        return
    changes = release.apply(documents, force, secret_manifests(loaded, parameters, place))
    if wait_s:
        release.wait(wait_s, lambda text: click.echo(f"cordee: {text}", err=True))
    _show(name, changes, True, as_json)


def roll_back_release(service: str, namespace: str, number: int | None, options: dict[str, Any], as_json: bool) -> None:
    """Apply an earlier release again."""
    release = _release(service, namespace, options["context"])
    _show(service, release.roll_back(number, options["force"]), True, as_json)


def remove_release(service: str, namespace: str, context: str, whole: bool, as_json: bool) -> None:
    """Delete a release; with its namespace, its data, too, where that is asked for."""
    _show(service, _release(service, namespace, context).remove(whole), True, as_json)


def release_status(service: str, namespace: str, context: str) -> dict[str, Any]:
    """Return how a release is, as `cordee service status` has it."""
    waits = _release(service, namespace, context).waiting()
    about = {"name": service, "target": "kubernetes", "cluster": context, "namespace": namespace, "endpoints": []}
    why = "; ".join(waits) or "the newest pods of its Deployments are ready"
    return {**about, "state": "unready" if waits else "ready", "ready": not waits, "why": why}


def release_logs(service: str, namespace: str, context: str, most: int | None) -> list[str]:
    """Return what the pod of a service has printed, without keys."""
    from cordee.core.secrets import OutputMask
    from cordee.runs.log_tails import plain
    from cordee.systems.services.kubernetes.kubectl import Kubectl

    mask = OutputMask()
    return [plain(mask.line(line.encode()).decode()) for line in Kubectl(context).logs(service, namespace, most)]


def _show(service: str, changes: list[ObjectChange], applied: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {"schema": SCHEMA, "service": service, "applied": applied, "changes": [one.document() for one in changes]}
        )
        return
    for one in changes:
        if one.what != "same":
            click.echo(f"{one.what:8}{one.kind} {one.name}")
        for path, now, then in one.fields:
            click.echo(f"{'':8}{path}: {_short(now)} -> {_short(then)}")
    same = sum(one.what == "same" for one in changes)
    click.echo(f"{same} objects are as they should be" if same else "nothing was there")


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + " ..."
