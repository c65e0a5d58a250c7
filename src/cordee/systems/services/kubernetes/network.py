"""How a service is reached: network policies, its Service, and an Ingress or a route of a Gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cordee.systems.services.blueprint import ServicePort
from cordee.systems.services.kubernetes.names import object_name
from cordee.systems.services.kubernetes.part import (
    CLIENT_LABEL,
    Manifest,
    ServicePart,
    balanced,
    labels_of,
    manifest,
    web_port,
)


def network_policy(part: ServicePart) -> Iterator[Manifest]:
    """Yield who reaches the service, and whom it reaches: the services that it comes after, at their ports."""
    blueprint = part.blueprint
    # One that asks nobody for credentials is reached by those only that come after it.
    clients = {"podSelector": {"matchLabels": {CLIENT_LABEL + part.name: "true"}} if blueprint.guard == "none" else {}}
    ingress: list[Manifest] = [{"from": [clients], "ports": _policy_ports(blueprint.ports)}] if blueprint.ports else []
    web = web_port(blueprint)
    if part.place.ingress and web:
        port = {"protocol": "TCP", "port": blueprint.ports[web].port}
        ingress.append({"from": [{"namespaceSelector": {}}], "ports": [port]})
    if part.place.load_balancer:
        networks = [{"ipBlock": {"cidr": network}} for network in part.place.clients]
        ingress.append({"from": networks, "ports": _policy_ports(balanced(blueprint))})
    egress = [
        {"to": [{"podSelector": {"matchLabels": labels_of(one)}}], "ports": _policy_ports(one.ports)}
        for one in part.reaches
    ]
    spec: Manifest = {"podSelector": {"matchLabels": part.labels}, "policyTypes": ["Ingress", "Egress"]}
    yield manifest("NetworkPolicy", part.metadata(part.name), spec={**spec, "ingress": ingress, "egress": egress})


def _policy_ports(ports: Mapping[str, ServicePort]) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port.port} for port in ports.values()]


def _service_ports(ports: Mapping[str, ServicePort]) -> list[Manifest]:
    names = {name: object_name(name) for name in ports}
    return [
        {"name": names[name], "port": port.port, "targetPort": names[name], "protocol": "TCP"}
        for name, port in ports.items()
    ]


def service_objects(part: ServicePart) -> Iterator[Manifest]:
    blueprint, web = part.blueprint, web_port(part.blueprint)
    if not blueprint.ports:
        return
    spec = {"type": "ClusterIP", "selector": part.labels, "ports": _service_ports(blueprint.ports)}
    yield manifest("Service", part.metadata(part.name), spec=spec)
    if part.place.load_balancer:
        outside: Manifest = {
            "type": "LoadBalancer",
            **({"loadBalancerClass": part.place.balancer_class} if part.place.balancer_class else {}),
            "loadBalancerSourceRanges": list(part.place.clients),
            # Clients keep their addresses, which the policies know; nodes open no port of their own.
            "externalTrafficPolicy": "Local",
            "allocateLoadBalancerNodePorts": False,
            "selector": part.labels,
            "ports": _service_ports(balanced(blueprint)),
        }
        yield manifest("Service", part.metadata(f"{part.name}-outside"), spec=outside)
    if part.place.gateway and part.place.ingress and web:
        space, _, gateway = part.place.gateway.partition("/")
        route = {
            "parentRefs": [{"namespace": space, "name": gateway}],
            "hostnames": [part.place.ingress],
            "rules": [{"backendRefs": [{"name": part.name, "port": blueprint.ports[web].port}]}],
        }
        yield manifest("HTTPRoute", part.metadata(part.name), spec=route)
    elif part.place.ingress and web:
        backend = {"service": {"name": part.name, "port": {"name": object_name(web)}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        tls = [{"hosts": [part.place.ingress], "secretName": f"{part.name}-tls"}]
        rules = [{"host": part.place.ingress, "http": {"paths": paths}}]
        yield manifest("Ingress", part.metadata(part.name), spec={"tls": tls, "rules": rules})
