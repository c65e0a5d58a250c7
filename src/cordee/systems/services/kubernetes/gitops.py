"""A repository for Argo CD: one folder for each service, one file for each object, so that a reviewer reads a change as what it is.

```
README.md                             what is where, and what a change does
argocd/project-PROJECT.yaml           an AppProject: which namespaces and kinds a project may have
argocd/services.yaml                  one ApplicationSet: an Application for each services/*/*/service.json
services/NAMESPACE/SERVICE/*.yaml     the objects, and service.json with its place
services/NAMESPACE/NAMESPACE/*.yaml   those that services of a team share
```

Git is the truth: what a commit removes is pruned, what somebody changes on the cluster is set back, and a rollback is a commit
(`git revert`). No secret is in it. Formats: https://argo-cd.readthedocs.io/en/stable/operator-manual/applicationset/.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any

from cordee.core.documents.yaml_lines import read_yaml
from cordee.core.errors import UsageError
from cordee.job.profile import TeamSpace
from cordee.runs.folder import write_atomically
from cordee.systems.services.blueprint import LoadedBlueprint
from cordee.systems.services.kubernetes.kubectl import Object
from cordee.systems.services.kubernetes.manifests import stored_secrets
from cordee.systems.services.kubernetes.part import KubernetesPlace
from cordee.systems.services.kubernetes.yaml_text import yaml_text

_ARGO, _SERVER = "argocd", "https://kubernetes.default.svc"
_PLACE = "service.json"
_NO_PROJECT = "services"
_GROUPS = {
    "": ("ServiceAccount", "ConfigMap", "PersistentVolumeClaim", "Service", "ResourceQuota", "LimitRange"),
    "apps": ("Deployment",),
    "networking.k8s.io": ("Ingress", "NetworkPolicy"),
    "gateway.networking.k8s.io": ("HTTPRoute",),
    "cilium.io": ("CiliumNetworkPolicy",),
    "rbac.authorization.k8s.io": ("RoleBinding",),
}


def write_service(
    folder: Path, loaded: LoadedBlueprint, documents: list[Object], place: KubernetesPlace, repo: str
) -> list[str]:
    """Write a service into a repository, and what Argo CD needs to know of it; return the files that changed.

    Args:
        folder: the repository, which may be new.
        loaded: the service's blueprint.
        documents: its manifests.
        place: where it is.
        repo: where Argo CD finds the repository; empty: where its remote `origin` is.

    Raises:
        UsageError: nobody says where the repository is, or another service has its namespace or its objects.
        DocumentError: what another service has there cannot be read.
        RunFolderError, OSError: it cannot be written.
    """
    name = loaded.blueprint.name
    namespace = place.namespace or name
    repo = repo or _origin(folder)
    ours = {(one["kind"], one["metadata"]["name"]) for one in documents}
    for path in sorted(folder.glob(f"services/{namespace}/*/*.yaml")):
        other = path.parent.name
        one = read_yaml(path).values if other != name else {}
        if other != name and (not place.team or (one["kind"], one["metadata"]["name"]) in ours):
            raise UsageError(
                f"{one['kind']} {one['metadata']['name']} of the namespace {namespace} is that of {other}",
                given=namespace,
                next="change --namespace; several services share one that the profile has as a team's",
            )
    given = (place.team.project or namespace) if place.team else place.project or loaded.blueprint.project
    return _written(folder, name, namespace, given, documents, _secrets_of(documents, loaded), repo)


def write_team(folder: Path, name: str, team: TeamSpace, documents: list[Object], repo: str) -> list[str]:
    """Write the namespace that services of a team share into a repository; return the files that changed.

    Raises:
        UsageError: nobody says where the repository is.
        RunFolderError, OSError: it cannot be written.
    """
    return _written(folder, name, name, team.project or name, documents, [], repo or _origin(folder))


def _written(
    folder: Path, name: str, namespace: str, given: str, documents: list[Object], stored: list[str], repo: str
) -> list[str]:
    """Write objects into the folder of their service, and what Argo CD needs to know; return the files that changed."""
    # A group may be called anything, an AppProject may not.
    project = re.sub(r"[^a-z0-9]+", "-", given.lower()).strip("-")[:50].rstrip("-") or _NO_PROJECT
    about = {"name": name, "namespace": namespace, "project": project, "secrets": stored}
    files = {_PLACE: json.dumps(about, indent=1) + "\n"}
    for one in documents:
        if one["kind"] == "PersistentVolumeClaim":  # data outlives the file that asks for it
            annotations = {"argocd.argoproj.io/sync-options": "Prune=false,Delete=false"}
            one = {**one, "metadata": {**one["metadata"], "annotations": annotations}}
        files[_file_name(one, documents)] = yaml_text([one])
    before = _texts(folder)
    _swap(folder, folder / "services" / namespace / name, files)
    _write_argo(folder, repo)
    after = _texts(folder)
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def _origin(folder: Path) -> str:
    words = ["git", "-C", str(folder), "remote", "get-url", "origin"]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError:
        done = None
    url = done.stdout.strip() if done and done.returncode == 0 else ""
    if not url:
        raise UsageError("nothing says where Argo CD finds this repository", given=str(folder), next="give --repo URL")
    return url


def _secrets_of(documents: list[Object], loaded: LoadedBlueprint) -> list[str]:
    """Return the names of Secrets that must be in the namespace before the service starts."""
    found = {one.partition("/")[0] for one in stored_secrets(loaded)}

    def look(value: Any) -> None:
        if isinstance(value, dict):
            for key in ("secretKeyRef", "secret"):
                if isinstance(value.get(key), dict) and "name" in value[key]:
                    found.add(value[key]["name"])
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look([one for one in documents if one["kind"] == "Deployment"])
    return sorted(found)


def _file_name(one: Object, documents: list[Object]) -> str:
    """Return the name of an object's file: its kind, and its name where there are several."""
    kind = one["kind"].lower()
    several = sum(other["kind"] == one["kind"] for other in documents) > 1
    return f"{kind}-{one['metadata']['name']}.yaml" if several else f"{kind}.yaml"


def _swap(folder: Path, target: Path, files: dict[str, str]) -> None:
    """Put a folder with these files in the place of another: at no moment is half of one there and half of the other."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new = folder / f".new-{secrets.token_hex(4)}"
    new.mkdir()
    for name, text in files.items():
        (new / name).write_text(text)
    old = target.with_name(f"{new.name}.old")
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _texts(folder: Path) -> dict[str, str]:
    """Return the files that are written here, by their paths in the repository."""
    found = [*folder.glob("services/*/*/*"), *folder.glob("argocd/*"), *folder.glob("README.md")]
    return {str(path.relative_to(folder)): path.read_text() for path in found if path.is_file()}


def _write_argo(folder: Path, repo: str) -> None:
    """Write what tells Argo CD of all services that are in the repository."""
    places = [json.loads(path.read_text()) for path in sorted(folder.glob(f"services/*/*/{_PLACE}"))]
    argo = folder / _ARGO
    argo.mkdir(exist_ok=True)
    projects = sorted({one["project"] for one in places})
    for path in argo.glob("project-*.yaml"):
        if path.stem.removeprefix("project-") not in projects:
            path.unlink()
    for project in projects:
        spaces = sorted({one["namespace"] for one in places if one["project"] == project})
        write_atomically(argo / f"project-{project}.yaml", yaml_text([_project(project, spaces, repo)]), mode=0o644)
    write_atomically(argo / "services.yaml", yaml_text([_application_set(repo)]), mode=0o644)
    write_atomically(folder / "README.md", _readme(places, repo), mode=0o644)


def _project(project: str, namespaces: list[str], repo: str) -> Object:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": {"name": project, "namespace": _ARGO},
        "spec": {
            "description": f"Services of {project}",
            "sourceRepos": [repo],
            "destinations": [{"server": _SERVER, "namespace": one} for one in namespaces],
            "clusterResourceWhitelist": [{"group": "", "kind": "Namespace"}],
            "namespaceResourceWhitelist": [
                {"group": group, "kind": kind} for group, kinds in _GROUPS.items() for kind in kinds
            ],
        },
    }


def _application_set(repo: str) -> Object:
    template = {
        "metadata": {"name": "{{.namespace}}-{{.name}}"},
        "spec": {
            "project": "{{.project}}",
            "source": {
                "repoURL": repo,
                "targetRevision": "HEAD",
                "path": "{{.path.path}}",
                "directory": {"include": "*.yaml"},
            },
            "destination": {"server": _SERVER, "namespace": "{{.namespace}}"},
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True},
                "syncOptions": ["ServerSideApply=true", "PruneLast=true"],
                "retry": {"limit": 10},  # the namespace of a team is another Application, which may come a little later
            },
        },
    }
    generator = {"git": {"repoURL": repo, "revision": "HEAD", "files": [{"path": f"services/*/*/{_PLACE}"}]}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": "cordee-services", "namespace": _ARGO},
        "spec": {
            "goTemplate": True,
            "goTemplateOptions": ["missingkey=error"],
            "generators": [generator],
            "template": template,
        },
    }


def _readme(places: list[dict[str, Any]], repo: str) -> str:
    rows = [
        f"| {one['name']} | {one['namespace']} | {one['project']} | {', '.join(one['secrets']) or 'none'} |"
        for one in places
    ]
    lines = [
        "# Services",
        "",
        "Made by `cordee service render SERVICE --gitops .`; Argo CD keeps the cluster as it is here.",
        "",
        "| service | namespace | project | Secrets that its namespace must have |",
        "|---|---|---|---|",
        *rows,
        "",
        "- Each object is a file in `services/NAMESPACE/SERVICE`. A commit that removes one removes the object; volumes stay.",
        "- A rollback is `git revert COMMIT`.",
        f"- A new cluster: install Argo CD, give it {repo}, `kubectl apply -f argocd`.",
        "- Secrets are in no file: `cordee service render SERVICE --namespace NAMESPACE --secrets | kubectl create -f -`, once.",
    ]
    return "\n".join(lines) + "\n"
