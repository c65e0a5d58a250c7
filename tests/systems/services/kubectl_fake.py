"""A `kubectl` that stands in for an API server: it keeps objects in a folder, records its calls, and fails as it is told to.

Fields belong to who applied them last, as with server-side apply. Files of the folder: `objects.json`, `calls.jsonl`; and, where a test
writes them, `down` (the server cannot be reached) and `refuse` (KIND/NAME, which it refuses; `-` before it: only in earnest).
"""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path

FOLDER = Path(os.environ["CORDEE_FAKE_CLUSTER"])
PLURALS = {
    "namespaces": "Namespace", "deployments.apps": "Deployment", "services": "Service", "configmaps": "ConfigMap",
    "ingresses.networking.k8s.io": "Ingress", "networkpolicies.networking.k8s.io": "NetworkPolicy", "secrets": "Secret",
    "persistentvolumeclaims": "PersistentVolumeClaim", "serviceaccounts": "ServiceAccount", "limitranges": "LimitRange",
    "rolebindings.rbac.authorization.k8s.io": "RoleBinding", "resourcequotas": "ResourceQuota",
    "httproutes.gateway.networking.k8s.io": "HTTPRoute", "ciliumnetworkpolicies.cilium.io": "CiliumNetworkPolicy",
    "appprojects.argoproj.io": "AppProject", "applicationsets.argoproj.io": "ApplicationSet",
}  # fmt: skip


def put(target, path, value):
    *above, last = split(path)
    for key in above:
        target = target.setdefault(key, {})
    target.pop(last, None) if value is ... else target.__setitem__(last, value)


def split(path):
    """Keys may have dots: they are kept as the object has them."""
    return json.loads(path)


def flat(document):
    found = {}

    def walk(value, keys):
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(inner, [*keys, key])
        else:
            found[json.dumps(keys)] = value

    walk({key: value for key, value in document.items() if key not in ("apiVersion", "kind")}, [])
    return found


def main() -> int:
    words = [word for word in sys.argv[1:] if not word.startswith("--request-timeout")]
    given = sys.stdin.read() if "-" in words else ""
    with (FOLDER / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    if (FOLDER / "down").exists():
        print("Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout", file=sys.stderr)
        return 1
    store = FOLDER / "objects.json"
    objects = json.loads(store.read_text()) if store.exists() else {}
    option = lambda name: words[words.index(name) + 1] if name in words else ""  # noqa: E731
    namespace = option("-n")
    match words[0]:
        case "api-resources":
            print("\n".join(PLURALS))
        case "apply":
            code = apply(words, given, objects)
            if "--dry-run=server" not in words:
                store.write_text(json.dumps(objects))
            return code
        case "create":
            document = json.loads(given)
            objects[key_of(document)] = {"live": document, "owned": {"create": list(flat(document))}}
            store.write_text(json.dumps(objects))
        case "get" if "-f" in words:
            asked = documents_of(given)
            print(
                json.dumps(
                    {"kind": "List", "items": [objects[key_of(one)]["live"] for one in asked if key_of(one) in objects]}
                )
            )
        case "get":
            kinds = [PLURALS[one] for one in words[1].split(",")]
            label, _, value = option("-l").partition("=")
            name = words[2] if len(words) > 2 and not words[2].startswith("-") else None
            found = [one["live"] for one in objects.values() if one["live"]["kind"] in kinds]
            found = [one for one in found if not namespace or one["metadata"].get("namespace") == namespace]
            if name is not None:
                found = [one for one in found if one["metadata"]["name"] == name]
                print(json.dumps(found[0]) if found else "")
            else:
                chosen = [one for one in found if one["metadata"].get("labels", {}).get(label) == value]
                print(json.dumps({"kind": "List", "items": chosen}))
        case "delete":
            kind, name = PLURALS[words[1]], words[2]
            if kind == "Namespace":
                objects = {key: one for key, one in objects.items() if one["live"]["metadata"].get("namespace") != name}
            objects.pop(f"{kind}/{'' if kind == 'Namespace' else namespace}/{name}", None)
            store.write_text(json.dumps(objects))
    return 0


def documents_of(text):
    return [json.loads(line) for line in text.splitlines()]


def key_of(document):
    return f"{document['kind']}/{document['metadata'].get('namespace', '')}/{document['metadata']['name']}"


def apply(words, given, objects) -> int:
    manager = next(word.partition("=")[2] for word in words if word.startswith("--field-manager="))
    dry, force = "--dry-run=server" in words, "--force-conflicts" in words
    refused = (FOLDER / "refuse").read_text().strip() if (FOLDER / "refuse").exists() else ""
    done, failed = [], 0
    for document in documents_of(given):
        kind, name = document["kind"], document["metadata"]["name"]
        if refused.lstrip("-") == f"{kind}/{name}" and not (dry and refused.startswith("-")):
            print(
                f"Error from server (Forbidden): {kind.lower()}s {name!r} is forbidden: exceeded quota", file=sys.stderr
            )
            failed = 1
            continue
        one = objects.setdefault(
            key_of(document), {"live": {"kind": kind, "apiVersion": document["apiVersion"]}, "owned": {}}
        )
        now, new = flat(one["live"]), flat(document)
        clashes = {
            other: [path for path in paths if path in new and now.get(path) != new[path]]
            for other, paths in one["owned"].items()
            if other != manager
        }
        clashes = {other: paths for other, paths in clashes.items() if paths}
        if clashes and not force:
            for other, paths in clashes.items():
                print(
                    f'error: Apply failed with {len(paths)} conflict: conflict with "{other}" using v1:',
                    file=sys.stderr,
                )
                for path in paths:
                    print("- ." + ".".join(split(path)), file=sys.stderr)
            failed = 1
            continue
        for path in one["owned"].get(manager, ()):
            if path not in new:
                put(one["live"], path, ...)
        for path, value in new.items():
            put(one["live"], path, copy.deepcopy(value))
        for other, paths in clashes.items():
            one["owned"][other] = [path for path in one["owned"][other] if path not in paths]
        one["owned"][manager] = list(new)
        done.append(one["live"])
    print(json.dumps({"kind": "List", "items": done}) if dry else "\n".join(one["metadata"]["name"] for one in done))
    return failed


if __name__ == "__main__":
    sys.exit(main())
