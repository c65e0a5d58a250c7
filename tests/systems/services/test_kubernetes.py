"""Manifests: the catalogue renders, passes Kubernetes' schemas and Cordée's lint; seeded mistakes are found."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes_validate import validate
from tests.systems.services.conftest import BLUEPRINT

from cordee.core.errors import DocumentError, UsageError
from cordee.faces.cli import main
from cordee.systems.builds.lock import BuildLock, write_lock
from cordee.systems.builds.recipe import load_recipe
from cordee.systems.environments.workshop import WORKSHOP
from cordee.systems.services.blueprint import LoadedBlueprint, read_blueprint
from cordee.systems.services.catalogue import catalogue, find_blueprint
from cordee.systems.services.kubernetes.lint import manifest_findings
from cordee.systems.services.kubernetes.manifests import manifests, secret_manifests
from cordee.systems.services.kubernetes.part import KubernetesPlace
from cordee.systems.services.kubernetes.yaml_text import yaml_text
from cordee.systems.services.start import refusals

VALUES = {"vllm": {"model": "/model"}}
IMAGE = "registry.site.org/echo@sha256:" + "0" * 64
RENDERED = [
    name for name, one in catalogue()[0].items() if one.origin == "built-in" and not refusals(one, "kubernetes")
]


def echo(*changes: tuple[str, str]) -> LoadedBlueprint:
    text = BLUEPRINT.replace('name = "echo"', f'name = "echo"\nimage = "{IMAGE}"\nimage_argv = ["echo", "{{host}}"]', 1)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return read_blueprint(text, Path("echo.toml"))


def objects(loaded: LoadedBlueprint, place: KubernetesPlace | None = None, values=None) -> dict[tuple[str, str], dict]:
    found = list(yaml.safe_load_all(yaml_text(manifests(loaded, values or {}, place or KubernetesPlace()))))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def run(words: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def pod(found, name="echo") -> dict:
    return found["Deployment", name]["spec"]["template"]["spec"]


def variables(found, name="echo") -> dict:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in pod(found, name)["containers"][0]["env"]}


def test_the_catalogue_has_services_for_kubernetes():
    assert {
        "mlflow",
        "postgresql",
        "redis",
        "ray",
        "vllm",
        "open-webui",
        "ollama",
        "wandb",
        "kubeflow-registry",
    } <= set(RENDERED)


@pytest.mark.parametrize("name", RENDERED)
def test_every_entry_passes_the_schemas_of_three_versions_and_the_lint(name):
    place = KubernetesPlace(
        "team", "climate", "" if find_blueprint(name).blueprint.guard == "none" else "x.site.org", False
    )
    loaded = find_blueprint(name)
    if all(port.protocol == "tcp" for port in loaded.blueprint.ports.values()):
        place = place._replace(ingress="")
    found = list(yaml.safe_load_all(yaml_text(manifests(loaded, VALUES.get(name, {}), place))))
    for version in ("1.31", "1.34", "1.37"):
        for one in found:
            validate(one, version, strict=True)
    assert [one.text for one in manifest_findings(found) if one.severity == "error"] == []
    assert not [one for one in found if one["kind"] == "Secret"]
    _assert_closed_and_whole({(one["kind"], one["metadata"]["name"]): one for one in found})
    secrets = list(yaml.safe_load_all(yaml_text(secret_manifests(loaded, {}, place))))
    for one in secrets:
        validate(one, "1.34", strict=True)
        text = yaml_text(found)
        assert all(value not in text for value in one["stringData"].values())
    made = {(one["metadata"]["name"], key) for one in secrets for key in one["stringData"]}
    stored = {
        tuple(s.source[6:].split("/")) for s in loaded.blueprint.secrets.values() if s.source.startswith("store:")
    }
    assert _asked(found) <= made | stored, "the manifests refer to a key that nothing makes"


def _assert_closed_and_whole(found) -> None:
    """What the lint leaves to whoever writes manifests, and holds for each that Cordée writes."""
    assert found["NetworkPolicy", "default-deny"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert all(one["metadata"].get("namespace", "team") == "team" for one in found.values())
    for name in [name for kind, name in found if kind == "Deployment"]:
        spec = pod(found, name)
        (box,) = spec["containers"]
        assert spec["automountServiceAccountToken"] is False
        assert box["securityContext"]["readOnlyRootFilesystem"] is True
        assert box["resources"]["limits"]["memory"]
        assert "readinessProbe" in box
        assert ("ServiceAccount", spec["serviceAccountName"]) in found
        claims = [one["persistentVolumeClaim"] for one in spec["volumes"] if "persistentVolumeClaim" in one]
        assert all(("PersistentVolumeClaim", one["claimName"]) in found for one in claims)
        sources = [source for one in spec["volumes"] for source in one.get("projected", {}).get("sources", ())]
        assert all(("ConfigMap", one["configMap"]["name"]) in found for one in sources if "configMap" in one)
    for (kind, _), one in found.items():
        spec = one.get("spec", {})
        assert kind != "Service" or spec["type"] == "ClusterIP"
        if kind == "Ingress":
            assert [rule["host"] for rule in spec["rules"]] == spec["tls"][0]["hosts"]
            backends = [path["backend"]["service"] for rule in spec["rules"] for path in rule["http"]["paths"]]
            assert all(("Service", backend["name"]) in found for backend in backends)


def _asked(found) -> set[tuple[str, str]]:
    asked = set()

    def look(value):
        if isinstance(value, dict):
            if "secretKeyRef" in value:
                asked.add((value["secretKeyRef"]["name"], value["secretKeyRef"]["key"]))
            if "secret" in value and "items" in value["secret"]:
                asked.update((value["secret"]["name"], item["key"]) for item in value["secret"]["items"])
            for one in value.values():
                look(one)
        elif isinstance(value, list):
            for one in value:
                look(one)

    look([one for one in found if one["kind"] == "Deployment"])
    return asked


def test_a_configuration_file_with_a_password_comes_from_a_secret_that_holds_both():
    (secret,) = secret_manifests(find_blueprint("mlflow"), {}, KubernetesPlace())
    values = secret["stringData"]
    assert f"admin_password = {values['password']}" in values["file.auth.ini"]
    assert len(values["password"]) == 40
    assert (
        secret_manifests(find_blueprint("mlflow"), {}, KubernetesPlace())[0]["stringData"]["password"]
        != values["password"]
    )


def test_a_variable_with_a_password_takes_it_from_the_one_before():
    env = pod(objects(find_blueprint("prefect")), "prefect")["containers"][0]["env"]
    names = [one["name"] for one in env]
    assert names.index("CORDEE_SECRET_password") < names.index("PREFECT_SERVER_API_AUTH_STRING")
    assert {"name": "PREFECT_SERVER_API_AUTH_STRING", "value": "admin:$(CORDEE_SECRET_password)"} in env


def test_kubeflows_registry_has_the_password_of_its_database_from_that_ones_secret():
    found = objects(find_blueprint("kubeflow-registry"))
    asked = {"secretKeyRef": {"name": "postgresql-secrets", "key": "password"}}
    assert variables(found, "kubeflow-registry")["CORDEE_SECRET_database"] == asked
    assert "$(CORDEE_SECRET_database)" in variables(found, "kubeflow-registry")["MR_EMBEDMD_DATABASE_DSN"]
    assert ("Deployment", "postgresql") in found


def test_open_webui_reaches_ollama_by_one_path_and_nobody_else_does():
    found = objects(find_blueprint("open-webui"))
    assert {name for kind, name in found if kind == "Deployment"} == {"ollama", "open-webui"}
    (egress,) = found["NetworkPolicy", "open-webui"]["spec"]["egress"]
    assert egress == {
        "to": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "ollama"}}}],
        "ports": [{"protocol": "TCP", "port": 11434}],
    }
    (ingress,) = found["NetworkPolicy", "ollama"]["spec"]["ingress"]
    (allowed,) = ingress["from"]
    labels = found["Deployment", "open-webui"]["spec"]["template"]["metadata"]["labels"]
    assert allowed["podSelector"]["matchLabels"].items() <= labels.items()
    assert "podAffinity" in pod(found, "open-webui")["affinity"]
    assert pod(found, "ollama")["runtimeClassName"] == "nvidia"
    assert found["ResourceQuota", "cordee"]["spec"]["hard"]["requests.nvidia.com/gpu"] == "1"


def test_a_service_without_gpus_lands_on_nodes_with_some_only_when_forced():
    found = pod(objects(echo()))
    terms = found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "gpu.vendor", "operator": "DoesNotExist"}]}]
    assert "tolerations" not in found
    assert "runtimeClassName" not in found
    forced = pod(objects(echo(), KubernetesPlace(on_gpu_nodes=True)))
    assert "affinity" not in forced
    assert forced["tolerations"]


@pytest.mark.parametrize(
    ("vendor", "resource", "runtime"), [("nvidia", "nvidia.com/gpu", "nvidia"), ("amd", "amd.com/gpu", None)]
)
def test_gpus_are_asked_for_by_their_vendor(vendor, resource, runtime):
    loaded = echo(("[env]", f'[need]\ngpus = 2\ngpu_vendor = "{vendor}"\n\n[env]'))
    found = pod(objects(loaded))
    assert found["containers"][0]["resources"]["limits"][resource] == "2"
    assert found.get("runtimeClassName") == runtime
    assert f"'values': ['{vendor}']" in str(found["affinity"])


def test_a_project_sees_the_namespace_and_no_secrets_of_it():
    binding = objects(echo(), KubernetesPlace("team", "climate"))["RoleBinding", "cordee-project"]
    assert binding["metadata"]["namespace"] == "team"
    assert binding["roleRef"]["name"] == "view"
    assert binding["subjects"][0]["name"] == "climate"
    assert ("RoleBinding", "cordee-project") not in objects(echo())


def outside(loaded: LoadedBlueprint, **place) -> dict[tuple[str, str], dict]:
    return objects(loaded, KubernetesPlace(load_balancer=True, clients=("10.0.0.0/8",), **place))


def test_a_load_balancer_publishes_what_speaks_no_http_to_the_networks_that_the_site_names():
    found = outside(find_blueprint("ray"), balancer_class="metallb.universe.tf/metallb")
    for version in ("1.31", "1.34", "1.37"):
        validate(found["Service", "ray-outside"], version, strict=True)
    spec = found["Service", "ray-outside"]["spec"]
    assert (spec["type"], spec["loadBalancerClass"]) == ("LoadBalancer", "metallb.universe.tf/metallb")
    assert spec["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    speaks = {name: port.protocol for name, port in find_blueprint("ray").blueprint.ports.items()}
    assert {one["name"] for one in spec["ports"]} == {name for name, kind in speaks.items() if kind == "tcp"}
    assert "http" in speaks.values()
    allowed = found["NetworkPolicy", "ray"]["spec"]["ingress"][-1]
    assert allowed["from"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    assert [one["port"] for one in allowed["ports"]] == [one["port"] for one in spec["ports"]]
    assert found["ResourceQuota", "cordee"]["spec"]["hard"]["services.loadbalancers"] == "1"
    assert [one for one in manifest_findings(found.values()) if one.severity == "error"] == []
    cilium = outside(find_blueprint("ray"), cilium=True)["CiliumNetworkPolicy", "ray"]
    assert cilium["spec"]["ingress"][-1]["fromCIDR"] == ["10.0.0.0/8"]
    assert ("Service", "redis-outside") not in objects(find_blueprint("redis"))


def test_a_load_balancer_that_lets_everybody_in_or_passwords_pass_in_the_open_is_refused():
    with pytest.raises(UsageError, match="whom it lets in"):
        manifests(find_blueprint("redis"), {}, KubernetesPlace(load_balancer=True))
    with pytest.raises(UsageError, match="no port for a load balancer"):
        outside(echo())
    everybody = KubernetesPlace(load_balancer=True, clients=("10.0.0.0/8", "0.0.0.0/0"))
    with pytest.raises(UsageError, match="whom it lets in"):
        manifests(find_blueprint("redis"), {}, everybody)


TEAM = """
[kubernetes]
gateway = "edge/public"
storage_class = "longhorn"
load_balancer = "metallb.universe.tf/metallb"
clients = ["10.0.0.0/8"]

[kubernetes.teams.climate]
deployers = ["oidc:climate"]
rancher = "c-m-1:p-2"
cpus = 16
memory = "64GiB"
gpus = 2
storage = "500GB"
load_balancers = 1
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    path = tmp_path / "alps.toml"
    path.write_text(TEAM)
    return path


def printed(capsys, *words: str) -> list[dict]:
    capsys.readouterr()
    assert run(["service", *words, "--on", "alps"]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_a_team_has_a_namespace_with_its_quota_its_members_and_its_project_in_rancher(capsys, site):
    found = printed(capsys, "team", "climate")
    for version in ("1.31", "1.34", "1.37"):
        for one in found:
            validate(one, version, strict=True)
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
    space = by_name["Namespace", "climate"]["metadata"]
    assert space["annotations"]["field.cattle.io/projectId"] == "c-m-1:p-2"
    assert space["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    hard = by_name["ResourceQuota", "cordee"]["spec"]["hard"]
    assert (hard["requests.cpu"], hard["limits.memory"], hard["requests.nvidia.com/gpu"]) == ("16", "64Gi", "2")
    assert (hard["requests.amd.com/gpu"], hard["services.loadbalancers"]) == ("0", "1")
    rights = {one["roleRef"]["name"]: one["subjects"][0]["name"] for one in found if one["kind"] == "RoleBinding"}
    assert rights == {"view": "climate", "edit": "oidc:climate"}
    assert {name for kind, name in by_name if kind == "NetworkPolicy"} == {"default-deny", "dns"}
    assert run(["service", "team", "clmate", "--on", "alps"]) == 2
    assert "did you mean climate?" in capsys.readouterr().err


def test_services_of_a_team_bring_no_namespace_and_have_what_the_site_says(capsys, site):
    where = ("--namespace", "climate")
    shared = printed(capsys, "team", "climate")
    mlflow = printed(capsys, "render", "mlflow", *where, "--ingress", "mlflow.site.org")
    redis = printed(capsys, "render", "redis", *where, "--load-balancer")
    kinds = {one["kind"] for one in (*mlflow, *redis)}
    assert not kinds & {"Namespace", "ResourceQuota", "LimitRange", "RoleBinding", "Ingress"}
    together = [*shared, *mlflow, *redis]
    assert [one.rule for one in manifest_findings(together) if one.severity == "error"] == []
    (route,) = [one for one in mlflow if one["kind"] == "HTTPRoute"]
    assert route["spec"]["parentRefs"] == [{"namespace": "edge", "name": "public"}]
    claims = {one["spec"]["storageClassName"] for one in together if one["kind"] == "PersistentVolumeClaim"}
    assert claims == {"longhorn"}
    accounts = [one["metadata"]["name"] for one in together if one["kind"] == "ServiceAccount"]
    assert sorted(accounts) == ["mlflow", "redis"]
    assert run(["service", "render", "mlflow", *where, "--on", "alps", "--project", "ocean"]) == 2
    assert "the namespace is a team's" in capsys.readouterr().err


def test_what_is_wrong_with_a_team_in_a_profile_is_told_with_its_line(capsys, site):
    for before, after, said in (
        ('rancher = "c-m-1:p-2"', 'rancher = "p-2"', "rancher"),
        ('clients = ["10.0.0.0/8"]', 'clients = ["10.0.0.1/8"]', "no network"),
        ("[kubernetes.teams.climate]", "[kubernetes.teams.Climate]", "Climate"),
        ("cpus = 16\n", "", "cpus"),
    ):
        site.write_text(TEAM.replace(before, after))
        assert run(["service", "render", "redis", "--on", "alps"]) == 2
        told = capsys.readouterr().err
        assert said in told
        assert f"{site}:" in told


def test_an_image_of_an_edf_is_what_its_registry_calls_it_and_refused_where_it_is_in_none(tmp_path):
    edf, lock = tmp_path / "env.toml", tmp_path / "env.lock.json"
    edf.write_text('image = "made"\n[build]\nfrom = "debian:12"\ncommands = ["echo one"]\n')
    text = BLUEPRINT.replace('name = "echo"', 'name = "echo"\nimage = "env.toml"\nimage_argv = ["echo"]', 1)
    loaded = read_blueprint(text, tmp_path / "echo.toml")
    assert [one.rule for one in loaded.findings if one.rule == "image-tag"] == []
    with pytest.raises(DocumentError, match="in no registry") as refused:
        objects(loaded)
    assert refused.value.line == 4
    assert f"cordee env push {edf}" in refused.value.next

    pushed = "registry.site.org/team/made@sha256:" + "1" * 64
    made = {"digest": "sha256:" + "2" * 64, "recipe": load_recipe(WORKSHOP.recipe(str(edf), "local")).digest}
    write_lock(lock, BuildLock(image={**made, "packages": BuildLock().packages_digest(), "pushed": pushed}))
    found = objects(loaded)
    assert pod(found)["containers"][0]["image"] == pushed
    assert manifest_findings(found.values()) == []

    before = edf.read_text()
    edf.write_text(before.replace("one", "two"))
    with pytest.raises(DocumentError, match="its recipe has changed"):
        objects(loaded)
    edf.write_text('workdir = "/x"\n' + before)
    with pytest.raises(DocumentError, match="workdir of the EDF is in no image"):
        objects(loaded)
    assert any("the image is that of an EDF" in one.text for one in refusals(loaded, "podman"))


def test_a_volume_has_its_class_and_one_writer():
    found = objects(
        echo(('path = "/data"\n\n[secrets', 'path = "/data"\nsize = "5GiB"\nclass = "longhorn"\n\n[secrets'))
    )
    claim = found["PersistentVolumeClaim", "echo-data"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("longhorn", "5Gi")
    assert found["Deployment", "echo"]["spec"]["strategy"] == {"type": "Recreate"}


HARD = [
    "1e3",
    "0o17",
    "on",
    "y",
    "~",
    "null",
    "$(PATH)",
    "$$",
    "a: b\n- c",
    "---\nkind: Pod",
    "{{x}}",
    "# no",
    "é\u2028",
    "12:30:00",
]


@pytest.mark.parametrize("text", HARD)
def test_no_value_of_a_parameter_becomes_anything_but_a_text(text):
    if "\n" in text:
        with pytest.raises(UsageError):
            objects(echo(), values={"greeting": text})
        return
    found = objects(echo(), values={"greeting": text})
    assert variables(found)["GREETING"] == text.replace("$", "$$"), "Kubernetes makes one dollar of two"


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t"), max_size=30))
def test_any_text_comes_back_from_yaml_as_it_was(text):
    assert yaml.safe_load(yaml_text([{"a": text, "b": [text]}])) == {"a": text, "b": [text]}


def test_texts_that_other_readers_of_yaml_take_for_numbers_are_in_quotes():
    assert yaml_text([{"one": "1e3", "two": "on", "three": "0o17"}]) == '---\none: "1e3"\ntwo: "on"\nthree: "0o17"\n'


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("[ports.http]", 'idle = "1h"\n[ports.http]')], None),
        ([('name = "echo"', 'name = "echo"\nguard = "token"')], "guard is in no image"),
        ([('name = "echo"', 'name = "echo"\nreplicas = 3')], "would write the volume data at once"),
        ([('name = "echo"', 'name = "echo"\nidle = "1h"')], "nothing stops a Deployment"),
        ([("[secrets.token]", '[secrets.token]\nfrom = "file:/etc/token"')], "a file of this machine"),
        (
            [("[secrets.token]", '[secrets.token]\nfrom = "store:a/b"\n\n[files]\n"a.ini" = "{value.token}"\n')],
            "which only the cluster's store has",
        ),
        (
            [("[ports.http]", "[ports.a_very_long_name_of_a_port]"), ("{port.http}", "8"), ("{url.http}", "8")],
            "at most 15 letters",
        ),
        (
            [
                ("[volumes.data]", "[volumes.DATA]"),
                ("{volume.data}", "8"),
                ("[secrets", '[volumes.data]\npath = "/b"\n[secrets'),
            ],
            "both be data",
        ),
    ],
)
def test_what_kubernetes_cannot_honour_is_refused_by_name(changes, said):
    if said is None:
        with pytest.raises(DocumentError, match="no key idle"):
            echo(*changes)
        return
    with pytest.raises(DocumentError, match=said):
        manifests(echo(*changes), {}, KubernetesPlace())


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (KubernetesPlace("Team"), "no namespace"),
        (KubernetesPlace("kube-system"), "no namespace"),
        (KubernetesPlace("a\nkind: Pod"), "no namespace"),
        (KubernetesPlace(ingress="a b"), "no host name"),
    ],
)
def test_wrong_places_are_refused(place, said):
    with pytest.raises(UsageError, match=said):
        manifests(echo(), {}, place)


def test_ollama_is_never_published():
    with pytest.raises(UsageError, match="asks nobody for credentials"):
        manifests(find_blueprint("ollama"), {}, KubernetesPlace(ingress="ollama.site.org"))


def test_the_job_document_is_what_a_run_target_would_get(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("CORDEE_SERVICES", str(tmp_path))
    assert run(["service", "render", "mlflow", "--target", "slurm"]) == 0
    out = capsys.readouterr().out
    assert 'name = "mlflow"' in out
    assert "cpus_per_rank = 1" in out
    assert list(tmp_path.iterdir()) == []
    assert run(["service", "render", "mlflow", "--target", "process", "--namespace", "x"]) == 2


def test_nothing_is_printed_where_something_is_refused(capsys):
    assert run(["service", "render", "tensorboard", "--set", "logdir=/a"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "has no image" in told.err
    assert run(["service", "check", "tensorboard", "--target", "kubernetes"]) == 2


def test_what_is_printed_is_yaml_alone_and_the_command_for_secrets_is_beside_it(capsys):
    assert run(["service", "render", "mlflow", "--namespace", "team"]) == 0
    told = capsys.readouterr()
    assert {one["metadata"].get("namespace", "team") for one in yaml.safe_load_all(told.out)} == {"team"}
    assert "cordee service render mlflow --namespace team --secrets | kubectl create -f -" in told.err
    assert "is a tag" in told.err


def test_secrets_go_into_a_pipe_and_into_no_file(tmp_path):
    argv = [str(Path(sys.executable).parent / "cordee"), "service", "render", "redis", "--secrets"]
    piped = subprocess.run(argv, capture_output=True, text=True, env=os.environ, check=True)
    assert yaml.safe_load(piped.stdout)["kind"] == "Secret"
    with open(tmp_path / "kept", "w") as file:
        kept = subprocess.run(argv, stdout=file, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert kept.returncode == 2
    assert (tmp_path / "kept").read_text() == ""


# Mistakes that pass the schema, or that it sees only in part: where, what is put there (... removes it), and the rule that finds it.
POD = ("Deployment", "spec", "template", "spec")
BOX = (*POD, "containers", 0)
MISTAKES = [
    (("Deployment", "spec", "selector", "matchLabels"), {"app": "other"}, "selector-mismatch"),
    (("Service", "spec", "selector"), {"app": "other"}, "selector-mismatch"),
    (("NetworkPolicy/echo", "spec", "podSelector"), {"matchLabels": {"app": "x"}}, "selector-mismatch"),
    ((*BOX, "ports", 0, "containerPort"), 99999, "port-range"),
    (("Service", "spec", "ports", 0, "port"), 0, "port-range"),
    (("Service", "spec", "ports", 0, "targetPort"), "htpt", "unknown-port"),
    ((*BOX, "readinessProbe", "httpGet", "port"), "htpt", "unknown-port"),
    ((*POD, "volumes"), [], "unknown-volume"),
    ((*BOX, "image"), "docker.io/echo:latest", "image-tag"),
    ((*BOX, "image"), "registry:5000/echo", "image-tag"),
    ((*BOX, "image"), ..., "no-image"),
    ((*BOX, "env", 0), {"name": "DB_PASSWORD", "value": "hunter2"}, "secret-in-env"),
    ((*BOX, "env", 0), {"name": "DB", "value": "postgres://me:hunter2@db/x"}, "secret-in-env"),
    ((*POD, "securityContext", "runAsUser"), 0, "pod-security"),
    ((*POD, "securityContext", "runAsNonRoot"), ..., "pod-security"),
    ((*POD, "securityContext", "seccompProfile"), ..., "pod-security"),
    ((*BOX, "securityContext", "privileged"), True, "pod-security"),
    ((*BOX, "securityContext", "allowPrivilegeEscalation"), True, "pod-security"),
    ((*BOX, "securityContext", "capabilities"), {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, "pod-security"),
    ((*POD, "hostNetwork"), True, "pod-security"),
    ((*POD, "volumes", 0), {"name": "data-data", "hostPath": {"path": "/"}}, "pod-security"),
    ((*BOX, "resources", "requests", "nvidia.com/gpu"), "1", "request-over-limit"),
    ((*BOX, "resources", "requests", "memory"), "1Ti", "request-over-limit"),
    (("Service", "metadata", "name"), "Echo_1", "bad-name"),
    ((*BOX, "env"), [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "variable-twice"),
]


@pytest.mark.parametrize(("where", "value", "rule"), MISTAKES, ids=lambda one: one if isinstance(one, str) else None)
def test_a_seeded_mistake_is_found(where, value, rule):
    right = manifests(echo(), {}, KubernetesPlace(project="climate", ingress="echo.site.org"))
    assert manifest_findings(right) == []
    documents = copy.deepcopy(right)
    kind, _, name = where[0].partition("/")
    at = next(i for i, one in enumerate(documents) if one["kind"] == kind and name in ("", one["metadata"]["name"]))
    place, last = (documents, at) if len(where) == 1 else (documents[at], where[-1])
    for key in where[1:-1]:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    assert rule in {one.rule for one in manifest_findings(documents)}
