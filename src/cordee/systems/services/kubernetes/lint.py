"""What is wrong with manifests although their schema is right: names that lead nowhere, doors left open, secrets in the open."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cordee.core.findings import Finding
from cordee.core.secrets import masked_words

_Object = dict[str, Any]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_SECRET_VARIABLE = re.compile(
    r"(?i)(.*_)?(token|secret|password|passwd|passphrase|(api|access|auth|private|secret)_?key)\Z"
)
_WITHOUT_NAMESPACE = ("Namespace", "ClusterRole", "ClusterRoleBinding", "StorageClass", "PersistentVolume")
_HOST_KEYS = ("hostNetwork", "hostPID", "hostIPC")


def manifest_findings(documents: Iterable[_Object]) -> list[Finding]:
    """Return what is wrong with objects that are applied together: errors where they would not work or not be safe, else warnings.

    Secrets and objects of other namespaces are not looked for: they are in no manifest.
    """
    objects = [one for one in documents if isinstance(one, dict) and one]
    found = [*_names(objects), *_open_secrets(objects), *_namespaces(objects)]
    pods = [(_title(one), pod, labels, one) for one in objects for pod, labels in _pod(one)]
    for title, pod, labels, one in pods:
        found += [
            *_workload(title, one, labels),
            *_containers(title, pod),
            *_pod_security(title, pod),
            *_mounted(title, pod, one, objects),
            *_nodes(title, pod),
        ]
    for one in objects:
        found += _LOOKS.get(one.get("kind", ""), _nothing)(one, objects)
    return [*found, *_quota(objects, pods)]


def _fault(text: str, rule: str, next_: str, severity: str = "error", given: Any = None) -> Finding:
    return Finding(text, severity, rule, given=given, next=next_)


def _beside(one: _Object, objects: list[_Object], kind: str) -> dict[str, _Object]:
    """Return the objects of a kind in the namespace of one, by name."""
    return {
        other["metadata"]["name"]: other
        for other in objects
        if other.get("kind") == kind and _space(other) == _space(one)
    }


def _title(one: _Object) -> str:
    return f"{one.get('kind')} {one.get('metadata', {}).get('name')}"


def _space(one: _Object) -> str:
    return str(one.get("metadata", {}).get("namespace", ""))


def _pod(one: _Object) -> Iterator[tuple[_Object, dict[str, str]]]:
    """Yield the pod of a workload, and its labels."""
    if one.get("kind") == "Pod":
        yield one.get("spec") or {}, one.get("metadata", {}).get("labels") or {}
    spec = one.get("spec") or {}
    if one.get("kind") == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    template = spec.get("template")
    if isinstance(template, dict):
        yield template.get("spec") or {}, (template.get("metadata") or {}).get("labels") or {}


def _all_containers(pod: _Object) -> list[_Object]:
    return [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]


def _nothing(one: _Object, objects: list[_Object]) -> Iterator[Finding]:
    return iter(())


def _names(objects: list[_Object]) -> Iterator[Finding]:
    seen = set()
    spaces = {one["metadata"]["name"] for one in objects if one.get("kind") == "Namespace"}
    for one in objects:
        name, title = str(one.get("metadata", {}).get("name", "")), _title(one)
        key = (one.get("kind"), _space(one), name)
        if key in seen:
            yield _fault(f"{title} is there twice", "same-name", "give each its own name")
        seen.add(key)
        if not all(_NAME.match(part) for part in name.split(".")):
            yield _fault(
                f"{title} has no name that Kubernetes allows", "bad-name", "small letters, digits and -", given=name
            )
        if one.get("kind") in _WITHOUT_NAMESPACE:
            continue
        if not _space(one):
            yield _fault(f"{title} is in no namespace: it would land where kubectl just is", "no-namespace", "name it")
        elif spaces and _space(one) not in spaces:
            text = f"{title} is in the namespace {_space(one)}, which is not made here"
            yield _fault(text, "unknown-namespace", f"one of {', '.join(sorted(spaces))}")


def _open_secrets(objects: list[_Object]) -> Iterator[Finding]:
    for one in objects:
        title = _title(one)
        if one.get("kind") == "Secret" and (one.get("data") or one.get("stringData")):
            yield _fault(f"{title} has values: they would be in Git", "secret-in-manifest", "refer to it by its name")
        if one.get("kind") == "ConfigMap":
            for name, value in (one.get("data") or {}).items():
                if _is_secret(name, value) or masked_words(str(value).split("\n")) != str(value).split("\n"):
                    yield _fault(f"{title} holds a secret in {name}", "secret-in-config", "put it into a Secret")
        for pod, _ in _pod(one):
            for container in _all_containers(pod):
                for variable in container.get("env") or ():
                    if _is_secret(variable.get("name", ""), variable.get("value")):
                        text = f"{title} holds a secret in the variable {variable['name']}"
                        yield _fault(text, "secret-in-env", "valueFrom: secretKeyRef")
                names = [variable.get("name") for variable in container.get("env") or ()]
                for name in sorted({str(name) for name in names if names.count(name) > 1}):
                    yield _fault(f"{title} sets the variable {name} twice", "variable-twice", "leave one out")
                words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
                if masked_words(words) != words:
                    yield _fault(f"{title} holds a secret in its arguments", "secret-in-argv", "hand it over by a file")


def _is_secret(name: str, value: Any) -> bool:
    text = str(value or "")
    if not text or "$(" in text:
        return False
    return (bool(_SECRET_VARIABLE.match(name)) and not text.startswith("/")) or masked_words([text]) != [text]


def _namespaces(objects: list[_Object]) -> Iterator[Finding]:
    for one in objects:
        if one.get("kind") != "Namespace":
            continue
        name = one["metadata"]["name"]
        labels = one["metadata"].get("labels") or {}
        if labels.get("pod-security.kubernetes.io/enforce") != "restricted":
            text = f"Namespace {name} does not enforce the pod security standard restricted"
            yield _fault(text, "pod-security", "pod-security.kubernetes.io/enforce: restricted")
        denies = any(_denies_all(other) for other in objects if _space(other) == name)
        if not denies:
            text = f"Namespace {name} has no policy that denies all traffic which is not named"
            yield _fault(text, "no-default-deny", "a NetworkPolicy with podSelector: {} and both policyTypes")


def _denies_all(policy: _Object) -> bool:
    """Return whether an object is a policy that lets no pod of its namespace reach or be reached."""
    spec = policy.get("spec") or {}
    if policy.get("kind") == "CiliumNetworkPolicy":
        return bool(spec == {"endpointSelector": {}, "ingress": [{}], "egress": [{}]})
    both = {"Ingress", "Egress"} <= set(spec.get("policyTypes") or ())
    return (
        policy.get("kind") == "NetworkPolicy" and both and not any(map(spec.get, ("podSelector", "ingress", "egress")))
    )


def _workload(title: str, one: _Object, labels: dict[str, str]) -> Iterator[Finding]:
    spec = one.get("spec") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") if isinstance(spec.get("selector"), dict) else None
    if one.get("kind") in ("Deployment", "StatefulSet", "DaemonSet") and not _chosen(wanted, labels):
        text = f"{title} selects pods that its template does not make"
        yield _fault(text, "selector-mismatch", "give both the same labels", given=wanted)


def _chosen(wanted: dict[str, str] | None, labels: dict[str, str]) -> bool:
    return bool(wanted) and all(labels.get(key) == value for key, value in (wanted or {}).items())


def _containers(title: str, pod: _Object) -> Iterator[Finding]:
    if not pod.get("containers"):
        yield _fault(f"{title} has no container", "no-container", "name one with its image")
    ports: dict[int, str] = {}
    for container in _all_containers(pod):
        image = str(container.get("image") or "")
        last = image.rpartition("/")[2]
        if not image:
            yield _fault(f"{title} has a container without an image", "no-image", "image: NAME@sha256:DIGEST")
        elif "@sha256:" not in image:
            latest = ":" not in last or last.endswith(":latest")
            text = "is whatever was pushed last" if latest else "is a tag: another one may run tomorrow"
            yield _fault(
                f"{title}: the image {text}",
                "image-latest" if latest else "image-tag",
                "NAME@sha256:DIGEST",
                "error" if latest else "warn",
                image,
            )
        if not ((container.get("resources") or {}).get("limits") or {}).get("memory"):
            text = f"{title} has no limit of memory: it may take its node's"
            yield _fault(text, "no-limit", "resources.limits.memory")
        own = container.get("ports") or []
        for port in own:
            number = port.get("containerPort")
            yield from _range(title, number)
            if number in ports:
                yield _fault(f"{title} has the port {number} twice", "same-port", "give each its own", given=number)
            ports[number] = str(port.get("name", ""))
        names, numbers = {port.get("name") for port in own}, {port.get("containerPort") for port in own}
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind) or {}
            for way in ("httpGet", "tcpSocket", "grpc"):
                port = (probe.get(way) or {}).get("port")
                if port is not None and port not in names | numbers:
                    text = f"{title}: its {kind} asks the port {port}, on which nothing listens"
                    yield _fault(text, "unknown-port", "a port of the container", given=port)
        if own and container in (pod.get("containers") or ()) and not container.get("readinessProbe"):
            text = f"{title} has no readinessProbe: it counts as ready before it answers"
            yield _fault(text, "no-probe", "readinessProbe")
        seen = set()
        for mount in container.get("volumeMounts") or ():
            if mount.get("mountPath") in seen:
                text = f"{title} mounts two volumes at {mount.get('mountPath')}"
                yield _fault(text, "same-mount", "give each its own path")
            seen.add(mount.get("mountPath"))


def _range(title: str, number: Any) -> Iterator[Finding]:
    if isinstance(number, int) and not 1 <= number <= 65535:
        yield _fault(f"{title}: {number} is no port", "port-range", "a number from 1 to 65535", given=number)


def _pod_security(title: str, pod: _Object) -> Iterator[Finding]:
    """Yield where a pod is not what the standard `restricted` asks, and where it could be closer."""
    whole = pod.get("securityContext") or {}
    for key in _HOST_KEYS:
        if pod.get(key):
            yield _fault(f"{title} is in its node's world: {key}", "host-access", f"leave {key} out")
    for volume in pod.get("volumes") or ():
        if volume.get("hostPath"):
            text = f"{title} has a folder of its node: {volume.get('name')}"
            yield _fault(text, "host-access", "a persistentVolumeClaim")
    if pod.get("automountServiceAccountToken") is not False:
        text = f"{title} has a key to the API server, which it does not need"
        yield _fault(text, "token-mounted", "automountServiceAccountToken: false")
    for container in _all_containers(pod):
        own = container.get("securityContext") or {}
        told, capabilities = {**whole, **own}, own.get("capabilities") or {}
        is_root = told.get("runAsNonRoot") is not True or told.get("runAsUser") == 0 or told.get("runAsGroup") == 0
        gains = "ALL" not in (capabilities.get("drop") or ()) or set(capabilities.get("add") or ()) - {
            "NET_BIND_SERVICE"
        }
        seccomp = (told.get("seccompProfile") or {}).get("type") in ("RuntimeDefault", "Localhost")
        for wrong, text, rule, what in (
            (is_root, "may run as root", "root", "runAsNonRoot: true, and a runAsUser that is not 0"),
            (own.get("privileged"), "is privileged", "privileged", "leave privileged out"),
            (
                own.get("allowPrivilegeEscalation") is not False,
                "may gain privileges",
                "privilege-escalation",
                "allowPrivilegeEscalation: false",
            ),
            (gains, "keeps capabilities of root", "capabilities", "capabilities: {drop: [ALL]}"),
            (not seccomp, "may call all of the kernel", "seccomp", "seccompProfile: {type: RuntimeDefault}"),
        ):
            if wrong:
                yield _fault(f"{title} {text}", rule, what)
        if own.get("readOnlyRootFilesystem") is not True:
            yield _fault(
                f"{title} may change its own programs", "writable-root", "readOnlyRootFilesystem: true", "warn"
            )


def _mounted(title: str, pod: _Object, one: _Object, objects: list[_Object]) -> Iterator[Finding]:
    """Yield what a pod refers to and is not there."""
    there = {
        (other.get("kind"), other["metadata"].get("name")): other for other in objects if _space(other) == _space(one)
    }
    volumes = {volume.get("name"): volume for volume in pod.get("volumes") or ()}
    for container in _all_containers(pod):
        for mount in container.get("volumeMounts") or ():
            if mount.get("name") not in volumes:
                text = f"{title} mounts the volume {mount.get('name')}, which it does not have"
                yield _fault(text, "unknown-volume", "add it to volumes", given=mount.get("name"))
    for volume in volumes.values():
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim:
            known = there.get(("PersistentVolumeClaim", claim))
            if known is None:
                text = f"{title} needs the PersistentVolumeClaim {claim}, which is not there"
                yield _fault(text, "missing-claim", "add it", given=claim)
            elif (one.get("spec") or {}).get("replicas", 1) > 1 and known["spec"].get("accessModes") == [
                "ReadWriteOnce"
            ]:
                text = f"{title} has several pods, and {claim} is for one node"
                yield _fault(text, "shared-claim", "replicas: 1, or ReadWriteMany", given=claim)
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for config in (source.get("configMap") for source in sources):
            known = there.get(("ConfigMap", config.get("name"))) if config else None
            if config and known is None:
                text = f"{title} needs the ConfigMap {config.get('name')}, which is not there"
                yield _fault(text, "missing-config", "add it", given=config.get("name"))
            for item in (config or {}).get("items") or ():
                if known and item.get("key") not in (known.get("data") or {}):
                    text = f"{title} needs {item.get('key')} of the ConfigMap {config['name']}, which has none"
                    yield _fault(text, "missing-config", "add the key", given=item.get("key"))
    account = pod.get("serviceAccountName")
    if account and account != "default" and ("ServiceAccount", account) not in there:
        text = f"{title} needs the ServiceAccount {account}, which is not there"
        yield _fault(text, "missing-account", "add it", given=account)


def _nodes(title: str, pod: _Object) -> Iterator[Finding]:
    """Yield GPUs that cannot be had so, and nodes with GPUs that are taken without."""
    gpus = False
    for container in _all_containers(pod):
        resources = container.get("resources") or {}
        asked, most = resources.get("requests") or {}, resources.get("limits") or {}
        names = {name for name in (*asked, *most) if name.endswith("/gpu") or name.startswith("gpu.")}
        gpus = gpus or bool(names)
        for name in names:
            if asked.get(name, most.get(name)) != most.get(name):
                text = f"{title} asks for {name} as a request; devices are counted by their limit"
                yield _fault(text, "gpu-limit", f"the same number as resources.limits.{name}")
    if pod.get("runtimeClassName") == "nvidia" and not gpus:
        text = f"{title} asks for the runtime of GPUs and for no GPU"
        yield _fault(text, "runtime-class", "leave runtimeClassName out")
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if gpus and not affinity:
        yield _fault(f"{title} does not say whose GPUs it needs", "gpu-vendor", "a nodeAffinity to gpu.vendor", "warn")


def _service(one: _Object, objects: list[_Object]) -> Iterator[Finding]:
    title, spec = _title(one), one.get("spec") or {}
    if spec.get("type") == "NodePort" or (spec.get("type") == "LoadBalancer" and not _is_bounded(spec)):
        text = f"{title} is open beside the Ingress: to whoever reaches a node, without its TLS"
        what = "type: ClusterIP, and an Ingress or a Gateway; or loadBalancerSourceRanges, and no port of nodes"
        yield _fault(text, "open-service", what, given=spec["type"])
    chosen = [
        pod
        for other in objects
        if _space(other) == _space(one)
        for pod, labels in _pod(other)
        if _chosen(spec.get("selector"), labels)
    ]
    if spec.get("selector") and not chosen:
        text = f"{title} selects no pod: nothing answers behind it"
        yield _fault(text, "selector-mismatch", "the labels of the pods", given=spec["selector"])
    there = {
        key
        for pod in chosen
        for container in pod.get("containers") or ()
        for port in container.get("ports") or ()
        for key in (port.get("name"), port.get("containerPort"))
    }
    for port in spec.get("ports") or ():
        yield from _range(title, port.get("port"))
        wanted = port.get("targetPort", port.get("port"))
        yield from _range(title, wanted)
        if chosen and wanted not in there:
            text = f"{title} leads to the port {wanted}, which its pods do not have"
            yield _fault(text, "unknown-port", "a port of the container", given=wanted)


def _is_bounded(spec: _Object) -> bool:
    """Return whether a load balancer lets in named networks only, and nodes no one beside it."""
    networks = spec.get("loadBalancerSourceRanges") or ()
    return (
        bool(networks)
        and not any(str(network).endswith("/0") for network in networks)
        and spec.get("allocateLoadBalancerNodePorts") is False
    )


def _ingress(one: _Object, objects: list[_Object]) -> Iterator[Finding]:
    title, spec = _title(one), one.get("spec") or {}
    services = _beside(one, objects, "Service")
    for rule in spec.get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            service = (path.get("backend") or {}).get("service") or {}
            known = services.get(str(service.get("name")))
            port = (service.get("port") or {}).get("name", (service.get("port") or {}).get("number"))
            ports = known["spec"].get("ports") or () if known else ()
            if known is None:
                text = f"{title} leads to the Service {service.get('name')}, which is not there"
                yield _fault(text, "missing-service", "add it", given=service.get("name"))
            elif not any(port in (one_port.get("name"), one_port.get("port")) for one_port in ports):
                text = f"{title} leads to the port {port}, which {service['name']} does not have"
                yield _fault(text, "unknown-port", "a port of the Service", given=port)
        hosts = [host for tls in spec.get("tls") or () for host in tls.get("hosts") or ()]
        if rule.get("host") not in hosts:
            text = f"{title} publishes {rule.get('host')} without TLS: passwords would be read on the way"
            yield _fault(text, "no-tls", "tls: with its host")


def _route(one: _Object, objects: list[_Object]) -> Iterator[Finding]:
    title, spec = _title(one), one.get("spec") or {}
    if not spec.get("parentRefs"):
        yield _fault(f"{title} is at no Gateway: nobody is sent here", "missing-gateway", "parentRefs")
    if not spec.get("hostnames"):
        yield _fault(f"{title} takes the requests to every host name", "no-host", "hostnames")
    services = _beside(one, objects, "Service")
    ports = {(name, port.get("port")) for name, other in services.items() for port in other["spec"].get("ports") or ()}
    for rule in spec.get("rules") or ():
        for backend in rule.get("backendRefs") or ():
            if (backend.get("name"), backend.get("port")) not in ports:
                text = f"{title} leads to {backend.get('name')}:{backend.get('port')}, which is no Service here"
                yield _fault(text, "missing-service", "a Service and its port", given=backend.get("name"))


def _policy(one: _Object, objects: list[_Object]) -> Iterator[Finding]:
    title, spec = _title(one), one.get("spec") or {}
    wanted = (spec.get("podSelector") or {}).get("matchLabels")
    labels = [labels for other in objects if _space(other) == _space(one) for _, labels in _pod(other)]
    if wanted and not any(_chosen(wanted, known) for known in labels):
        text = f"{title} is about no pod"
        yield _fault(text, "selector-mismatch", "the labels of the pods", given=wanted)
    for way in ("ingress", "egress"):
        for rule in spec.get(way) or ():
            if not rule or not rule.get("from" if way == "ingress" else "to"):
                text = f"{title} allows {way} {'from' if way == 'ingress' else 'to'} everywhere"
                yield _fault(text, "open-policy", "name who may")
            for port in rule.get("ports") or ():
                yield from _range(title, port.get("port"))


def _quota(objects: list[_Object], pods: list[tuple[str, _Object, dict[str, str], _Object]]) -> Iterator[Finding]:
    """Yield quotas that their own namespace's pods do not fit into."""
    for one in objects:
        if one.get("kind") != "ResourceQuota":
            continue
        hard = (one.get("spec") or {}).get("hard") or {}
        for key, most in hard.items():
            where, _, resource = key.partition(".")
            if where not in ("requests", "limits") or resource == "storage":
                continue
            total = sum(
                _number(((container.get("resources") or {}).get(where) or {}).get(resource, 0))
                * int((owner.get("spec") or {}).get("replicas", 1))
                for _, pod, _, owner in pods
                if _space(owner) == _space(one)
                for container in pod.get("containers") or ()
            )
            if total > _number(most):
                text = f"{_title(one)} allows {key} = {most}, and its pods ask for more"
                yield _fault(text, "quota", "raise it, or ask for less", given=most)


def _number(quantity: Any) -> float:
    """Return a quantity as a number; infinite where it is none."""
    match = re.fullmatch(r"([0-9.]+)(m|[kKMGTP]i?)?", str(quantity))
    if not match:
        return float("inf")
    unit = match[2] or ""
    power = "kMGTP".find(unit[:1].replace("K", "k")) + 1 if unit not in ("", "m") else 0
    return float(match[1]) * (0.001 if unit == "m" else (1024 if unit.endswith("i") else 1000) ** power)


def _binding(one: _Object, objects: list[_Object]) -> Iterator[Finding]:
    role = (one.get("roleRef") or {}).get("name")
    if role in ("cluster-admin", "admin", "edit"):
        text = f"{_title(one)} lets its subjects change what is here, and read its Secrets"
        severity = "warn" if role == "edit" else "error"
        yield _fault(text, "wide-role", "the role view, or one of its own", severity, role)


_LOOKS: dict[str, Callable[[_Object, list[_Object]], Iterator[Finding]]] = {
    "Service": _service,
    "Ingress": _ingress,
    "HTTPRoute": _route,
    "NetworkPolicy": _policy,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
}
