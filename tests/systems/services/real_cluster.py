"""Releases on a real API server (`make test-kubernetes`): the stand-in's tests, and every entry of the catalogue applied twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.systems.services.api_server import ApiServer
from tests.systems.services.releases import ReleaseContract, did, documents, unreachable
from tests.systems.services.test_kubernetes import RENDERED, VALUES

from cordee.core.errors import CordeeError
from cordee.systems.services.catalogue import find_blueprint
from cordee.systems.services.kubernetes.kubectl import FieldConflict, Kubectl
from cordee.systems.services.kubernetes.manifests import manifests, secret_manifests
from cordee.systems.services.kubernetes.part import KubernetesPlace
from cordee.systems.services.kubernetes.release import Release

KINDS = (
    "deployments,services,ingresses,networkpolicies,configmaps,secrets,pvc,serviceaccounts,rolebindings,resourcequotas,"
    "limitranges"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = ApiServer(tmp_path_factory.mktemp("api"))
    yield server
    server.stop()


@pytest.fixture
def cluster(server, monkeypatch) -> Path:
    """The server without namespaces of ours: nothing deletes what is in one here, so each object is deleted by itself."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    for space in ("team", "cache", "argocd"):
        if Kubectl().get("namespaces", space, "") is None:
            continue
        subprocess.run(["kubectl", "-n", space, "delete", KINDS, "--all", "--wait=false"], capture_output=True)
        claims = ["kubectl", "-n", space, "get", "pvc", "-o", "name"]
        for name in subprocess.run(claims, capture_output=True, text=True).stdout.split():
            patch = ["--type=merge", "-p", '{"metadata":{"finalizers":null}}']
            subprocess.run(["kubectl", "-n", space, "patch", name, *patch], capture_output=True)
        subprocess.run(["kubectl", "delete", "ns", space, "--wait=false"], capture_output=True)
        finalize = f"kubectl get ns {space} -o json | sed 's/\"kubernetes\"//' | kubectl replace --raw /api/v1/namespaces/{space}/finalize -f -"
        subprocess.run(["sh", "-c", finalize], capture_output=True)
        assert Kubectl().get("namespaces", space, "") is None
    return server.kubeconfig


class TestReleasesOnARealServer(ReleaseContract):
    @pytest.fixture
    def cluster(self, cluster):
        return cluster

    def test_the_server_itself_refuses_what_passes_by_the_lint(self, release):
        release.apply(documents())
        wrong = documents(1)
        next(one for one in wrong if one["kind"] == "LimitRange")["spec"]["limits"][0]["default"]["memory"] = "10Ti"
        with pytest.raises(CordeeError, match=r"LimitRange|must be less"):
            release.apply(wrong)
        assert self.image().endswith("0")

    def test_a_deployment_that_somebody_edits_by_hand_conflicts_at_the_field(self, release):
        release.apply(documents())
        patch = '{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":99}}}}'
        words = ["kubectl", "-n", "team", "patch", "deployment", "echo", "--type=merge", "-p", patch]
        subprocess.run(words, check=True, capture_output=True)
        with pytest.raises(FieldConflict) as conflict:
            release.changes(documents())
        assert "terminationGracePeriodSeconds" in str(conflict.value.given)


@pytest.mark.parametrize("name", RENDERED)
def test_every_entry_is_applied_twice_changed_pruned_and_gone_back_to(cluster, name):
    loaded, values = find_blueprint(name), VALUES.get(name, {})
    place = KubernetesPlace("team", "climate", "" if name == "ollama" else "x.site.org")
    if all(port.protocol == "tcp" for port in loaded.blueprint.ports.values()):
        place = place._replace(ingress="")
    release = Release(Kubectl(), name, "team")
    first = manifests(loaded, values, place)
    assert set(did(release.apply(first, secrets=secret_manifests(loaded, values, place)))) == {"create"}
    assert set(did(release.apply(first))) == {"same"}
    second = manifests(loaded, values, place._replace(ingress="", project="ocean", on_gpu_nodes=True))
    changes = did(release.apply(second))
    assert "RoleBinding/cordee-project" in changes["change"]
    assert changes.get("prune", set()) == ({f"Ingress/{name}"} if place.ingress else set())
    assert set(did(release.apply(second))) == {"same"}
    release.roll_back(1)
    assert set(did(release.changes(first))) == {"same"}


def test_a_server_that_is_not_there_is_told(tmp_path, monkeypatch):
    unreachable(tmp_path, monkeypatch)
