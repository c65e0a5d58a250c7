"""What is wrong with manifests although their schema is right: what the API server refuses, and names that lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from cordee.core.findings import Finding
from cordee.core.secrets import masked_words

_Object = dict[str, Any]
# Of these groups only: `Service` of Knative and the `template` of a SealedSecret are something else.
_PODS = {
    "/Pod": (),
    "/ReplicationController": ("spec", "template"),
    **dict.fromkeys(
        (f"apps/{kind}" for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")), ("spec", "template")
    ),
    "batch/Job": ("spec", "template"),
    "batch/CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_NAMED = {*_PODS, "/Service", "/ConfigMap", "/Secret"}
_SECRET_VARIABLE = re.compile(
    r"(?i)(.*_)?(token|secret|password|passwd|passphrase|(api|access|auth|private|secret)_?key)\Z"
)
# Controllers add these to their pods; no template has them.
_ADDED_LABELS = {
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "job-name",
    "batch.kubernetes.io/job-name",
}
_SEALED = (("spec", "encryptedData"), ("spec", "template", "data"))
# What adds keys to the Secret that it names, or is named after.
_FILLING = ("external-secrets.io/ExternalSecret", "cert-manager.io/Certificate")
_PROBES = (
    ("startupProbe",),
    ("readinessProbe",),
    ("livenessProbe",),
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
)
_RESTRICTED_VOLUMES = {
    *(
        "name",
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
}
_QUANTITY = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)([a-zA-Z]{0,2})\Z")
_UNITS = {
    **{"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")},
    **{unit: Decimal(1000**power) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024**power) for power, unit in enumerate("KMGTPE", 1)},
}


def manifest_findings(documents: Iterable[_Object]) -> list[Finding]:
    """Return what is wrong with objects that are applied together.

    Errors are what an API server refuses, or what cannot work whatever else the cluster has; the rest are warnings. What may be in the cluster
    already, a namespace that kubectl is told, and ports that containers do not declare are no fault.
    """
    objects = list(_flat(documents))
    found: list[Finding] = []
    for one in objects:
        kind, name = _kind(one), _at(one, "metadata", "name")
        if kind in _NAMED and name is not None and not _NAME.match(str(name)):
            text = f"{_title(one)} has no name that Kubernetes allows"
            found.append(_fault(text, "bad-name", "small letters, digits and -", given=name))
        if kind in _PODS:
            pod = _at(one, *_PODS[kind], "spec") or {}
            found += [*_selector(one), *_containers(one, pod), *_volumes(one, pod), *_keys(one, pod, objects)]
            found += [*_secrets(one, pod), *_restricted(one, pod, objects)]
        elif kind == "/ConfigMap":
            for key, value in (one.get("data") or {}).items():
                if any(_is_secret(key, line) for line in str(value).splitlines()):
                    text = f"{_title(one)} holds a secret in {key}"
                    found.append(_fault(text, "secret-in-config", "put it into a Secret", "warn"))
        found += [*_selected(one, objects), *_backends(one, objects)]
    return found


def _flat(documents: Iterable[Any]) -> Iterator[_Object]:
    """Yield the objects, those of lists one by one."""
    for one in documents:
        if isinstance(one, dict) and isinstance(one.get("items"), list) and str(one.get("kind")).endswith("List"):
            yield from _flat(one["items"])
        elif isinstance(one, dict) and one:
            yield one


def _fault(
    text: str, rule: str, next_: str, severity: str = "error", given: Any = None, allowed: Any = None
) -> Finding:
    return Finding(text, severity, rule, given=given, allowed=allowed, next=next_)


def _at(one: Any, *keys: str) -> Any:
    """Return what is at a path; None where it leads nowhere."""
    for key in keys:
        one = one.get(key) if isinstance(one, dict) else None
    return one


def _list(one: Any, *keys: str) -> list[_Object]:
    """Return the tables of a list at a path."""
    found = _at(one, *keys)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _title(one: _Object) -> str:
    return f"{one.get('kind')} {_at(one, 'metadata', 'name')}"


def _kind(one: _Object) -> str:
    """Return GROUP/KIND; the group of Kubernetes' core has no name."""
    return f"{str(one.get('apiVersion')).rpartition('/')[0]}/{one.get('kind')}"


def _space(one: _Object) -> Any:
    return _at(one, "metadata", "namespace")


def _all_containers(pod: _Object) -> list[_Object]:
    return [*_list(pod, "initContainers"), *_list(pod, "containers")]


def _chosen(selector: Any, labels: Any) -> bool:
    """Return whether a label selector, `matchLabels` and `matchExpressions`, chooses a pod with these labels."""
    labels = labels or {}
    if any(labels.get(key) != value for key, value in (_at(selector, "matchLabels") or {}).items()):
        return False
    for term in _list(selector, "matchExpressions"):
        key, values = term.get("key"), term.get("values") or ()
        is_met = labels[key] in values if key in labels and values else key in labels
        if is_met == (term.get("operator") in ("NotIn", "DoesNotExist")):
            return False
    return True


def _selector(one: _Object) -> Iterator[Finding]:
    selector, labels = _at(one, "spec", "selector"), _at(one, "spec", "template", "metadata", "labels")
    if _kind(one).startswith("apps/") and not (selector and _chosen(selector, labels)):
        text = f"{_title(one)} selects pods that its template does not make"
        yield _fault(text, "selector-mismatch", "give both the same labels", given=selector, allowed=labels)


def _containers(one: _Object, pod: _Object) -> Iterator[Finding]:
    title = _title(one)
    if not _list(pod, "containers"):
        yield _fault(f"{title} has no container", "no-container", "name one with its image")
    for container in _all_containers(pod):
        image = str(container.get("image") or "")
        if not image:
            yield _fault(f"{title} has a container without an image", "no-image", "image: NAME@sha256:DIGEST")
        elif "@sha256:" not in image:
            text = f"{title}: the image is a tag: another one may run tomorrow"
            yield _fault(text, "image-tag", "NAME@sha256:DIGEST", "warn", image)
        ports = _list(container, "ports")
        for port in ports:
            yield from _range(title, port.get("containerPort"))
        names = [port.get("name") for port in ports if port.get("name")]
        for where in _PROBES:
            for way in ("httpGet", "tcpSocket"):
                wanted = _at(container, *where, way, "port")
                if isinstance(wanted, str) and wanted not in names:
                    text = f"{title}: its {where[-1]} asks the port {wanted}, and the container has none of this name"
                    yield _fault(text, "unknown-port", "a port of the container", given=wanted, allowed=names)
                yield from _range(title, wanted)
        yield from _resources(title, container)


def _range(title: str, number: Any) -> Iterator[Finding]:
    if isinstance(number, int) and not 1 <= number <= 65535:
        yield _fault(f"{title}: {number} is no port", "port-range", "a number from 1 to 65535", given=number)


def _resources(title: str, container: _Object) -> Iterator[Finding]:
    limits = _at(container, "resources", "limits") or {}
    for name, given in (_at(container, "resources", "requests") or {}).items():
        asked, most = _number(given), _number(limits.get(name))
        is_counted = ("/" in name and "kubernetes.io/" not in name) or name.startswith("hugepages-")
        if asked is not None and (is_counted if most is None else asked > most or (is_counted and asked != most)):
            text = f"{title} requests {name} = {given}, and its limit is {limits.get(name, 'not there')}"
            what = "the same number as limit" if is_counted else "a request that is at most the limit"
            yield _fault(text, "request-over-limit", what, given=given)


def _number(quantity: Any) -> Decimal | None:
    """Return a quantity as a number; None where it is none."""
    match = _QUANTITY.match(str(quantity))
    return Decimal(match[1]) * _UNITS[match[2]] if match and match[2] in _UNITS else None


def _volumes(one: _Object, pod: _Object) -> Iterator[Finding]:
    title = _title(one)
    names = {volume.get("name") for volume in _list(pod, "volumes")}
    names |= {_at(claim, "metadata", "name") for claim in _list(one, "spec", "volumeClaimTemplates")}
    for container in _all_containers(pod):
        paths = [mount.get("mountPath") for mount in _list(container, "volumeMounts")]
        for path in sorted({str(path) for path in paths if paths.count(path) > 1}):
            yield _fault(f"{title} mounts two volumes at {path}", "same-mount", "give each its own path", given=path)
        for mount in [*_list(container, "volumeMounts"), *_list(container, "volumeDevices")]:
            if mount.get("name") not in names:
                text = f"{title} mounts the volume {mount.get('name')}, which it does not have"
                yield _fault(
                    text, "unknown-volume", "add it to volumes", given=mount.get("name"), allowed=sorted(names)
                )


def _keys(one: _Object, pod: _Object, objects: list[_Object]) -> Iterator[Finding]:
    """Yield keys that Secrets and ConfigMaps which are among the objects do not have."""
    here = [other for other in objects if _space(other) == _space(one)]
    for kind, name, key in _asked(pod):
        known = _known_keys(kind, name, here)
        if known and key not in known:
            text = f"{_title(one)} needs the key {key} of the {kind} {name}, which does not have it"
            what = "add the key, or name one that is there"
            yield _fault(text, "missing-key", what, given=key, allowed=sorted(known))


def _asked(pod: _Object) -> Iterator[tuple[str, Any, Any]]:
    """Yield the kind, name and key of what containers and volumes cannot start without."""
    for container in _all_containers(pod):
        for variable in _list(container, "env"):
            for kind, word in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
                asked = _at(variable, "valueFrom", word)
                if asked and not asked.get("optional"):
                    yield kind, asked.get("name"), asked.get("key")
    for volume in _list(pod, "volumes"):
        for source in [volume, *_list(volume, "projected", "sources")]:
            for kind, word in (("Secret", "secret"), ("ConfigMap", "configMap")):
                asked = _at(source, word)
                for item in _list(asked, "items"):
                    if not asked.get("optional"):
                        yield kind, asked.get("secretName", asked.get("name")), item.get("key")


def _known_keys(kind: str, name: Any, objects: list[_Object]) -> set[str]:
    """Return the keys of a Secret or ConfigMap; none where it is not there, or something in the cluster fills it in."""
    found: set[str] = set()
    for one in objects:
        own, is_named = _kind(one), _at(one, "metadata", "name") == name
        if own in _FILLING and kind == "Secret":
            if is_named or name in (_at(one, "spec", "target", "name"), _at(one, "spec", "secretName")):
                return set()
        elif is_named and own in (f"/{kind}", f"bitnami.com/Sealed{kind}"):
            if one.get("type") == "kubernetes.io/service-account-token":
                return set()
            for path in (("data",), ("stringData",), ("binaryData",), *_SEALED):
                found |= set(_at(one, *path) or ())
    return found


def _secrets(one: _Object, pod: _Object) -> Iterator[Finding]:
    title = _title(one)
    for container in _all_containers(pod):
        variables = _list(container, "env")
        for variable in variables:
            if _is_secret(str(variable.get("name")), variable.get("value")):
                text = f"{title} holds a secret in the variable {variable['name']}"
                yield _fault(text, "secret-in-env", "valueFrom: secretKeyRef", "warn")
        names = [str(variable.get("name")) for variable in variables]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield _fault(f"{title} sets the variable {name} twice", "variable-twice", "leave one out", "warn")


def _is_secret(name: str, value: Any) -> bool:
    text = str(value or "")
    if not text or "$(" in text:
        return False
    return (bool(_SECRET_VARIABLE.match(name)) and not text.startswith("/")) or masked_words([text]) != [text]


def _restricted(one: _Object, pod: _Object, objects: list[_Object]) -> Iterator[Finding]:
    """Yield why a namespace that is among the objects, and enforces the pod security standard `restricted`, refuses a pod."""
    label = "pod-security.kubernetes.io/enforce"
    spaces = [
        other for other in objects if _kind(other) == "/Namespace" and _at(other, "metadata", "name") == _space(one)
    ]
    enforced = [(_at(space, "metadata", "labels") or {}).get(label) for space in spaces]
    if "restricted" not in enforced or _at(pod, "os", "name") == "windows":
        return
    whole = pod.get("securityContext") or {}
    wrong = [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    wrong += [f"the volume {one.get('name')}" for one in _list(pod, "volumes") if one.keys() - _RESTRICTED_VOLUMES]
    for container in _all_containers(pod):
        own = container.get("securityContext") or {}
        told, capabilities = {**whole, **own}, own.get("capabilities") or {}
        added = set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}
        seccomp = _at(told, "seccompProfile", "type")
        checks = {
            "privileged": own.get("privileged"),
            "runAsUser: 0": 0 in (whole.get("runAsUser"), own.get("runAsUser")),
            "no runAsNonRoot: true": told.get("runAsNonRoot") is not True,
            "no allowPrivilegeEscalation: false": own.get("allowPrivilegeEscalation") is not False,
            "no capabilities: {drop: [ALL]}": "ALL" not in (capabilities.get("drop") or ()),
            f"capabilities: {{add: [{', '.join(sorted(added))}]}}": added,
            "no seccompProfile: {type: RuntimeDefault}": seccomp not in ("RuntimeDefault", "Localhost"),
            "hostPort": any(port.get("hostPort") for port in _list(container, "ports")),
        }
        wrong += [what for what, is_wrong in checks.items() if is_wrong]
    for what in dict.fromkeys(wrong):
        text = f"{_title(one)} has {what}: its namespace enforces the pod security standard restricted, and refuses its pods"
        yield _fault(text, "pod-security", "what the standard asks, or another namespace", given=what)


def _selected(one: _Object, objects: list[_Object]) -> Iterator[Finding]:
    """Yield selectors that choose none of the pods, and ports of a Service that those it chooses do not have."""
    title, kind = _title(one), _kind(one)
    where = {"policy/PodDisruptionBudget": "selector", "networking.k8s.io/NetworkPolicy": "podSelector"}.get(kind)
    if kind != "/Service" and where is None:
        return
    selector = _at(one, "spec", where) if where else {"matchLabels": _at(one, "spec", "selector")}
    wanted = _at(selector, "matchLabels") or {}
    makers = [(other, _template(other)) for other in objects if _space(other) == _space(one)]
    makers = [(other, template) for other, template in makers if _list(template, "spec", "containers")]
    chosen = [(other, template) for other, template in makers if _chosen(selector, _at(template, "metadata", "labels"))]
    if wanted and makers and not chosen and not wanted.keys() & _ADDED_LABELS:
        text = f"{title} selects no pod of these manifests"
        yield _fault(text, "selector-mismatch", "the labels of the pods", "warn", wanted)
    if kind != "/Service":
        return
    # Pods of other kinds, an operator's, may get ports that their template does not name.
    is_seen = bool(wanted and chosen) and all(_kind(other) in _PODS for other, _ in chosen)
    known = {
        (port.get("name"), port.get("protocol", "TCP"))
        for _, template in chosen
        for container in _all_containers(template["spec"])
        for port in _list(container, "ports")
    }
    for port in _list(one, "spec", "ports"):
        target = port.get("targetPort")
        yield from _range(title, port.get("port"))
        yield from _range(title, target)
        if is_seen and isinstance(target, str) and (target, port.get("protocol", "TCP")) not in known:
            text = f"{title} leads to the port {target}, and its pods have none of this name"
            names = sorted({name for name, _ in known if name})
            yield _fault(text, "unknown-port", "a port of the container", given=target, allowed=names)


def _template(one: _Object) -> Any:
    """Return the pod that an object makes, those of operators too; None: none."""
    kind = _kind(one)
    if kind == "/Pod":
        return one
    return _at(one, *_PODS.get(kind, ("spec", "template")))


def _backends(one: _Object, objects: list[_Object]) -> Iterator[Finding]:
    """Yield ports of an Ingress or a route that the Services among the objects do not have."""
    asked: list[tuple[Any, Any, Any]] = []
    if _kind(one) == "networking.k8s.io/Ingress":
        paths = [path for rule in _list(one, "spec", "rules") for path in _list(rule, "http", "paths")]
        for backend in (_at(one, "spec", "defaultBackend"), *(path.get("backend") for path in paths)):
            port = _at(backend, "service", "port") or {}
            asked.append((_at(backend, "service", "name"), _space(one), port.get("name") or port.get("number")))
    elif _kind(one) in ("gateway.networking.k8s.io/HTTPRoute", "gateway.networking.k8s.io/GRPCRoute"):
        for backend in (one for rule in _list(one, "spec", "rules") for one in _list(rule, "backendRefs")):
            if backend.get("kind", "Service") == "Service":
                asked.append((backend.get("name"), backend.get("namespace", _space(one)), backend.get("port")))
    services = {
        (_space(other), _at(other, "metadata", "name")): other for other in objects if _kind(other) == "/Service"
    }
    for name, space, port in asked:
        known = [
            tuple(map(other.get, ("name", "port"))) for other in _list(services.get((space, name)), "spec", "ports")
        ]
        # `use-annotation` is an action of the load balancer controller of AWS, and no port.
        if known and port not in (None, "use-annotation", *(key for pair in known for key in pair)):
            text = f"{_title(one)} leads to the port {port}, which the Service {name} does not have"
            allowed = [own or number for own, number in known]
            yield _fault(text, "unknown-port", "a port of the Service", given=port, allowed=allowed)
