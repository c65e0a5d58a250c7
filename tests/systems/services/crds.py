"""Excerpts of published CRD schemas: what of them applies to the objects that are rendered here, without the words.

`python -m tests.systems.services.crds FOLDER` writes `crd_excerpts.json` anew from the JSON schemas of
https://github.com/datreeio/CRDs-catalog (MIT), commit 7b1e26ef9dee of 2026-08-20, which holds the CRDs that Argo CD, Cilium and the
Gateway API publish (each Apache-2.0). A key that is in no object here is in no excerpt, so an object that comes to use it is refused
until the excerpts are made anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from cordee.systems.services.catalogue import find_blueprint
from cordee.systems.services.kubernetes.gitops import write_service
from cordee.systems.services.kubernetes.manifests import manifests
from cordee.systems.services.kubernetes.part import KubernetesPlace

EXCERPTS = Path(__file__).with_name("crd_excerpts.json")
FILES = {
    "ApplicationSet": "argoproj.io/applicationset_v1alpha1.json",
    "AppProject": "argoproj.io/appproject_v1alpha1.json",
    "CiliumNetworkPolicy": "cilium.io/ciliumnetworkpolicy_v2.json",
    "HTTPRoute": "gateway.networking.k8s.io/httproute_v1.json",
}
SERVICES = ("mlflow", "open-webui", "vllm", "redis")
_WORDS = ("description", "title", "default", "examples")


def rendered() -> list[dict[str, Any]]:
    """Return the custom resources of some services: each kind that Cordée writes, in each of its forms."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for name in SERVICES:
            loaded = find_blueprint(name)
            values = {"model": "/models/one"} if name == "vllm" else {}
            web = any(port.protocol == "http" for port in loaded.blueprint.ports.values())
            host = {"ingress": f"{name}.site.org", "gateway": "edge/public"} if web and name != "vllm" else {}
            outside = {"load_balancer": True, "clients": ("10.0.0.0/8",)} if name == "redis" else {}
            at = KubernetesPlace(f"team-{name}", "climate", cilium=True, **host, **outside)
            documents = manifests(loaded, values, at)
            write_service(Path(place), loaded, documents, at, "https://git.site.org/services.git")
            found += documents
        for path in sorted(Path(place, "argocd").glob("*.yaml")):
            found += yaml.safe_load_all(path.read_text())
    return [one for one in found if one["kind"] in FILES]


def excerpt(schema: Any, values: list[Any]) -> Any:
    """Return what of a schema says something about these values, all of which it is asked about."""
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: value
        for key, value in schema.items()
        if key not in (*_WORDS, "properties", "items", "additionalProperties")
    }
    objects = [one for one in values if isinstance(one, dict)]
    if "properties" in schema:
        used = {key for one in objects for key in one}
        parts = {
            key: part for key, part in schema["properties"].items() if key in used or key in schema.get("required", ())
        }
        kept["properties"] = {
            key: excerpt(part, [one[key] for one in objects if key in one]) for key, part in parts.items()
        }
        # As an API server does it: a key that the schema does not have is refused.
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            kept["additionalProperties"] = False
    elif "additionalProperties" in schema:
        kept["additionalProperties"] = excerpt(
            schema["additionalProperties"], [one for some in objects for one in some.values()]
        )
    if "items" in schema:
        kept["items"] = excerpt(schema["items"], [one for some in values if isinstance(some, list) for one in some])
    return kept


def main() -> None:
    """Write the excerpts."""
    objects, found = rendered(), {}
    for kind, name in FILES.items():
        schema = json.loads(Path(sys.argv[1], Path(name).name).read_text())
        found[kind] = {"source": name, "schema": excerpt(schema, [one for one in objects if one["kind"] == kind])}
    EXCERPTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
