"""A service as it is rendered: its blueprint with its values, the place that is asked for, and the services that come before it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from cordee.core.backends import HERE
from cordee.core.documents.faults import document_error
from cordee.core.errors import CordeeError, UsageError
from cordee.core.ports.images import PUSHED, PushedImage
from cordee.core.registry import offered
from cordee.job.profile import KubernetesSite, TeamSpace
from cordee.systems.services.blueprint import KUBERNETES, Blueprint, LoadedBlueprint, ServicePort, parameter_values
from cordee.systems.services.catalogue import find_blueprint
from cordee.systems.services.node.texts import references
from cordee.systems.services.start import refusals

Manifest = dict[str, Any]
SECRETS, FILES = "/run/cordee/secrets", "/run/cordee/files"
CLIENT_LABEL = "client-of.cordee/"
RELEASE_LABEL = "cordee/release"
TEAM_LABEL = "cordee/team"
CREATOR = {"app.kubernetes.io/managed-by": "cordee"}
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+\Z")


_VERSIONS = {
    "Deployment": "apps/v1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
    "Ingress": "networking.k8s.io/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
}


def manifest(kind: str, metadata: Manifest, **rest: Any) -> Manifest:
    """Return an object of Kubernetes' API, in the version that is written here."""
    return {"apiVersion": _VERSIONS.get(kind, "v1"), "kind": kind, "metadata": metadata, **rest}


class KubernetesPlace(NamedTuple):
    """What a person asks for besides the blueprint, on Kubernetes.

    Attributes:
        namespace: where the objects are; empty: one named after the service.
        project: its group gets to see the namespace; empty: the blueprint's project.
        ingress: the host name under which the first HTTP port is published by TLS; empty: none.
        on_gpu_nodes: whether a service without GPUs may run on nodes that have some.
        gateway: NAMESPACE/NAME of a Gateway that publishes the host instead of an Ingress; empty: an Ingress does.
        cilium: whether policies are Cilium's instead of Kubernetes' own.
        storage_class: of volumes whose blueprint names none; empty: the cluster's default.
        load_balancer: whether ports that speak no HTTP have an address outside of the cluster.
        balancer_class: of that load balancer; empty: the cluster's default.
        clients: the networks that it lets in.
        cluster: whose profile counts.
        team: whose namespace it is, with the objects that all its services share; None: the service has one for itself.
    """

    namespace: str = ""
    project: str = ""
    ingress: str = ""
    on_gpu_nodes: bool = False
    gateway: str = ""
    cilium: bool = False
    storage_class: str = ""
    load_balancer: bool = False
    balancer_class: str = ""
    clients: tuple[str, ...] = ()
    team: TeamSpace | None = None
    cluster: str = HERE


def place_at(site: KubernetesSite, cluster: str, name: str, given: Mapping[str, Any]) -> KubernetesPlace:
    """Return where a service is: what a person gives, and what the site's profile says.

    Args:
        site: the table `[kubernetes]` of the profile.
        cluster: its name.
        name: the blueprint's.
        given: values of `KubernetesPlace` by their names; empty ones are not given.
    """
    place = KubernetesPlace(**given)
    return place._replace(
        namespace=place.namespace or name,
        gateway=site.gateway if place.ingress else "",
        cilium=site.cilium,
        storage_class=site.storage_class,
        balancer_class=site.load_balancer,
        clients=site.clients,
        cluster=cluster,
        team=site.teams.get(place.namespace or name),
    )


class ServicePart(NamedTuple):
    """A service of the namespace: its blueprint with its values, and whom it reaches."""

    blueprint: Blueprint
    parameters: Mapping[str, str]
    reaches: tuple[Blueprint, ...]
    place: KubernetesPlace

    @property
    def name(self) -> str:
        return self.blueprint.name

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.blueprint)

    def metadata(self, name: str) -> Manifest:
        return {"name": name, "namespace": self.place.namespace, "labels": {**self.labels, **CREATOR}}

    def known(self, host: str) -> dict[str, str]:
        """Return what stands for the names in braces; `host` is the service's own."""
        blueprint, inside = self.blueprint, f"{self.name}.{self.place.namespace}.svc"
        urls = {name: f"{port.protocol}://{inside}:{port.port}" for name, port in blueprint.ports.items()}
        if self.place.ingress and (first := web_port(blueprint)):
            urls[first] = f"https://{self.place.ingress}"
        return {
            "host": host or inside,
            "name": self.name,
            **{f"port.{name}": str(port.port) for name, port in blueprint.ports.items()},
            **{f"url.{name}": url for name, url in urls.items()},
            **{f"volume.{name}": volume.path for name, volume in blueprint.volumes.items()},
            **{f"secret.{name}": f"{SECRETS}/{name}" for name in blueprint.secrets},
            **{f"file.{name}": f"{FILES}/{name}" for name in blueprint.files},
            **{f"parameter.{name}": value for name, value in self.parameters.items()},
        }


def parts_of(loaded: LoadedBlueprint, given: Mapping[str, str], place: KubernetesPlace) -> list[ServicePart]:
    blueprint = loaded.blueprint
    place = place._replace(namespace=place.namespace or blueprint.name, project=place.project or blueprint.project)
    for wrong, text, given_, allowed, what in _place_faults(place, blueprint):
        if wrong:
            raise UsageError(text, given=given_, allowed=allowed, next=what)
    found = with_before(loaded, ())
    faults = [fault for one in found for fault in refusals(one, KUBERNETES)]
    images = {}
    for one in found:
        try:
            images[one.blueprint.name] = _image(one, place.cluster)
        except CordeeError as error:
            text = f"{KUBERNETES} cannot honour it: {error.text}"
            faults.append(one.finding(("image",), text, "target-refuses", str(error.next), given=error.given))
    if faults:
        raise document_error(faults)
    found = [
        replace(one, blueprint=one.blueprint.model_copy(update={"image": images[one.blueprint.name]})) for one in found
    ]
    parts = []
    for one in found:
        reaches = tuple(other.blueprint for other in found if other.blueprint.name in one.blueprint.after)
        main = one is found[-1]
        values = parameter_values(one.blueprint, given if main else {})
        at = place if main else place._replace(ingress="", load_balancer=False)
        parts.append(ServicePart(one.blueprint, values, reaches, at))
    return parts


def _image(loaded: LoadedBlueprint, cluster: str) -> str | None:
    """Return a service's image; for an EDF what the registry calls the image that was built from it.

    Raises:
        CordeeError: it is in none, or not what would be built now.
    """
    given = loaded.blueprint.environment
    if not given:
        return loaded.blueprint.image
    pushed: PushedImage | None = offered(PUSHED)
    if pushed is None:
        raise CordeeError("no system here builds images", given=given, next="install Cordée whole")
    return pushed(str(loaded.path.absolute().parent / given), cluster)


def _place_faults(place: KubernetesPlace, blueprint: Blueprint) -> Iterator[tuple[bool, str, str, str, str]]:
    """Yield (whether it is so, text, given, allowed, next) of what may be wrong with a place."""
    name = blueprint.name
    allowed = "small letters, digits and -, at most 63; neither default nor one of Kubernetes itself"
    wrong = not _LABEL.match(place.namespace) or place.namespace in ("default", "kube-system", "kube-public")
    yield wrong, "is no namespace for a service", place.namespace, allowed, "change --namespace"
    wrong = bool(place.ingress and not _HOST.match(place.ingress))
    yield wrong, "is no host name", place.ingress, "a name such as mlflow.site.org", "change --ingress"
    wrong = bool(place.team and place.project not in ("", blueprint.project))
    text = "the namespace is a team's: its profile says who sees it"
    yield wrong, text, place.project, "no --project", "leave --project out"
    text, allowed = "a service in a team's namespace has another name than the namespace", "another name"
    yield bool(place.team) and name == place.namespace, text, name, allowed, "change name in the blueprint"
    text, allowed = f"{name} has no port for a load balancer, which has no TLS", 'a port with protocol = "tcp"'
    yield place.load_balancer and not balanced(blueprint), text, name, allowed, "--ingress HOST is for HTTP"
    text, allowed = "a load balancer must know whom it lets in", '[kubernetes] clients = ["10.0.0.0/8"] in the profile'
    everybody = not place.clients or any(network.endswith("/0") for network in place.clients)
    given = ", ".join(place.clients) or name
    yield place.load_balancer and everybody, text, given, allowed, "name the networks there, and the profile by --on"
    text, allowed = f"{name} asks nobody for credentials, so it is not published", 'a service with guard = "own"'
    wrong = blueprint.guard == "none" and (bool(place.ingress) or place.load_balancer)
    yield wrong, text, name, allowed, "leave --ingress and --load-balancer out"
    text, allowed = f"{name} has no HTTP port for an Ingress", 'a port with protocol = "http"'
    yield bool(place.ingress) and web_port(blueprint) is None, text, place.ingress, allowed, "leave --ingress out"


def with_before(loaded: LoadedBlueprint, above: tuple[str, ...]) -> list[LoadedBlueprint]:
    """Return the services that one comes after, and itself, each once, itself last."""
    name = loaded.blueprint.name
    if name in above:
        raise UsageError(
            "services come after each other in a circle", given=" after ".join((*above, name)), next="change [after]"
        )
    found: dict[str, LoadedBlueprint] = {}
    for before in loaded.blueprint.after:
        for one in with_before(find_blueprint(before), (*above, name)):
            found[one.blueprint.name] = one
    return [*found.values(), loaded]


def web_port(blueprint: Blueprint) -> str | None:
    return next((name for name, port in blueprint.ports.items() if port.protocol == "http"), None)


def balanced(blueprint: Blueprint) -> dict[str, ServicePort]:
    """Return the ports that a load balancer may publish: it ends no TLS, so passwords of HTTP would be in the open."""
    return {name: port for name, port in blueprint.ports.items() if port.protocol == "tcp"}


def labels_of(blueprint: Blueprint) -> dict[str, str]:
    return {"app.kubernetes.io/name": blueprint.name}


def is_replaced(blueprint: Blueprint) -> bool:
    return bool(blueprint.volumes or blueprint.need.gpus)


def pods(blueprint: Blueprint) -> int:
    """Return how many pods there are at once: a rolling update of some needs room for more (a quarter, Kubernetes' default)."""
    return blueprint.replicas + (0 if is_replaced(blueprint) else math.ceil(blueprint.replicas / 4))


def secret_name(service: str) -> str:
    return f"{service}-secrets"


def secret_key(part: ServicePart, name: str) -> dict[str, str]:
    """Return in which Secret a value is."""
    source = part.blueprint.secrets[name].source
    if source.startswith("store:"):
        secret, _, key = source.removeprefix("store:").partition("/")
        return {"name": secret, "key": key}
    return {"name": secret_name(part.name), "key": name}


def file_key(name: str) -> str:
    return f"file.{name}"  # a name of a secret has no dot, so none is the same


def holds_value(text: str) -> bool:
    return any(kind == "value" for kind, _ in references(text))


def quantity(size: int) -> str:
    for unit, bytes_ in (("Ti", 1 << 40), ("T", 10**12), ("Gi", 1 << 30), ("G", 10**9), ("Mi", 1 << 20), ("M", 10**6)):
        if size and size % bytes_ == 0:
            return f"{size // bytes_}{unit}"
    return str(size)
