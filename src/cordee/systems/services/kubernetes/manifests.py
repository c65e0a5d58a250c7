"""The manifests of a service and of those it comes after: typed data, which PyYAML writes; no text is ever put together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from cordee.core.documents.faults import document_error
from cordee.core.errors import UsageError
from cordee.systems.services.blueprint import (
    KUBERNETES,
    Blueprint,
    LoadedBlueprint,
    ServiceProbe,
    parameter_values,
)
from cordee.systems.services.catalogue import find_blueprint
from cordee.systems.services.instance import new_secret
from cordee.systems.services.kubernetes.names import object_name
from cordee.systems.services.node.texts import filled, references
from cordee.systems.services.start import owner_of, refusals

Manifest = dict[str, Any]
GPU_LABEL = "gpu.vendor"
GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}
_SECRETS, _FILES = "/run/cordee/secrets", "/run/cordee/files"
_CLIENT_LABEL = "client-of.cordee/"
_ACCOUNT = "cordee-service"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+\Z")
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]{2,}\Z")


class KubernetesPlace(NamedTuple):
    """What a person asks for besides the blueprint, on Kubernetes.

    Attributes:
        namespace: where the objects are; empty: one named after the service.
        project: its group gets to see the namespace; empty: the blueprint's project.
        ingress: the host name under which the first HTTP port is published by TLS; empty: none.
        on_gpu_nodes: whether a service without GPUs may run on nodes that have some.
    """

    namespace: str = ""
    project: str = ""
    ingress: str = ""
    on_gpu_nodes: bool = False


class _Part(NamedTuple):
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
        return {"app.kubernetes.io/name": self.name}

    def metadata(self, name: str) -> Manifest:
        labels = {**self.labels, "app.kubernetes.io/managed-by": "cordee"}
        return {"name": name, "namespace": self.place.namespace, "labels": labels}

    def known(self, host: str) -> dict[str, str]:
        """Return what stands for the names in braces; `host` is the service's own."""
        blueprint, inside = self.blueprint, f"{self.name}.{self.place.namespace}.svc"
        urls = {name: f"{port.protocol}://{inside}:{port.port}" for name, port in blueprint.ports.items()}
        if self.place.ingress and (first := _web_port(blueprint)):
            urls[first] = f"https://{self.place.ingress}"
        return {
            "host": host or inside,
            "name": self.name,
            **{f"port.{name}": str(port.port) for name, port in blueprint.ports.items()},
            **{f"url.{name}": url for name, url in urls.items()},
            **{f"volume.{name}": volume.path for name, volume in blueprint.volumes.items()},
            **{f"secret.{name}": f"{_SECRETS}/{name}" for name in blueprint.secrets},
            **{f"file.{name}": f"{_FILES}/{name}" for name in blueprint.files},
            **{f"parameter.{name}": value for name, value in self.parameters.items()},
        }


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
    parts = _parts(loaded, given, place)
    found = [*_namespace(parts)]
    for part in parts:
        found += [*_configuration(part), *_claims(part), *_network(part), _deployment(part), *_service(part)]
    return found


def secret_manifests(loaded: LoadedBlueprint, given: Mapping[str, str], place: KubernetesPlace) -> list[Manifest]:
    """Return the Secrets that the manifests refer to, with values made now; never for a file or a repository.

    Raises:
        UsageError, DocumentError: as `manifests`.
    """
    found = []
    for part in _parts(loaded, given, place):
        values = {
            name: new_secret(secret.characters)
            for name, secret in part.blueprint.secrets.items()
            if secret.source == "generated"
        }
        known = {**part.known("0.0.0.0"), **{f"value.{name}": value for name, value in values.items()}}
        files = {
            _file_key(name): filled(text, known) for name, text in part.blueprint.files.items() if _holds_value(text)
        }
        if values or files:
            found.append(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": part.metadata(_secret_name(part.name)),
                    "type": "Opaque",
                    "stringData": {**values, **files},
                }
            )
    return found


def stored_secrets(loaded: LoadedBlueprint) -> list[str]:
    """Return NAME/KEY of each Secret that the cluster must have already, of all services that are rendered."""
    found = []
    for one in _with_before(loaded, ()):
        sources = [secret.source for secret in one.blueprint.secrets.values()]
        found += [source.removeprefix("store:") for source in sources if source.startswith("store:")]
    return found


def _with_before(loaded: LoadedBlueprint, above: tuple[str, ...]) -> list[LoadedBlueprint]:
    """Return the services that one comes after, and itself, each once, itself last."""
    name = loaded.blueprint.name
    if name in above:
        raise UsageError(
            "services come after each other in a circle", given=" after ".join((*above, name)), next="change [after]"
        )
    found: dict[str, LoadedBlueprint] = {}
    for before in loaded.blueprint.after:
        for one in _with_before(find_blueprint(before), (*above, name)):
            found[one.blueprint.name] = one
    return [*found.values(), loaded]


def _parts(loaded: LoadedBlueprint, given: Mapping[str, str], place: KubernetesPlace) -> list[_Part]:
    blueprint = loaded.blueprint
    place = place._replace(namespace=place.namespace or blueprint.name, project=place.project or blueprint.project)
    if not _LABEL.match(place.namespace) or place.namespace in ("default", "kube-system", "kube-public"):
        raise UsageError(
            "is no namespace for a service",
            given=place.namespace,
            allowed="small letters, digits and -, at most 63; neither default nor one of Kubernetes itself",
            next="change --namespace",
        )
    if place.ingress and not _HOST.match(place.ingress):
        raise UsageError(
            "is no host name", given=place.ingress, allowed="a name such as mlflow.site.org", next="change --ingress"
        )
    if place.ingress and _web_port(blueprint) is None:
        raise UsageError(
            f"{blueprint.name} has no HTTP port for an Ingress",
            given=place.ingress,
            allowed='a port with protocol = "http"',
            next="leave --ingress out",
        )
    if place.ingress and blueprint.guard == "none":
        raise UsageError(
            f"{blueprint.name} asks nobody for credentials, so it is not published",
            given=place.ingress,
            allowed='a service with guard = "own"',
            next="leave --ingress out",
        )
    found = _with_before(loaded, ())
    faults = [fault for one in found for fault in refusals(one, KUBERNETES)]
    if faults:
        raise document_error(faults)
    parts = []
    for one in found:
        reaches = tuple(other.blueprint for other in found if other.blueprint.name in one.blueprint.after)
        own = one is loaded
        parts.append(
            _Part(
                one.blueprint,
                parameter_values(one.blueprint, given if own else {}),
                reaches,
                place if own else place._replace(ingress=""),
            )
        )
    return parts


def _namespace(parts: list[_Part]) -> Iterator[Manifest]:
    """Yield the namespace, what it may take, and who may see it."""
    place, main = parts[-1].place, parts[-1].blueprint
    space: Manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": place.namespace,
            "labels": {
                "app.kubernetes.io/managed-by": "cordee",
                **{f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")},
            },
            "annotations": {
                "cordee/owner": owner_of(main),
                **({"cordee/project": place.project} if place.project else {}),
            },
        },
    }
    yield space
    blueprints = [part.blueprint for part in parts]
    cpus = sum(one.need.cpus * _pods(one) for one in blueprints)
    memory = _quantity(sum(one.need.memory * _pods(one) for one in blueprints))
    hard = {
        "pods": str(sum(_pods(one) for one in blueprints)),
        "requests.cpu": str(cpus),
        "requests.memory": memory,
        "limits.memory": memory,
        "requests.storage": _quantity(sum(volume.size for one in blueprints for volume in one.volumes.values())),
        "persistentvolumeclaims": str(sum(len(one.volumes) for one in blueprints)),
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }
    for vendor, resource in GPU_RESOURCES.items():
        gpus = sum(one.need.gpus * _pods(one) for one in blueprints if one.need.gpu_vendor == vendor)
        hard[f"requests.{resource}"] = str(gpus)
    here = {"namespace": place.namespace, "labels": {"app.kubernetes.io/managed-by": "cordee"}}
    yield {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cordee", **here}, "spec": {"hard": hard}}
    limit = {
        "type": "Container",
        "default": {"memory": _quantity(min(one.need.memory for one in blueprints))},
        "defaultRequest": {"cpu": "100m"},
        "max": {"memory": _quantity(max(one.need.memory for one in blueprints))},
    }
    yield {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "cordee", **here},
        "spec": {"limits": [limit]},
    }
    yield {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": _ACCOUNT, **here},
        "automountServiceAccountToken": False,
    }
    if place.project:
        # `view` shows neither Secrets nor lets anybody into a pod: members of a project are not owners of its services.
        yield {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "cordee-project", **here},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": place.project}],
        }
    policy = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    yield _policy({"name": "default-deny", **here}, policy)
    dns = {
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
        "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
    }
    yield _policy({"name": "dns", **here}, {"podSelector": {}, "policyTypes": ["Egress"], "egress": [dns]})


def _policy(metadata: Manifest, spec: Manifest) -> Manifest:
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def _configuration(part: _Part) -> Iterator[Manifest]:
    """Yield configuration files without secrets, and the variables of clients."""
    blueprint = part.blueprint
    files = {name: text for name, text in blueprint.files.items() if not _holds_value(text)}
    if files:
        known = part.known("0.0.0.0")
        data = {_file_key(name): filled(text, known) for name, text in files.items()}
        yield _config_map(part, "files", data)
    client = {name: text for name, text in blueprint.client.items() if not _holds_value(text)}
    if client:
        known = part.known("")
        yield _config_map(part, "client", {name: filled(text, known) for name, text in client.items()})


def _config_map(part: _Part, what: str, data: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": part.metadata(f"{part.name}-{what}"), "data": data}


def _claims(part: _Part) -> Iterator[Manifest]:
    for name, volume in part.blueprint.volumes.items():
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": part.metadata(f"{part.name}-{object_name(name)}"),
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                **({"storageClassName": volume.storage_class} if volume.storage_class else {}),
                "resources": {"requests": {"storage": _quantity(volume.size)}},
            },
        }


def _network(part: _Part) -> Iterator[Manifest]:
    """Yield who reaches the service, and whom it reaches: the services that it comes after, at their ports."""
    blueprint = part.blueprint
    # One that asks nobody for credentials is reached by those only that come after it.
    clients = {"podSelector": {"matchLabels": {_CLIENT_LABEL + part.name: "true"}} if blueprint.guard == "none" else {}}
    ingress: list[Manifest] = [{"from": [clients], "ports": _policy_ports(blueprint)}] if blueprint.ports else []
    web = _web_port(blueprint)
    if part.place.ingress and web:
        port = {"protocol": "TCP", "port": blueprint.ports[web].port}
        ingress.append({"from": [{"namespaceSelector": {}}], "ports": [port]})
    egress = [
        {"to": [{"podSelector": {"matchLabels": _labels(one)}}], "ports": _policy_ports(one)} for one in part.reaches
    ]
    spec: Manifest = {"podSelector": {"matchLabels": part.labels}, "policyTypes": ["Ingress", "Egress"]}
    yield _policy(part.metadata(part.name), {**spec, "ingress": ingress, "egress": egress})


def _policy_ports(blueprint: Blueprint) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port.port} for port in blueprint.ports.values()]


def _labels(blueprint: Blueprint) -> dict[str, str]:
    return {"app.kubernetes.io/name": blueprint.name}


def _deployment(part: _Part) -> Manifest:
    blueprint = part.blueprint
    reaches = {_CLIENT_LABEL + one.name: "true" for one in part.reaches}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": part.metadata(part.name),
        "spec": {
            "replicas": blueprint.replicas,
            # Two programs never write one volume, and GPUs are not free twice: the old one ends first.
            "strategy": {"type": "Recreate" if _replaced(blueprint) else "RollingUpdate"},
            "selector": {"matchLabels": part.labels},
            "template": {"metadata": {"labels": {**part.labels, **reaches}}, "spec": _pod(part)},
        },
    }


def _pod(part: _Part) -> Manifest:
    blueprint = part.blueprint
    volumes, mounts = _storage(part)
    resources: Manifest = {
        "requests": {"cpu": str(blueprint.need.cpus), "memory": _quantity(blueprint.need.memory)},
        "limits": {"memory": _quantity(blueprint.need.memory)},
    }
    if blueprint.need.gpus:
        for kind in resources.values():
            kind[GPU_RESOURCES[blueprint.need.gpu_vendor]] = str(blueprint.need.gpus)
    container: Manifest = {"name": part.name, "image": blueprint.image}
    if blueprint.image_argv:
        known = part.known("0.0.0.0")
        container["args"] = [_literal(filled(word, known)) for word in blueprint.image_argv]
    container |= {
        "env": _environment(part),
        "ports": [
            {"name": object_name(name), "containerPort": port.port, "protocol": "TCP"}
            for name, port in blueprint.ports.items()
        ],
        "resources": resources,
        **_probes(part),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    user = blueprint.image_user
    return {
        "serviceAccountName": _ACCOUNT,
        "automountServiceAccountToken": False,
        # Variables such as REDIS_PORT=tcp://..., which Kubernetes adds, mislead programs that read their own.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(blueprint.stop),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **_placed(part),
        "containers": [container],
        "volumes": volumes,
    }


def _placed(part: _Part) -> Manifest:
    """Return which nodes it may run on: those with its GPUs, or those without any."""
    need = part.blueprint.need
    affinity: Manifest = {}
    if need.gpus or not part.place.on_gpu_nodes:
        wanted = {"operator": "In", "values": [need.gpu_vendor]} if need.gpus else {"operator": "DoesNotExist"}
        terms = [{"matchExpressions": [{"key": GPU_LABEL, **wanted}]}]
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if part.reaches:
        near = [
            {
                "weight": 100,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": _labels(one)},
                    "topologyKey": "topology.kubernetes.io/zone",
                },
            }
            for one in part.reaches
        ]
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": near}
    found: Manifest = {"affinity": affinity} if affinity else {}
    if need.gpus or part.place.on_gpu_nodes:
        vendors = [need.gpu_vendor] if need.gpus else list(GPU_RESOURCES)
        found["tolerations"] = [
            {"key": GPU_RESOURCES[vendor], "operator": "Exists", "effect": "NoSchedule"} for vendor in vendors
        ]
    if need.gpus and need.gpu_vendor == "nvidia":  # the other vendors' device plugins need none
        found["runtimeClassName"] = "nvidia"
    return found


def _environment(part: _Part) -> list[Manifest]:
    """Return the variables; a text with a secret's value takes it from a variable before it, so that it stands in no manifest."""
    blueprint, known = part.blueprint, part.known("0.0.0.0")
    texts = {name: text for name, text in blueprint.env.items() if _holds_value(text)}
    needed = [one for text in texts.values() for kind, one in references(text) if kind == "value"]
    found = [{"name": _variable(one), "valueFrom": _reference(part, one)} for one in dict.fromkeys(needed)]
    for name, secret in blueprint.secrets.items():
        if secret.env:
            found.append({"name": secret.env, "valueFrom": _reference(part, name)})
        if secret.env_file:
            found.append({"name": secret.env_file, "value": f"{_SECRETS}/{name}"})
    escaped = {name: _literal(value) for name, value in known.items()}
    values = {f"value.{name}": f"$({_variable(name)})" for name in blueprint.secrets}
    for name, text in blueprint.env.items():
        found.append({"name": name, "value": filled(text.replace("$", "$$"), {**escaped, **values})})
    return found


def _reference(part: _Part, name: str) -> Manifest:
    return {"secretKeyRef": _secret_key(part, name)}


def _secret_key(part: _Part, name: str) -> dict[str, str]:
    """Return in which Secret a value is."""
    source = part.blueprint.secrets[name].source
    if source.startswith("store:"):
        secret, _, key = source.removeprefix("store:").partition("/")
        return {"name": secret, "key": key}
    return {"name": _secret_name(part.name), "key": name}


def _probes(part: _Part) -> Manifest:
    """Return the probes; readiness has its time to come up, in which nothing else is asked."""
    blueprint, ready = part.blueprint, part.blueprint.ready
    if not (ready.command or blueprint.ports):
        return {}
    found = {
        "startupProbe": {
            **_probe(part, ready),
            "failureThreshold": math.ceil(ready.within / max(1, math.ceil(ready.every))),
        },
        "readinessProbe": _probe(part, ready),
    }
    if blueprint.live:
        found["livenessProbe"] = _probe(part, blueprint.live)
    return found


def _probe(part: _Part, probe: ServiceProbe) -> Manifest:
    asked: Manifest
    if probe.command:
        known = part.known("127.0.0.1")
        asked = {"exec": {"command": [filled(word, known) for word in probe.command]}}
    else:
        port = object_name(probe.port or part.blueprint.main_port or "")
        asked = {"httpGet": {"path": probe.path, "port": port}} if probe.path else {"tcpSocket": {"port": port}}
    return {
        **asked,
        "periodSeconds": max(1, math.ceil(probe.every)),
        "timeoutSeconds": max(1, math.ceil(probe.timeout)),
        "failureThreshold": probe.failures,
    }


def _storage(part: _Part) -> tuple[list[Manifest], list[Manifest]]:
    """Return the pod's volumes, and where its container has them."""
    blueprint = part.blueprint
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []
    for name, volume in blueprint.volumes.items():
        claim = {"claimName": f"{part.name}-{object_name(name)}"}
        volumes.append({"name": f"data-{object_name(name)}", "persistentVolumeClaim": claim})
        mounts.append({"name": f"data-{object_name(name)}", "mountPath": volume.path})
    for number, path in enumerate(dict.fromkeys(("/tmp", *blueprint.writable))):
        medium: Manifest = {"medium": "Memory"} if path == "/dev/shm" else {}
        volumes.append({"name": f"writable-{number}", "emptyDir": medium})
        mounts.append({"name": f"writable-{number}", "mountPath": path})
    files = [_source(part, name) for name in _secret_files(blueprint)]
    if files:
        volumes.append({"name": "cordee-secrets", "projected": {"defaultMode": 0o440, "sources": files}})
        mounts.append({"name": "cordee-secrets", "mountPath": _SECRETS, "readOnly": True})
    files = [_file_source(part, name, text) for name, text in blueprint.files.items()]
    if files:
        volumes.append({"name": "cordee-files", "projected": {"defaultMode": 0o440, "sources": files}})
        mounts.append({"name": "cordee-files", "mountPath": _FILES, "readOnly": True})
    return volumes, mounts


def _secret_files(blueprint: Blueprint) -> list[str]:
    """Return the secrets that the program has as files."""
    texts = [*(blueprint.image_argv or ()), *blueprint.env.values(), *blueprint.files.values()]
    for probe in (blueprint.ready, blueprint.live):
        texts += (probe.command if probe else None) or ()
    named = {name for text in texts for kind, name in references(text) if kind == "secret"}
    return [name for name, secret in blueprint.secrets.items() if secret.env_file or name in named]


def _source(part: _Part, name: str) -> Manifest:
    where = _secret_key(part, name)
    return {"secret": {"name": where["name"], "items": [{"key": where["key"], "path": name}]}}


def _file_source(part: _Part, name: str, text: str) -> Manifest:
    items = [{"key": _file_key(name), "path": name}]
    if _holds_value(text):
        return {"secret": {"name": _secret_name(part.name), "items": items}}
    return {"configMap": {"name": f"{part.name}-files", "items": items}}


def _service(part: _Part) -> Iterator[Manifest]:
    blueprint, web = part.blueprint, _web_port(part.blueprint)
    if not blueprint.ports:
        return
    ports = [
        {"name": object_name(name), "port": port.port, "targetPort": object_name(name), "protocol": "TCP"}
        for name, port in blueprint.ports.items()
    ]
    spec = {"type": "ClusterIP", "selector": part.labels, "ports": ports}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": part.metadata(part.name), "spec": spec}
    if part.place.ingress and web:
        backend = {"service": {"name": part.name, "port": {"name": object_name(web)}}}
        rule = {
            "host": part.place.ingress,
            "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
        }
        yield {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": part.metadata(part.name),
            "spec": {"tls": [{"hosts": [part.place.ingress], "secretName": f"{part.name}-tls"}], "rules": [rule]},
        }


def _web_port(blueprint: Blueprint) -> str | None:
    return next((name for name, port in blueprint.ports.items() if port.protocol == "http"), None)


def _replaced(blueprint: Blueprint) -> bool:
    return bool(blueprint.volumes or blueprint.need.gpus)


def _pods(blueprint: Blueprint) -> int:
    """Return how many pods there are at once: a rolling update of some needs room for more (a quarter, Kubernetes' default)."""
    return blueprint.replicas + (0 if _replaced(blueprint) else math.ceil(blueprint.replicas / 4))


def _secret_name(service: str) -> str:
    return f"{service}-secrets"


def _file_key(name: str) -> str:
    return f"file.{name}"  # a name of a secret has no dot, so none is the same


def _variable(secret: str) -> str:
    return f"CORDEE_SECRET_{secret}"


def _holds_value(text: str) -> bool:
    return any(kind == "value" for kind, _ in references(text))


def _literal(text: str) -> str:
    """Return a text of which Kubernetes makes this one: `$(NAME)` would be a variable, `$$` is a dollar."""
    return text.replace("$", "$$")


def _quantity(size: int) -> str:
    for unit, bytes_ in (("Ti", 1 << 40), ("T", 10**12), ("Gi", 1 << 30), ("G", 10**9), ("Mi", 1 << 20), ("M", 10**6)):
        if size and size % bytes_ == 0:
            return f"{size // bytes_}{unit}"
    return str(size)


class _Dumper(yaml.SafeDumper):
    """YAML that every version of the language reads the same: `1e3`, `on` and `0o7` are texts only in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    block = "\n" in text and "\t" not in text
    plain = _PLAIN.match(text) and text.lower() not in ("true", "false", "yes", "null", "off", ".inf", ".nan")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if block else None if plain else '"')


_Dumper.add_representer(str, _text)


def yaml_text(documents: list[Manifest]) -> str:
    """Return objects as a stream of YAML documents."""
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, allow_unicode=True))
