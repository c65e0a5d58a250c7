"""Releases, with a `kubectl` that stands in for a cluster and records what it is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from tests.systems.services.releases import ReleaseContract, did, documents, echo

from cordee.core.errors import UsageError
from cordee.job.profile import TeamSpace
from cordee.systems.services.catalogue import find_blueprint
from cordee.systems.services.kubernetes.gitops import write_service, write_team
from cordee.systems.services.kubernetes.kubectl import ClusterError, Kubectl
from cordee.systems.services.kubernetes.manifests import manifests
from cordee.systems.services.kubernetes.namespace import team_namespace
from cordee.systems.services.kubernetes.part import KubernetesPlace

FAKE = Path(__file__).parent / "kubectl_fake.py"
URL = "https://git.site.org/services.git"


@pytest.mark.usefixtures("real")
class TestReleasesOnTheStandIn(ReleaseContract):
    @pytest.fixture
    def cluster(self, tmp_path, monkeypatch) -> Path:
        folder = tmp_path / "cluster"
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin" / "kubectl"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {FAKE} "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("CORDEE_FAKE_CLUSTER", str(folder))
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
        self.folder = folder
        return folder

    def refuse(self, what: str) -> None:
        (self.folder / "refuse").write_text(what)

    def test_gateways_cilium_and_storage_classes_are_taken(self, release):
        place = {
            "ingress": "echo.site.org",
            "gateway": "edge/public",
            "cilium": True,
            "storage_class": "longhorn",
        }
        release.apply(documents(**place))
        assert set(did(release.apply(documents(**place)))) == {"same"}
        changes = did(release.apply(documents()))
        assert {"HTTPRoute/echo", "CiliumNetworkPolicy/dns"} <= changes["prune"]

    def test_an_apply_that_stops_half_way_says_how_far_it_came_and_the_same_call_finishes_it(self, release):
        release.apply(documents())
        self.refuse("-Service/echo")
        changed = documents(1)
        changed[-1]["spec"]["ports"][0]["port"] = 9000
        with pytest.raises(ClusterError, match=r"\d+ of \d+ objects are applied, but: .*exceeded quota"):
            release.apply(changed)
        assert self.image().endswith("1")
        self.refuse("")
        assert did(release.apply(changed))["change"] == {"Service/echo"}

    def test_a_server_that_goes_away_is_told_and_nothing_is_lost(self, release):
        release.apply(documents())
        (self.folder / "down").touch()
        with pytest.raises(ClusterError, match="cannot be reached"):
            release.apply(documents(1))
        (self.folder / "down").unlink()
        assert set(did(release.changes(documents()))) == {"same"}

    def test_secrets_go_through_a_pipe_and_are_in_no_call_and_no_record(self, release):
        from cordee.systems.services.kubernetes.manifests import secret_manifests

        secrets = secret_manifests(echo(), {}, KubernetesPlace("team", "climate"))
        release.apply(documents(), secrets=secrets)
        calls = (self.folder / "calls.jsonl").read_text()
        stored = json.loads((self.folder / "objects.json").read_text())
        for value in secrets[0]["stringData"].values():
            assert value not in calls
            assert [key for key, one in stored.items() if value in json.dumps(one["live"])] == [
                "Secret/team/echo-secrets"
            ]
        assert all("--request-timeout=20s" not in word for word in json.loads(calls.splitlines()[0]))

    @pytest.mark.usefixtures("real")
    def test_only_the_last_ten_releases_are_kept(self, release):
        for version in range(12):
            release.apply(documents(version))
        assert list(release.revisions()) == list(range(3, 13))


def test_without_kubectl_it_is_said_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="no kubectl"):
        Kubectl()


def test_a_repository_has_one_file_for_each_object_and_a_project_for_each_team(tmp_path):
    first = write_service(tmp_path, echo(), documents(), KubernetesPlace("team", "climate"), URL)
    assert "services/team/echo/deployment.yaml" in first
    assert "services/team/echo/networkpolicy-default-deny.yaml" in first
    assert {"README.md", "argocd/project-climate.yaml", "argocd/services.yaml"} <= set(first)
    assert write_service(tmp_path, echo(), documents(), KubernetesPlace("team", "climate"), URL) == []
    assert write_service(tmp_path, echo(1), documents(1), KubernetesPlace("team", "climate"), URL) == [
        "services/team/echo/deployment.yaml"
    ]
    other = manifests(echo(0, "other"), {}, KubernetesPlace("space", "../Ocean & Ice"))
    changed = write_service(tmp_path, echo(0, "other"), other, KubernetesPlace("space", "../Ocean & Ice"), URL)
    assert "argocd/project-ocean-ice.yaml" in changed
    assert "| other | space | ocean-ice | none |" in (tmp_path / "README.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "argocd", "services"}
    claim = (tmp_path / "services/team/echo/persistentvolumeclaim.yaml").read_text()
    assert "Prune=false" in claim


def test_a_repository_refuses_two_services_in_one_namespace_and_a_place_that_nobody_names(tmp_path):
    write_service(tmp_path, echo(), documents(), KubernetesPlace("team", "climate"), URL)
    other = manifests(echo(0, "other"), {}, KubernetesPlace("team"))
    with pytest.raises(UsageError, match="that of echo"):
        write_service(tmp_path, echo(0, "other"), other, KubernetesPlace("team"), URL)
    with pytest.raises(UsageError, match="nothing says where"):
        write_service(tmp_path, echo(), documents(), KubernetesPlace("team", "climate"), "")


def test_a_repository_has_a_teams_namespace_beside_its_services_and_refuses_one_object_of_two(tmp_path):
    team = TeamSpace(cpus=8, memory=1 << 34, storage=1 << 40)
    place = KubernetesPlace("team", team=team)
    first = write_team(tmp_path, "team", team, team_namespace("team", team, False), URL)
    assert "services/team/team/resourcequota.yaml" in first
    for name in ("echo", "other"):
        changed = write_service(tmp_path, echo(0, name), manifests(echo(0, name), {}, place), place, URL)
        assert not [path for path in changed if "services/team/team/" in path]
    project = (tmp_path / "argocd/project-team.yaml").read_text()
    assert project.count("namespace: team") == 1
    (argo,) = yaml.safe_load_all((tmp_path / "argocd/services.yaml").read_text())
    assert argo["spec"]["template"]["spec"]["syncPolicy"]["retry"]["limit"] > 1, "the namespace may come later"
    with pytest.raises(UsageError, match="ConfigMap echo-client of the namespace team is that of echo"):
        write_service(tmp_path, echo(0, "third"), manifests(echo(), {}, place), place, URL)
    with pytest.raises(UsageError, match="of the namespace team is that of"):
        write_service(tmp_path, echo(0, "third"), documents(), KubernetesPlace("team"), URL)


def test_no_secret_is_in_a_repository_which_names_those_that_must_be_there(tmp_path):
    place, mlflow = KubernetesPlace("team", "climate"), find_blueprint("mlflow")
    write_service(tmp_path, mlflow, manifests(mlflow, {}, place), place, URL)
    assert "| mlflow | team | climate | mlflow-secrets |" in (tmp_path / "README.md").read_text()
    kinds = {path.name for path in tmp_path.glob("services/*/*/*")}
    assert not [name for name in kinds if name.startswith("secret")]


def test_policies_of_cilium_allow_what_kubernetes_own_do():
    plain = {one["metadata"]["name"]: one for one in documents(ingress="x.site.org") if one["kind"] == "NetworkPolicy"}
    theirs = {
        one["metadata"]["name"]: one
        for one in documents(ingress="x.site.org", cilium=True)
        if one["kind"] == "CiliumNetworkPolicy"
    }
    assert set(plain) == set(theirs)
    assert theirs["default-deny"]["spec"] == {"endpointSelector": {}, "ingress": [{}], "egress": [{}]}
    dns = theirs["dns"]["spec"]
    assert "ingress" not in dns
    (rule,) = dns["egress"]
    assert rule["toEndpoints"] == [{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system"}}]
    assert rule["toPorts"][0]["rules"] == {"dns": [{"matchPattern": "*"}]}
    inside, outside = theirs["echo"]["spec"]["ingress"]
    assert inside == {"fromEndpoints": [{}], "toPorts": [{"ports": [{"port": "8080", "protocol": "TCP"}]}]}
    assert outside["fromEndpoints"][0]["matchExpressions"][0]["operator"] == "Exists"
