"""A namespace: what it may take, who may see it, and that nothing in it is reached unless a policy says so.

It is one service's own, or a team's, whose services share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cordee.job.profile import TeamSpace
from cordee.systems.services.kubernetes.cilium import cilium_policy
from cordee.systems.services.kubernetes.part import CREATOR, TEAM_LABEL, Manifest, ServicePart, manifest, pods, quantity
from cordee.systems.services.start import owner_of

GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}
_RBAC = "rbac.authorization.k8s.io"
_CONTAINER_MEMORY = 1 << 30


def own_namespace(parts: list[ServicePart]) -> Iterator[Manifest]:
    """Yield the namespace of one service and of those it comes after, with a quota of what they ask for."""
    place, main = parts[-1].place, parts[-1].blueprint
    blueprints = [part.blueprint for part in parts]
    sizes = [volume.size for one in blueprints for volume in one.volumes.values()]
    hard = _quota(
        sum(pods(one) for one in blueprints),
        sum(one.need.cpus * pods(one) for one in blueprints),
        sum(one.need.memory * pods(one) for one in blueprints),
        sum(sizes),
        {
            vendor: sum(one.need.gpus * pods(one) for one in blueprints if one.need.gpu_vendor == vendor)
            for vendor in GPU_RESOURCES
        },
        int(place.load_balancer),
    )
    hard["persistentvolumeclaims"] = str(len(sizes))
    memories = [one.need.memory for one in blueprints]
    about = {"cordee/owner": owner_of(main), **({"cordee/project": place.project} if place.project else {})}
    groups = {"view": [place.project] if place.project else []}
    yield from _objects(place.namespace, CREATOR, about, hard, (min(memories), max(memories)), groups)


def team_namespace(name: str, team: TeamSpace, cilium: bool) -> list[Manifest]:
    """Return the namespace that the services of a team share, as a site's profile has it."""
    gpus = {vendor: team.gpus if vendor == team.gpu_vendor else 0 for vendor in GPU_RESOURCES}
    hard = _quota(team.pods, team.cpus, team.memory, team.storage, gpus, team.load_balancers)
    labels = {**CREATOR, TEAM_LABEL: name}
    about = {"cordee/project": team.project or name}
    if team.rancher:
        about["field.cattle.io/projectId"] = team.rancher
    groups = {"view": team.members or (name,), "edit": team.deployers}
    memory = min(_CONTAINER_MEMORY, team.memory), team.memory
    found = [*_objects(name, labels, about, hard, memory, groups)]
    return [cilium_policy(one) if cilium and one["kind"] == "NetworkPolicy" else one for one in found]


def _quota(
    pods_: int, cpus: int, memory: int, storage: int, gpus: Mapping[str, int], load_balancers: int
) -> dict[str, str]:
    return {
        "pods": str(pods_),
        "requests.cpu": str(cpus),
        "requests.memory": quantity(memory),
        "limits.memory": quantity(memory),
        "requests.storage": quantity(storage),
        "services.loadbalancers": str(load_balancers),
        "services.nodeports": "0",
        **{f"requests.{resource}": str(gpus[vendor]) for vendor, resource in GPU_RESOURCES.items()},
    }


def _objects(
    name: str,
    labels: dict[str, str],
    about: dict[str, str],
    hard: dict[str, str],
    memory: tuple[int, int],
    groups: Mapping[str, Iterable[str]],
) -> Iterator[Manifest]:
    """Yield the namespace and what belongs to it.

    Args:
        about: its annotations.
        hard: its quota.
        memory: what a container gets that asks for none, and the most of one, in bytes.
        groups: who has which ClusterRole of Kubernetes' own in it; `view` shows no Secrets and lets nobody into a pod.
    """
    modes = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    metadata = {"name": name, "labels": {**labels, **modes}, "annotations": about}
    yield manifest("Namespace", metadata)
    here = {"namespace": name, "labels": labels}
    yield manifest("ResourceQuota", {"name": "cordee", **here}, spec={"hard": hard})
    limit = {
        "type": "Container",
        "default": {"memory": quantity(memory[0])},
        "defaultRequest": {"cpu": "100m"},
        "max": {"memory": quantity(memory[1])},
    }
    yield manifest("LimitRange", {"name": "cordee", **here}, spec={"limits": [limit]})
    for role, known in groups.items():
        subjects = [{"apiGroup": _RBAC, "kind": "Group", "name": group} for group in known]
        if subjects:
            about_role = {"name": "cordee-project" if role == "view" else f"cordee-{role}", **here}
            ref = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
            yield manifest("RoleBinding", about_role, roleRef=ref, subjects=subjects)
    nothing = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    yield manifest("NetworkPolicy", {"name": "default-deny", **here}, spec=nothing)
    dns = {
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
        "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
    }
    asks = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [dns]}
    yield manifest("NetworkPolicy", {"name": "dns", **here}, spec=asks)
