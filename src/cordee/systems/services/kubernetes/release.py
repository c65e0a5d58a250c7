"""A release: a service's manifests as they are on a cluster. What would change is shown, what is left over is pruned, each can be gone back to."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from cordee.core.clock import monotonic
from cordee.core.documents.faults import document_error
from cordee.core.errors import UsageError
from cordee.systems.services.instance import ServiceFailing
from cordee.systems.services.kubernetes.kubectl import Kubectl, Object
from cordee.systems.services.kubernetes.lint import manifest_findings
from cordee.systems.services.kubernetes.part import RELEASE_LABEL, TEAM_LABEL, manifest
from cordee.systems.services.kubernetes.yaml_text import yaml_text

_RECORD = "cordee/record-of"
_KEPT = 10
_POLL_S = 1.0
_CLAIM = "PersistentVolumeClaim"
# What a release may hold besides its Namespace, as the server calls it; claims are listed and never pruned.
_KINDS = {
    "Deployment": "deployments.apps",
    "Service": "services",
    "Ingress": "ingresses.networking.k8s.io",
    "HTTPRoute": "httproutes.gateway.networking.k8s.io",
    "NetworkPolicy": "networkpolicies.networking.k8s.io",
    "CiliumNetworkPolicy": "ciliumnetworkpolicies.cilium.io",
    "ConfigMap": "configmaps",
    _CLAIM: "persistentvolumeclaims",
    "ServiceAccount": "serviceaccounts",
    "RoleBinding": "rolebindings.rbac.authorization.k8s.io",
    "ResourceQuota": "resourcequotas",
    "LimitRange": "limitranges",
}
# What the server writes by itself.
_SERVERS_OWN = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink")


class ObjectChange(NamedTuple):
    """What applying does to one object.

    Attributes:
        kind, name: of the object.
        what: `create`, `change`, `prune`, `keep` (left over, and left alone) or `same`.
        fields: (path, what it is, what it becomes) of each field that changes.
    """

    kind: str
    name: str
    what: str
    fields: tuple[tuple[str, Any, Any], ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        fields = [{"field": path, "is": now, "becomes": then} for path, now, then in self.fields]
        return {"kind": self.kind, "name": self.name, "what": self.what, "fields": fields}


class Release:
    """The release of a service in a namespace. Each method raises ClusterError where the server is not there, or refuses.

    Args:
        kubectl: the cluster.
        service: its name.
        namespace: where it is.
    """

    def __init__(self, kubectl: Kubectl, service: str, namespace: str) -> None:
        self._kubectl, self.service, self.namespace = kubectl, service, namespace
        known = kubectl.kinds()
        self._listed = [name for name in _KINDS.values() if name in known]

    def changes(self, documents: list[Object], force: bool = False) -> list[ObjectChange]:
        """Return what applying these manifests would do, which is what has drifted where they were applied before.

        Raises:
            DocumentError: the lint finds faults.
            UsageError: another service has the namespace, or one of the objects; or it is a team's that is not there yet.
            FieldConflict: somebody else has set fields.
        """
        faults = [one for one in manifest_findings(documents) if one.severity == "error"]
        if faults:
            raise document_error(faults)
        self._require_own(documents)
        marked = self._marked(documents)
        live = {(one["kind"], one["metadata"]["name"]): one for one in self._kubectl.there(marked)}
        for (kind, name), one in live.items():
            holder = one["metadata"].get("labels", {}).get(RELEASE_LABEL, self.service)
            if holder != self.service:
                what = "give one of them another namespace"
                raise UsageError(f"{kind} {name} is of the release of {holder}", given=self.namespace, next=what)
        found = [
            _change(live.get((one["kind"], one["metadata"]["name"])), one) for one in self._judged(marked, live, force)
        ]
        return [*found, *self._left_over(marked)]

    def apply(self, documents: list[Object], force: bool = False, secrets: Sequence[Object] = ()) -> list[ObjectChange]:
        """Apply manifests and prune what is left over of those before; return what was done.

        Args:
            documents: the manifests.
            force: whether fields that somebody else has set are taken over.
            secrets: Secrets that are made where they are not there; those that are there stay as they are.

        The server judges all of them first, so that what it refuses changes nothing. What is interrupted is finished by the same call.

        Raises:
            As `changes`.
        """
        changes = self.changes(documents, force)
        marked = self._marked(documents)
        space = [one for one in marked if one["kind"] == "Namespace"]
        if space:
            self._kubectl.apply(space, force)
        self._keep_record(documents)
        for secret in secrets:
            if self._kubectl.get("secrets", secret["metadata"]["name"], self.namespace) is None:
                self._kubectl.create(secret)
        self._kubectl.apply(marked, force)
        for change in changes:
            if change.what == "prune":
                self._kubectl.delete(_KINDS[change.kind], change.name, self.namespace)
        return changes

    def revisions(self) -> dict[int, list[Object]]:
        """Return the manifests of the releases that are kept, by their numbers."""
        found = {}
        for one in self._kubectl.labelled(["configmaps"], self.namespace, f"{_RECORD}={self.service}"):
            found[int(one["data"]["revision"])] = list(yaml.safe_load_all(one["data"]["manifests"]))
        return dict(sorted(found.items()))

    def roll_back(self, number: int | None, force: bool = False) -> list[ObjectChange]:
        """Apply an earlier release again: the one before, or that of a number.

        Raises:
            UsageError: there is none.
            As `apply`.
        """
        known = self.revisions()
        wanted = number if number is not None else (list(known)[-2] if len(known) > 1 else None)
        if wanted not in known:
            raise UsageError(
                f"{self.service} has no {'release before this one' if number is None else f'release {number}'}",
                given=number,
                allowed=list(known) or "none is kept",
            )
        return self.apply(known[wanted], force)

    def remove(self, whole: bool = False) -> list[ObjectChange]:
        """Delete all of it but its data and its namespace.

        Args:
            whole: data, Secrets and earlier releases go, too, with the namespace where that is no team's.
        """
        changes = list(self._left_over([]))
        if whole:
            changes = [change._replace(what="prune") for change in changes]
            for kind, label in (("secrets", RELEASE_LABEL), ("configmaps", _RECORD)):
                for one in self._kubectl.labelled([kind], self.namespace, f"{label}={self.service}"):
                    changes.append(ObjectChange(one["kind"], one["metadata"]["name"], "prune"))
        for change in changes:
            if change.what == "prune":
                self._kubectl.delete(_KINDS.get(change.kind, "secrets"), change.name, self.namespace)
        if whole and TEAM_LABEL not in self._quota_labels():
            self._kubectl.delete("namespaces", self.namespace, "")
        return changes

    def waiting(self) -> list[str]:
        """Return what the Deployments of the release wait for, as the cluster has it; empty: their newest pods are ready.

        Raises:
            UsageError: the service has no release in this namespace.
        """
        found = self._kubectl.labelled([_KINDS["Deployment"]], self.namespace, f"{RELEASE_LABEL}={self.service}")
        if not found:
            text = f"{self.service} has no release in the namespace {self.namespace}"
            raise UsageError(
                text, given=self.namespace, next=f"`cordee service deploy {self.service} --target kubernetes`"
            )
        return [text for one in found if (text := _waits(one))]

    def wait(self, wait_s: float, told: Callable[[str], None]) -> None:
        """Wait until the Deployments of a release run its newest pods.

        Raises:
            ServiceFailing: they do not in time; says why, as the cluster has it.
        """
        until, said = monotonic() + wait_s, ""
        while True:
            waits = self.waiting()
            if not waits:
                return
            if waits[0] != said:
                said = waits[0]
                told(said)
            if monotonic() > until:
                what = f"`kubectl -n {self.namespace} get pods,events`; `cordee service rollback` goes back"
                raise ServiceFailing(f"{self.service} is not ready after {wait_s:.0f} s: {said}", next=what)
            time.sleep(_POLL_S)

    def _marked(self, documents: list[Object]) -> list[Object]:
        """Return the objects with the label by which they are found again."""
        marked = copy.deepcopy(documents)
        for one in marked:
            if one["kind"] != "Namespace":
                one["metadata"].setdefault("labels", {})[RELEASE_LABEL] = self.service
        return marked

    def _quota_labels(self) -> dict[str, str]:
        quota = self._kubectl.get(_KINDS["ResourceQuota"], "cordee", self.namespace) or {}
        labels: dict[str, str] = quota.get("metadata", {}).get("labels", {})
        return labels

    def _require_own(self, documents: list[Object]) -> None:
        """Raise UsageError where another service has the namespace: two would write its quota and its policies."""
        labels, shared = self._quota_labels(), all(one["kind"] != "Namespace" for one in documents)
        holder = labels.get(RELEASE_LABEL)
        if shared and not labels:
            what = f"who runs the cluster makes it: `cordee service team {self.namespace} | kubectl apply --server-side -f -`"
            raise UsageError(
                f"the namespace {self.namespace} of the team is not there", given=self.namespace, next=what
            )
        if TEAM_LABEL in labels and not shared:
            what = f"--on CLUSTER, whose profile has [kubernetes.teams.{self.namespace}]; or change --namespace"
            raise UsageError(f"the namespace {self.namespace} is a team's", given=self.namespace, next=what)
        if holder and (shared or holder != self.service):
            what = f"change --namespace, or `cordee service stop {holder} --namespace {self.namespace}`"
            raise UsageError(f"the namespace {self.namespace} is that of {holder}", given=self.namespace, next=what)

    def _judged(self, marked: list[Object], live: Mapping[tuple[str, str], Object], force: bool) -> list[Object]:
        """Return the objects as the server would have them; where the namespace is not there yet, as they are given."""
        space = [one for one in marked if one["kind"] == "Namespace"]
        if not space or ("Namespace", self.namespace) in live:
            return self._kubectl.judged(marked, force)
        self._kubectl.judged(space, force)
        return marked

    def _left_over(self, marked: list[Object]) -> Iterator[ObjectChange]:
        """Yield what an earlier release has left that this one does not have; data stays."""
        there = {(one["kind"], one["metadata"]["name"]) for one in marked}
        for one in self._kubectl.labelled(self._listed, self.namespace, f"{RELEASE_LABEL}={self.service}"):
            kind, name = one["kind"], one["metadata"]["name"]
            if (kind, name) not in there and kind in _KINDS:
                yield ObjectChange(kind, name, "keep" if kind == _CLAIM else "prune")

    def _keep_record(self, documents: list[Object]) -> None:
        """Keep manifests in the cluster, so that any machine goes back to them; the same as the last ones are no new release."""
        known, text = self.revisions(), yaml_text(documents)
        if known and yaml_text(known[max(known)]) == text:
            return
        number = max(known, default=0) + 1
        name = {"name": f"cordee-{self.service}-{number}", "namespace": self.namespace}
        data = {"revision": str(number), "manifests": text}
        self._kubectl.apply([manifest("ConfigMap", {**name, "labels": {_RECORD: self.service}}, data=data)])
        for old in sorted(known)[: max(0, len(known) + 1 - _KEPT)]:
            self._kubectl.delete("configmaps", f"cordee-{self.service}-{old}", self.namespace)


def _waits(live: Object) -> str:
    """Return what a Deployment waits for; empty: nothing."""
    status, wanted = live.get("status") or {}, live["spec"]["replicas"]
    ready = min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0))
    if status.get("observedGeneration") == live["metadata"].get("generation") and ready >= wanted:
        return ""
    reasons = [one.get("message", "") for one in status.get("conditions") or () if one.get("status") == "False"]
    name = live["metadata"]["name"]
    return f"Deployment {name}: {ready} of {wanted} pods are ready" + (f": {reasons[0]}" if reasons else "")


def _change(live: Object | None, wanted: Object) -> ObjectChange:
    kind, name = wanted["kind"], wanted["metadata"]["name"]
    if live is None:
        return ObjectChange(kind, name, "create")
    fields = tuple(_differences(live, wanted, ""))
    return ObjectChange(kind, name, "change" if fields else "same", fields)


def _differences(live: Any, wanted: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, live, wanted) of what differs; what the server writes by itself is left out."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        for key in sorted({*live, *wanted}):
            if path in ("", ".metadata") and key in (*_SERVERS_OWN, "status"):
                continue
            yield from _differences(live.get(key), wanted.get(key), f"{path}.{key}")
    elif isinstance(live, list) and isinstance(wanted, list) and len(live) == len(wanted):
        for index, (one, other) in enumerate(zip(live, wanted, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif live != wanted:
        yield path, live, wanted
