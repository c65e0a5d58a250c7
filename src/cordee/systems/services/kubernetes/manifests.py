"""The manifests of a service and of those it comes after: typed data, which PyYAML writes; no text is ever put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cordee.systems.services.blueprint import LoadedBlueprint
from cordee.systems.services.instance import new_secret
from cordee.systems.services.kubernetes.cilium import cilium_policy
from cordee.systems.services.kubernetes.names import object_name
from cordee.systems.services.kubernetes.namespace import own_namespace
from cordee.systems.services.kubernetes.network import network_policy, service_objects
from cordee.systems.services.kubernetes.part import (
    RELEASE_LABEL,
    KubernetesPlace,
    Manifest,
    ServicePart,
    file_key,
    holds_value,
    manifest,
    parts_of,
    quantity,
    secret_name,
    with_before,
)
from cordee.systems.services.kubernetes.workload import deployment
from cordee.systems.services.node.texts import filled


def manifests(loaded: LoadedBlueprint, given: Mapping[str, str], place: KubernetesPlace) -> list[Manifest]:
    """Return the objects of a service, and of those it comes after, in the order in which they are applied.

    Args:
        loaded: its blueprint.
        given: its parameters; those of the services it comes after have their defaults.
        place: where and for whom.

    Raises:
        UsageError: a parameter, the namespace or the ingress's host is wrong.
        DocumentError: Kubernetes cannot honour it, or one that it comes after.
    """
    parts = parts_of(loaded, given, place)
    found = [] if place.team else [*own_namespace(parts)]
    for part in parts:
        found += [
            manifest("ServiceAccount", part.metadata(part.name), automountServiceAccountToken=False),
            *_configuration(part),
            *_claims(part),
            *network_policy(part),
            deployment(part),
            *service_objects(part),
        ]
    return [cilium_policy(one) if place.cilium and one["kind"] == "NetworkPolicy" else one for one in found]


def secret_manifests(loaded: LoadedBlueprint, given: Mapping[str, str], place: KubernetesPlace) -> list[Manifest]:
    """Return the Secrets that the manifests refer to, with values made now; never for a file or a repository.

    Raises:
        UsageError, DocumentError: as `manifests`.
    """
    found = []
    for part in parts_of(loaded, given, place):
        values = {
            name: new_secret(secret.characters)
            for name, secret in part.blueprint.secrets.items()
            if secret.source == "generated"
        }
        known = {**part.known("0.0.0.0"), **{f"value.{name}": value for name, value in values.items()}}
        files = {
            file_key(name): filled(text, known) for name, text in part.blueprint.files.items() if holds_value(text)
        }
        metadata = part.metadata(secret_name(part.name))
        metadata["labels"][RELEASE_LABEL] = loaded.blueprint.name
        if values or files:
            found.append(manifest("Secret", metadata, type="Opaque", stringData={**values, **files}))
    return found


def stored_secrets(loaded: LoadedBlueprint) -> list[str]:
    """Return NAME/KEY of each Secret that the cluster must have already, of all services that are rendered."""
    found = []
    for one in with_before(loaded, ()):
        sources = [secret.source for secret in one.blueprint.secrets.values()]
        found += [source.removeprefix("store:") for source in sources if source.startswith("store:")]
    return found


def _configuration(part: ServicePart) -> Iterator[Manifest]:
    """Yield configuration files without secrets, and the variables of clients."""
    blueprint = part.blueprint
    files = {name: text for name, text in blueprint.files.items() if not holds_value(text)}
    if files:
        known = part.known("0.0.0.0")
        data = {file_key(name): filled(text, known) for name, text in files.items()}
        yield manifest("ConfigMap", part.metadata(f"{part.name}-files"), data=data)
    client = {name: text for name, text in blueprint.client.items() if not holds_value(text)}
    if client:
        known = part.known("")
        data = {name: filled(text, known) for name, text in client.items()}
        yield manifest("ConfigMap", part.metadata(f"{part.name}-client"), data=data)


def _claims(part: ServicePart) -> Iterator[Manifest]:
    for name, volume in part.blueprint.volumes.items():
        storage_class = volume.storage_class or part.place.storage_class
        spec = {
            "accessModes": ["ReadWriteOnce"],
            **({"storageClassName": storage_class} if storage_class else {}),
            "resources": {"requests": {"storage": quantity(volume.size)}},
        }
        yield manifest("PersistentVolumeClaim", part.metadata(f"{part.name}-{object_name(name)}"), spec=spec)
