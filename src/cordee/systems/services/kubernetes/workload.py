"""The Deployment of a service: its container, where it may run, its probes, variables and volumes."""

from __future__ import annotations

import math

from cordee.systems.services.blueprint import Blueprint, ServiceProbe
from cordee.systems.services.kubernetes.names import object_name
from cordee.systems.services.kubernetes.namespace import GPU_RESOURCES
from cordee.systems.services.kubernetes.part import (
    CLIENT_LABEL,
    FILES,
    SECRETS,
    Manifest,
    ServicePart,
    file_key,
    holds_value,
    is_replaced,
    labels_of,
    manifest,
    quantity,
    secret_key,
    secret_name,
)
from cordee.systems.services.node.texts import filled, references

GPU_LABEL = "gpu.vendor"


def deployment(part: ServicePart) -> Manifest:
    blueprint = part.blueprint
    reaches = {CLIENT_LABEL + one.name: "true" for one in part.reaches}
    spec = {
        "replicas": blueprint.replicas,
        # Two programs never write one volume, and GPUs are not free twice: the old one ends first.
        "strategy": {"type": "Recreate" if is_replaced(blueprint) else "RollingUpdate"},
        "selector": {"matchLabels": part.labels},
        "template": {"metadata": {"labels": {**part.labels, **reaches}}, "spec": _pod(part)},
    }
    return manifest("Deployment", part.metadata(part.name), spec=spec)


def _pod(part: ServicePart) -> Manifest:
    blueprint = part.blueprint
    volumes, mounts = _storage(part)
    resources: Manifest = {
        "requests": {"cpu": str(blueprint.need.cpus), "memory": quantity(blueprint.need.memory)},
        "limits": {"memory": quantity(blueprint.need.memory)},
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
        "serviceAccountName": part.name,
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


def _placed(part: ServicePart) -> Manifest:
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
                    "labelSelector": {"matchLabels": labels_of(one)},
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


def _environment(part: ServicePart) -> list[Manifest]:
    """Return the variables; a text with a secret's value takes it from a variable before it, so that it stands in no manifest."""
    blueprint, known = part.blueprint, part.known("0.0.0.0")
    texts = {name: text for name, text in blueprint.env.items() if holds_value(text)}
    needed = [one for text in texts.values() for kind, one in references(text) if kind == "value"]
    found = [{"name": _variable(one), "valueFrom": _reference(part, one)} for one in dict.fromkeys(needed)]
    for name, secret in blueprint.secrets.items():
        if secret.env:
            found.append({"name": secret.env, "valueFrom": _reference(part, name)})
        if secret.env_file:
            found.append({"name": secret.env_file, "value": f"{SECRETS}/{name}"})
    escaped = {name: _literal(value) for name, value in known.items()}
    values = {f"value.{name}": f"$({_variable(name)})" for name in blueprint.secrets}
    for name, text in blueprint.env.items():
        found.append({"name": name, "value": filled(text.replace("$", "$$"), {**escaped, **values})})
    return found


def _reference(part: ServicePart, name: str) -> Manifest:
    return {"secretKeyRef": secret_key(part, name)}


def _probes(part: ServicePart) -> Manifest:
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


def _probe(part: ServicePart, probe: ServiceProbe) -> Manifest:
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


def _storage(part: ServicePart) -> tuple[list[Manifest], list[Manifest]]:
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
        mounts.append({"name": "cordee-secrets", "mountPath": SECRETS, "readOnly": True})
    files = [_file_source(part, name, text) for name, text in blueprint.files.items()]
    if files:
        volumes.append({"name": "cordee-files", "projected": {"defaultMode": 0o440, "sources": files}})
        mounts.append({"name": "cordee-files", "mountPath": FILES, "readOnly": True})
    return volumes, mounts


def _secret_files(blueprint: Blueprint) -> list[str]:
    """Return the secrets that the program has as files."""
    texts = [*(blueprint.image_argv or ()), *blueprint.env.values(), *blueprint.files.values()]
    for probe in (blueprint.ready, blueprint.live):
        texts += (probe.command if probe else None) or ()
    named = {name for text in texts for kind, name in references(text) if kind == "secret"}
    return [name for name, secret in blueprint.secrets.items() if secret.env_file or name in named]


def _source(part: ServicePart, name: str) -> Manifest:
    where = secret_key(part, name)
    return {"secret": {"name": where["name"], "items": [{"key": where["key"], "path": name}]}}


def _file_source(part: ServicePart, name: str, text: str) -> Manifest:
    items = [{"key": file_key(name), "path": name}]
    if holds_value(text):
        return {"secret": {"name": secret_name(part.name), "items": items}}
    return {"configMap": {"name": f"{part.name}-files", "items": items}}


def _variable(secret: str) -> str:
    return f"CORDEE_SECRET_{secret}"


def _literal(text: str) -> str:
    """Return a text of which Kubernetes makes this one: `$(NAME)` would be a variable, `$$` is a dollar."""
    return text.replace("$", "$$")
