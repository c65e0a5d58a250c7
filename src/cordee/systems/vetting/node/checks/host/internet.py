"""Can this node reach a host outside?"""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Optional

from cordee.systems.vetting.node.checks._base import CannotTest, Check, Context, Parameter, Result

_PORTS = {"http": 80, "https": 443}
_PROXY_REFUSES = (403, 407, 502, 503, 504)


class InternetCheck(Check):
    """Opens a TCP connection to `host`, or asks for `url` through the proxy that the ranks' environment names.

    A name that cannot be resolved, a refusal, a time-out and a missing route are told apart.
    """

    name = "host.internet"
    title = "Can this node reach a host outside?"
    parameters = (
        Parameter("host", "text", "name or address to connect to"),
        Parameter("port", "count", "TCP port", default=53),
        Parameter("url", "text", "http or https address to ask for instead; any answer of a server counts"),
        Parameter("timeout", "duration", "longest wait", default=3.0, unit="s"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        url, host = parameters.get("url"), parameters.get("host")
        if not url and not host:
            raise CannotTest("neither `host` nor `url` is given", "error")
        limit = parameters["timeout"]
        started = time.monotonic()
        if url:
            proxy = proxy_for(url, context.env)
            place = url + (f" through {proxy}" if proxy else "")
            fault = _unresolved(*_address(proxy or url), limit) or _ask(url, proxy, limit)
        else:
            place = f"{host} port {parameters['port']}"
            fault = _unresolved(str(host), parameters["port"], limit) or _connect(str(host), parameters["port"], limit)
        seconds = time.monotonic() - started
        result = self.result("fail" if fault else "pass", f"{place}: {fault or f'reached in {seconds:.3f} s'}")
        result.value, result.unit, result.threshold = round(seconds, 4), "s", limit
        return result


def proxy_for(url: str, env: Mapping[str, str]) -> Optional[str]:
    """Return the proxy that an environment names for an address; lower-case names win, `no_proxy` holds."""
    proxies = {name.lower()[:-6]: value for name, value in env.items() if name.lower().endswith("_proxy") and value}
    proxies |= {name[:-6]: value for name, value in env.items() if name.endswith("_proxy") and value}
    parts = urllib.parse.urlsplit(url)
    if _bypassed(parts.hostname or "", proxies.get("no", "")):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def _bypassed(host: str, no_proxy: str) -> bool:
    """Return whether `no_proxy` names a host: itself, a domain that it is in, or `*`."""
    names = [name.strip().lstrip(".").lower() for name in no_proxy.split(",") if name.strip()]
    return any(name == "*" or host.lower() == name or host.lower().endswith("." + name) for name in names)


def _address(url: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(url)
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)


def _unresolved(host: str, port: int, limit_s: float) -> Optional[str]:
    """Return why a name has no address; the C library's own patience may be longer than ours, hence the thread."""
    found: list[Optional[str]] = []

    def resolve() -> None:
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.append(None)
        except OSError as error:
            found.append(f"the name {host} cannot be resolved (DNS): {error.strerror or error}")
        except UnicodeError as error:
            found.append(f"{host} is no name of a host: {error}")

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(limit_s)
    return found[0] if found else f"the name {host} cannot be resolved (DNS): no answer within {limit_s:g} s"


def _connect(host: str, port: int, limit_s: float) -> Optional[str]:
    try:
        with socket.create_connection((host, port), timeout=limit_s):
            return None
    except OSError as error:
        return _words(error, limit_s)


def _ask(url: str, proxy: Optional[str], limit_s: float) -> Optional[str]:
    scheme = url.partition(":")[0]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({scheme: proxy} if proxy else {}))
    try:
        with opener.open(urllib.request.Request(url, method="HEAD"), timeout=limit_s):
            return None
    except urllib.error.HTTPError as error:
        # A proxy that refuses answers too; a server that does not know the page has been reached.
        refused = proxy and error.code in _PROXY_REFUSES
        return f"the proxy answers {error.code} {error.reason}" if refused else None
    except urllib.error.URLError as error:
        reason = error.reason
        return _words(reason, limit_s) if isinstance(reason, OSError) else str(reason)
    except (OSError, ValueError) as error:
        return _words(error, limit_s) if isinstance(error, OSError) else str(error)


def _words(error: OSError, limit_s: float) -> str:
    if isinstance(error, socket.timeout):
        return f"no answer within {limit_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    return error.strerror or str(error)
