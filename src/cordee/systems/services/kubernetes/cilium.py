"""Cilium's form of a network policy: the same paths, and questions to the DNS are seen by Cilium.

Source: https://docs.cilium.io/en/stable/security/policy/language/.
"""

from __future__ import annotations

from typing import Any

_Object = dict[str, Any]
_SPACE = "k8s:io.kubernetes.pod.namespace"
_NAME = "kubernetes.io/metadata.name"
_DNS_PORT = 53


def cilium_policy(policy: _Object) -> _Object:
    """Return a CiliumNetworkPolicy that allows what a NetworkPolicy with selectors and ports allows.

    Raises:
        ValueError: it has something that this form is not made for.
    """
    spec = policy["spec"]
    made: _Object = {"endpointSelector": spec["podSelector"]}
    for way, ends in (("ingress", "fromEndpoints"), ("egress", "toEndpoints")):
        if way.capitalize() not in spec["policyTypes"]:
            continue
        rules = [_rule(rule, "from" if way == "ingress" else "to", ends) for rule in spec.get(way) or ()]
        made[way] = rules or [{}]  # a rule that allows nothing: all else is denied
    return {**policy, "apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "spec": made}


def _rule(rule: _Object, peers: str, ends: str) -> _Object:
    ports = [{"port": str(port["port"]), "protocol": port["protocol"]} for port in rule["ports"]]
    to_ports: _Object = {"ports": ports}
    if any(port["port"] == _DNS_PORT for port in rule["ports"]):
        to_ports["rules"] = {"dns": [{"matchPattern": "*"}]}
    networks = [peer["ipBlock"]["cidr"] for peer in rule[peers] if set(peer) == {"ipBlock"}]
    if len(networks) == len(rule[peers]):
        return {f"{peers}CIDR": networks, "toPorts": [to_ports]}
    return {ends: [_endpoint(peer) for peer in rule[peers]], "toPorts": [to_ports]}


def _endpoint(peer: _Object) -> _Object:
    """Return a selector of endpoints; without a namespace it is the policy's own."""
    if set(peer) == {"podSelector"}:
        return dict(peer["podSelector"])
    space = peer.get("namespaceSelector")
    if space == {}:
        return {"matchExpressions": [{"key": _SPACE, "operator": "Exists"}]}
    if space is not None and set(space) == {"matchLabels"} and set(space["matchLabels"]) == {_NAME}:
        return {"matchLabels": {_SPACE: space["matchLabels"][_NAME]}}
    raise ValueError(f"no endpoint of Cilium for {peer}")
