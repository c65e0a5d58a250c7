"""`cordee service render`."""

from __future__ import annotations

import os
import shlex
import stat
import sys

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_findings
from cordee.systems.services.blueprint import KUBERNETES, TARGETS, Target
from cordee.systems.services.cli.deployment import pairs


@click.command("render")
@click.argument("service")
@click.option("--target", type=click.Choice(TARGETS), default=KUBERNETES, show_default=True, help="For what.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the blueprint.")
@click.option("--namespace", default="", help="Its namespace (default: the service's name).")
@click.option("--project", default="", help="The group that may see the namespace (default: the blueprint's project).")
@click.option("--ingress", default="", metavar="HOST", help="Publish its first HTTP port under this name, by TLS.")
@click.option("--on-gpu-nodes", is_flag=True, help="Let it run on nodes with GPUs although it needs none.")
@click.option("--secrets", is_flag=True, help="Print new Secrets instead, for `kubectl create -f -`; only into a pipe.")
def render(
    service: str,
    target: Target,
    settings: tuple[str, ...],
    namespace: str,
    project: str,
    ingress: str,
    on_gpu_nodes: bool,
    secrets: bool,
) -> None:
    """Print what SERVICE is on a target: manifests for Kubernetes, the job document for the others.

    Services that it comes after are in the same manifests. They refer to Secrets by name and hold no secret; the command that makes them is said on standard
    error. Exit code 2: the target cannot honour it, and nothing is printed.

    \b
    Example:
      cordee service render mlflow --namespace tracking --project climate
    """
    from cordee.core.documents.faults import document_error
    from cordee.systems.services.catalogue import find_blueprint
    from cordee.systems.services.kubernetes.lint import manifest_findings
    from cordee.systems.services.kubernetes.manifests import (
        KubernetesPlace,
        manifests,
        secret_manifests,
        stored_secrets,
        yaml_text,
    )

    loaded = find_blueprint(service)
    given = pairs(settings, "--set")
    place = KubernetesPlace(namespace, project, ingress, on_gpu_nodes)
    if target != KUBERNETES:
        if secrets or place != KubernetesPlace():
            raise UsageError(
                "namespace, project, ingress, GPU nodes and Secrets are of Kubernetes",
                given=target,
                next="leave them out, or choose --target kubernetes",
            )
        click.echo(_job_document(service, target, given), nl=False)
        return
    if secrets:
        _require_pipe()
        click.echo(yaml_text(secret_manifests(loaded, given, place)), nl=False)
        return
    documents = manifests(loaded, given, place)
    findings = manifest_findings(documents)
    if any(one.severity == "error" for one in findings):
        raise document_error(findings)
    print_findings(findings)
    click.echo(yaml_text(documents), nl=False)
    if loaded.blueprint.closed:
        click.echo("cordee: Kubernetes does not ask [closed]: that it refuses strangers is for you to see", err=True)
    for one in stored_secrets(loaded):
        click.echo(f"cordee: the namespace must have the Secret {one.replace('/', ', with the key ')}", err=True)
    if secret_manifests(loaded, given, place):
        words = ["cordee", "service", "render", service]
        words += [word for one in settings for word in ("--set", one)]
        words += ["--namespace", namespace] if namespace else []
        words += ["--ingress", ingress] if ingress else []
        click.echo(f"cordee: its secrets, once: {shlex.join([*words, '--secrets'])} | kubectl create -f -", err=True)


def _require_pipe() -> None:
    """Raise UsageError where secrets would be kept in a file or shown on a terminal."""
    mode = os.fstat(sys.stdout.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise UsageError(
            "secrets are printed into a pipe only, so that they are in no file and on no screen",
            given="a terminal or a file",
            next="add `| kubectl create -f -`",
        )


def _job_document(service: str, target: Target, given: dict[str, str]) -> str:
    """Return the job document that `deploy` would submit."""
    from cordee.systems.services.catalogue import find_blueprint
    from cordee.systems.services.instance import ServiceFolder, services_folder
    from cordee.systems.services.start import Wish, host_document, job_text

    loaded = find_blueprint(service)
    folder = ServiceFolder(services_folder() / loaded.blueprint.name)
    number = max(folder.revisions(), default=0) + 1
    wish = Wish(target, "", given)
    host_document(loaded, folder, number, wish)
    return job_text(loaded.blueprint, folder, folder.revision(number) / "host.json", wish)
