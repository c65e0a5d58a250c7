"""What a release must do on a cluster: the same tests with the stand-in (`make test`) and with a real API server (`make test-kubernetes`)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.systems.services.conftest import BLUEPRINT

from cordee.core.errors import CordeeError, UsageError
from cordee.faces.cli import main
from cordee.job.profile import TeamSpace
from cordee.systems.services.blueprint import LoadedBlueprint, read_blueprint
from cordee.systems.services.instance import ServiceFailing
from cordee.systems.services.kubernetes.gitops import write_service
from cordee.systems.services.kubernetes.kubectl import ClusterError, FieldConflict, Kubectl
from cordee.systems.services.kubernetes.manifests import manifests, secret_manifests
from cordee.systems.services.kubernetes.namespace import team_namespace
from cordee.systems.services.kubernetes.part import KubernetesPlace
from cordee.systems.services.kubernetes.release import Release

IMAGE = "registry.site.org/echo@sha256:"


def echo(version: int = 0, name: str = "echo") -> LoadedBlueprint:
    head = f'name = "{name}"\nimage = "{IMAGE}{version:064}"\nimage_argv = ["echo", "{{host}}"]'
    return read_blueprint(BLUEPRINT.replace('name = "echo"', head, 1), Path("echo.toml"))


def documents(version: int = 0, **place) -> list[dict]:
    return manifests(echo(version), {}, KubernetesPlace("team", "climate", **place))


def did(changes) -> dict[str, set[str]]:
    return {
        what: {f"{one.kind}/{one.name}" for one in changes if one.what == what}
        for what in {one.what for one in changes}
    }


class ReleaseContract:
    """Subclasses have a fixture `cluster`, an empty one that `kubectl` finds by itself."""

    @pytest.fixture
    def release(self, cluster) -> Release:
        return Release(Kubectl(), "echo", "team")

    def live(self, kind: str, name: str) -> dict | None:
        return Kubectl().get(kind, name, "team")

    def image(self) -> str:
        return self.live("deployments.apps", "echo")["spec"]["template"]["spec"]["containers"][0]["image"]

    def other(self, document: dict) -> None:
        words = [
            "kubectl",
            "apply",
            "--server-side",
            "--field-manager=someone",
            "--force-conflicts",
            "-f",
            "-",
            "-o",
            "json",
        ]
        subprocess.run(words, input=json.dumps(document), text=True, check=True, capture_output=True)

    def test_what_is_applied_twice_is_the_same_the_second_time(self, release):
        secrets = secret_manifests(echo(), {}, KubernetesPlace("team", "climate"))
        assert set(did(release.apply(documents(), secrets=secrets))) == {"create"}
        secret = self.live("secrets", "echo-secrets")
        again = secret_manifests(echo(), {}, KubernetesPlace("team", "climate"))
        assert set(did(release.apply(documents(), secrets=again))) == {"same"}
        assert self.live("secrets", "echo-secrets") == secret
        assert list(release.revisions()) == [1]

    def test_a_look_changes_nothing(self, release):
        assert set(did(release.changes(documents()))) == {"create"}
        assert Kubectl().get("namespaces", "team", "") is None
        release.apply(documents())
        release.changes(documents(1, ingress="echo.site.org"))
        assert self.image() == f"{IMAGE}{0:064}"
        assert self.live("ingresses.networking.k8s.io", "echo") is None

    def test_a_change_is_shown_by_its_field_and_what_is_left_over_is_pruned_but_for_data(self, release):
        release.apply(documents(ingress="echo.site.org"))
        bare = [one for one in documents(1) if one["kind"] != "PersistentVolumeClaim"]
        bare[-2]["spec"]["template"]["spec"]["volumes"] = bare[-2]["spec"]["template"]["spec"]["volumes"][1:]
        bare[-2]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].pop(0)
        changes = release.apply(bare)
        assert did(changes)["prune"] == {"Ingress/echo"}
        assert did(changes)["keep"] == {"PersistentVolumeClaim/echo-data"}
        (deployment,) = [one for one in changes if one.kind == "Deployment"]
        assert any(
            now.endswith("0000") and then.endswith("0001") for _, now, then in deployment.fields if isinstance(now, str)
        ) or any("containers" in path for path, _, _ in deployment.fields)
        assert self.live("ingresses.networking.k8s.io", "echo") is None
        assert self.live("persistentvolumeclaims", "echo-data") is not None
        assert self.image() == f"{IMAGE}{1:064}"

    def test_what_somebody_has_changed_is_shown_as_drift_and_set_back_only_by_force(self, release):
        release.apply(documents())
        service = next(
            one for one in documents() if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == "dns"
        )
        meddled = json.loads(json.dumps(service))
        meddled["spec"]["egress"][0]["ports"][0]["port"] = 5353
        self.other(meddled)
        with pytest.raises(FieldConflict) as conflict:
            release.changes(documents())
        assert "someone" in conflict.value.text
        assert "force" in conflict.value.next
        assert "egress" in str(conflict.value.given)
        (drifted,) = [one for one in release.changes(documents(), force=True) if one.what == "change"]
        assert drifted.name == "dns"
        assert "egress" in drifted.fields[0][0]
        release.apply(documents(), force=True)
        assert set(did(release.changes(documents()))) == {"same"}

    def test_a_release_is_gone_back_to_from_any_machine(self, release):
        release.apply(documents(1, ingress="echo.site.org"))
        release.apply(documents(2))
        release.apply(documents(2))
        assert list(release.revisions()) == [1, 2]
        fresh = Release(Kubectl(), "echo", "team")
        assert "Ingress/echo" in did(fresh.roll_back(None))["create"]
        assert self.image() == f"{IMAGE}{1:064}"
        fresh.roll_back(2)
        assert self.image() == f"{IMAGE}{2:064}"
        with pytest.raises(UsageError, match="no release 77"):
            fresh.roll_back(77)

    def test_what_the_server_refuses_changes_nothing_and_the_reason_is_told(self, release):
        release.apply(documents())
        wrong = documents(1)
        wrong[0]["metadata"]["labels"]["not a label"] = "x y"
        with pytest.raises(CordeeError):
            self.refuse("Namespace/team")
            release.apply(wrong)
        assert self.image() == f"{IMAGE}{0:064}"

    def test_a_namespace_of_another_service_is_left_alone(self, release):
        release.apply(documents())
        with pytest.raises(UsageError, match="that of echo"):
            Release(Kubectl(), "other", "team").apply(manifests(echo(0, "other"), {}, KubernetesPlace("team")))
        assert "PersistentVolumeClaim/echo-data" in did(release.remove())["keep"]
        assert self.live("deployments.apps", "echo") is None
        Release(Kubectl(), "other", "team").apply(manifests(echo(0, "other"), {}, KubernetesPlace("team")))

    def test_services_of_a_team_share_its_namespace_and_end_without_each_other(self, cluster):
        team = TeamSpace(cpus=8, memory=1 << 34, storage=1 << 40)
        kubectl, place = Kubectl(), KubernetesPlace("team", team=team)
        both = {name: manifests(echo(0, name), {}, place) for name in ("echo", "other")}
        with pytest.raises(UsageError, match="namespace team of the team is not there"):
            Release(kubectl, "echo", "team").apply(both["echo"])
        shared = team_namespace("team", team, False)
        kubectl.apply(shared[:1])
        kubectl.apply(shared)
        for name, wanted in both.items():
            release = Release(kubectl, name, "team")
            secrets = secret_manifests(echo(0, name), {}, place)
            assert set(did(release.apply(wanted, secrets=secrets))) == {"create"}
            assert set(did(release.changes(wanted))) == {"same"}
        with pytest.raises(UsageError, match="the namespace team is a team's"):
            Release(kubectl, "echo", "team").apply(documents())
        with pytest.raises(UsageError, match="is of the release of other"):
            Release(kubectl, "echo", "team").apply([*both["echo"], *both["other"]])
        Release(kubectl, "other", "team").remove(whole=True)
        for kind, name in (
            ("secrets", "other-secrets"),
            ("deployments.apps", "other"),
            ("configmaps", "cordee-other-1"),
        ):
            assert self.live(kind, name) is None
        for kind, name in (("secrets", "echo-secrets"), ("deployments.apps", "echo"), ("resourcequotas", "cordee")):
            assert self.live(kind, name) is not None
        assert kubectl.get("namespaces", "team", "") is not None

    def test_a_deployment_without_pods_is_not_ready_and_says_so(self, release):
        release.apply(documents())
        told: list[str] = []
        with pytest.raises(ServiceFailing, match="0 of 1 pods"):
            release.wait(0.1, told.append)
        assert told
        with pytest.raises(UsageError, match="has no release in the namespace team"):
            Release(Kubectl(), "other", "team").waiting()

    def test_a_server_that_is_emptied_is_rebuilt_from_the_repository_alone(self, release, tmp_path):
        repository = tmp_path / "repository"
        git = [
            "git",
            "-C",
            str(repository),
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "init.defaultBranch=main",
        ]
        repository.mkdir()
        subprocess.run([*git, "init", "-q"], check=True)
        place = KubernetesPlace("team", "climate")
        url = "https://git.site.org/services.git"
        for version, options in ((1, {"ingress": "echo.site.org"}), (2, {})):
            write_service(repository, echo(version), documents(version, **options), place._replace(**options), url)
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-qm", f"echo {version}"], check=True)
        subprocess.run([*git, "revert", "--no-edit", "HEAD"], check=True, capture_output=True)
        objects = [yaml.safe_load(path.read_text()) for path in sorted(repository.glob("services/*/*/*.yaml"))]
        assert {(one["kind"], one["metadata"]["name"]) for one in objects} == {
            (one["kind"], one["metadata"]["name"]) for one in documents(1, ingress="echo.site.org")
        }
        kubectl = Kubectl()
        kubectl.apply([one for one in objects if one["kind"] == "Namespace"])
        kubectl.apply(objects)
        assert self.image() == f"{IMAGE}{1:064}"
        assert self.live("ingresses.networking.k8s.io", "echo") is not None
        argo = [yaml.safe_load(path.read_text()) for path in sorted(repository.glob("argocd/*.yaml"))]
        assert [one["kind"] for one in argo] == ["AppProject", "ApplicationSet"]

    def test_the_command_applies_shows_and_goes_back(self, cluster, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("CORDEE_CATALOGUES", str(tmp_path))

        def call(*words: str) -> tuple[int, dict]:
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main(["service", *words, "--json"])
            return int(ended.value.code or 0), json.loads(capsys.readouterr().out)

        where = ("--target", "kubernetes", "--namespace", "cache", "--wait", "0s")
        assert call("deploy", "redis", *where)[1]["applied"] is True
        code, now = call("status", "redis", "--namespace", "cache")
        assert (code, now["services"][0]["state"]) == (1, "unready")
        assert now["services"][0]["why"].startswith("Deployment redis: 0 of 1 pods are ready")
        code, again = call("deploy", "redis", *where, "--dry-run")
        assert (code, {one["what"] for one in again["changes"]}, again["applied"]) == (0, {"same"}, False)
        assert call("deploy", "redis", *where, "--project", "climate")[0] == 0
        code, back = call("rollback", "redis", "--namespace", "cache")
        assert (code, [one["kind"] for one in back["changes"] if one["what"] == "prune"]) == (0, ["RoleBinding"])
        assert call("stop", "redis", "--namespace", "cache", "--remove")[0] == 0
        assert call("deploy", "redis", "--namespace", "cache")[1]["error"]["text"].startswith(
            "these options are of Kubernetes"
        )
        assert "other targets" in call("deploy", "redis", *where, "--port", "http=3")[1]["error"]["text"]

    def refuse(self, what: str) -> None:
        """Have the server refuse an object; a real one does so by itself."""


def unreachable(folder: Path, monkeypatch) -> None:
    """Point kubectl to a port where nobody listens."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "x", "user": {}}],
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }  # fmt: skip
    (folder / "nowhere").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(folder / "nowhere"))
    with pytest.raises(ClusterError, match="cannot be reached"):
        Release(Kubectl(), "echo", "team")
    assert os.environ["KUBECONFIG"].endswith("nowhere")
