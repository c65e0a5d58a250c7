"""`cordee service render`."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_findings
from cordee.job.terminal.options import cluster_name
from cordee.systems.services.blueprint import KUBERNETES, TARGETS, LoadedBlueprint, Target
from cordee.systems.services.cli.cluster import place_options, site_of
from cordee.systems.services.cli.deployment import pairs


@click.command("render")
@click.argument("service")
@click.option("--target", type=click.Choice(TARGETS), default=KUBERNETES, show_default=True, help="For what.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the blueprint.")
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose profile counts (default: CORDEE_ON, else local).")
@place_options
@click.option("--secrets", is_flag=True, help="Print new Secrets instead, for `kubectl create -f -`; only into a pipe.")
@click.option(
    "--gitops", metavar="DIR", type=click.Path(path_type=Path), help="Write it into a repository for Argo CD."
)
@click.option("--repo", default="", metavar="URL", help="Where Argo CD finds that repository (default: its origin).")
def render(
    service: str,
    target: Target,
    settings: tuple[str, ...],
    cluster: str | None,
    secrets: bool,
    gitops: Path | None,
    repo: str,
    **options: Any,
) -> None:
    """Print what SERVICE is on a target: manifests for Kubernetes, the job document for the others.

    Services that it comes after are in the same manifests. They refer to Secrets by name and hold no secret; the command that makes them is said on standard
    error. Exit code 2: the target cannot honour it, and nothing is printed.

    \b
    Example:
      cordee service render mlflow --namespace tracking --project climate
      cordee service render mlflow --namespace tracking --project climate --gitops services
    """
    from cordee.systems.services.catalogue import find_blueprint
    from cordee.systems.services.kubernetes.gitops import write_service
    from cordee.systems.services.kubernetes.manifests import manifests, secret_manifests, stored_secrets
    from cordee.systems.services.kubernetes.part import place_at
    from cordee.systems.services.kubernetes.yaml_text import yaml_text

    loaded = find_blueprint(service)
    given = pairs(settings, "--set")
    if target != KUBERNETES:
        if secrets or gitops or any(options.values()):
            raise UsageError(
                "namespaces, projects, policies, repositories and Secrets are of Kubernetes",
                given=target,
                next="leave them out, or choose --target kubernetes",
            )
        click.echo(_job_document(loaded, target, given), nl=False)
        return
    place = place_at(site_of(cluster), cluster_name(cluster), loaded.blueprint.name, options)
    if secrets:
        _require_pipe()
        click.echo(yaml_text(secret_manifests(loaded, given, place)), nl=False)
        return
    documents = manifests(loaded, given, place)
    _require_right(documents)
    if gitops:
        for path in write_service(gitops, loaded, documents, place, repo):
            click.echo(path)
    else:
        click.echo(yaml_text(documents), nl=False)
    if loaded.blueprint.closed:
        click.echo("cordee: Kubernetes does not ask [closed]: that it refuses strangers is for you to see", err=True)
    for one in stored_secrets(loaded):
        click.echo(f"cordee: the namespace must have the Secret {one.replace('/', ', with the key ')}", err=True)
    if secret_manifests(loaded, given, place):
        words = ["cordee", "service", "render", service]
        words += [word for one in settings for word in ("--set", one)]
        words += ["--on", cluster] if cluster else []
        words += ["--namespace", options["namespace"]] if options["namespace"] else []
        words += ["--ingress", place.ingress] if place.ingress else []
        click.echo(f"cordee: its secrets, once: {shlex.join([*words, '--secrets'])} | kubectl create -f -", err=True)


def _require_right(documents: list[dict[str, Any]]) -> None:
    """Raise DocumentError where the lint finds faults; print what it warns of."""
    from cordee.core.documents.faults import document_error
    from cordee.systems.services.kubernetes.lint import manifest_findings

    findings = manifest_findings(documents)
    if any(one.severity == "error" for one in findings):
        raise document_error(findings)
    print_findings(findings)


@click.command("team")
@click.argument("namespace")
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose profile has it (default: CORDEE_ON, else local).")
@click.option(
    "--gitops", metavar="DIR", type=click.Path(path_type=Path), help="Write it into a repository for Argo CD."
)
@click.option("--repo", default="", metavar="URL", help="Where Argo CD finds that repository (default: its origin).")
def team(namespace: str, cluster: str | None, gitops: Path | None, repo: str) -> None:
    """Print the NAMESPACE that services of a team share on Kubernetes, as `[kubernetes.teams]` of the profile has it.

    Who runs the cluster hands it to `kubectl apply --server-side -f -`.

    \b
    Example:
      cordee service team climate --on alps
      cordee service team climate --on alps --gitops services
    """
    from cordee.core.words import did_you_mean
    from cordee.systems.services.kubernetes.gitops import write_team
    from cordee.systems.services.kubernetes.namespace import team_namespace
    from cordee.systems.services.kubernetes.yaml_text import yaml_text

    site = site_of(cluster)
    if namespace not in site.teams:
        known = list(site.teams)
        hint = did_you_mean(namespace, known, f"add [kubernetes.teams.{namespace}], or name another profile by --on")
        raise UsageError("the profile has no such team", given=namespace, allowed=known or "none", next=hint)
    documents = team_namespace(namespace, site.teams[namespace], site.cilium)
    _require_right(documents)
    if gitops:
        for path in write_team(gitops, namespace, site.teams[namespace], documents, repo):
            click.echo(path)
    else:
        click.echo(yaml_text(documents), nl=False)


def _require_pipe() -> None:
    """Raise UsageError where secrets would be kept in a file or shown on a terminal."""
    mode = os.fstat(sys.stdout.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise UsageError(
            "secrets are printed into a pipe only, so that they are in no file and on no screen",
            given="a terminal or a file",
            next="add `| kubectl create -f -`",
        )


def _job_document(loaded: LoadedBlueprint, target: Target, given: dict[str, str]) -> str:
    """Return the job document that `deploy` would submit."""
    from cordee.systems.services.instance import ServiceFolder, services_folder
    from cordee.systems.services.start import Wish, host_document, host_path, job_text

    folder = ServiceFolder(services_folder() / loaded.blueprint.name)
    number = max(folder.revisions(), default=0) + 1
    wish = Wish(target, "", given)
    spec = host_path(folder, host_document(loaded, folder, number, wish))
    return job_text(loaded.blueprint, folder, spec, wish)
