"""One HTTP exchange with an address that was looked at, directly or through a proxy, within a deadline."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from urllib.parse import SplitResult, urlsplit

from cordee.systems.data.fetch.reach import Reach, Refused

_CONNECT_S = 10.0
PORTS = {"http": 80, "https": 443}


class Exchange:
    """Asks for one URL; a context manager, which closes the connection.

    Args:
        parts: of the URL, looked at already.
        reach: what may be reached.
        resolve: returns the addresses of a host.
        headers: of the request.
        deadline: monotonic: by then the answer's head is there, or the connection is closed.

    Attributes:
        address: that it is connected to.
        answer: of the server.

    Raises:
        Refused: the address may not be reached.
        OSError, http.client.HTTPException: there was no answer.
    """

    def __init__(
        self,
        parts: SplitResult,
        reach: Reach,
        resolve: Callable[[str, int], Sequence[str]],
        headers: Mapping[str, str],
        deadline: float,
        context: ssl.SSLContext | None = None,
    ) -> None:
        host, port = str(parts.hostname), parts.port or PORTS[parts.scheme]
        addresses = reach.addresses(host, port, resolve)
        self._connection = http.client.HTTPConnection(host, port)
        self.address, connected = _connect(addresses, port, _proxy(parts, host), deadline)
        # A server that tells its head byte by byte never runs into the time limit of one read.
        held = [connected]
        over = threading.Timer(max(0.0, deadline - time.monotonic()), lambda: _shut(held[0]))
        over.daemon = True
        over.start()
        try:
            if parts.scheme == "https":
                wrapping = context or ssl.create_default_context()
                connected = wrapping.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
                held[0] = connected
                connected.do_handshake()  # type: ignore[attr-defined]
            self._connection.sock = connected
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            self._connection.request("GET", target, headers=dict(headers))
            self.answer = self._connection.getresponse()
        except BaseException:
            connected.close()
            raise
        finally:
            over.cancel()
        if time.monotonic() > deadline:
            self._connection.close()
            raise TimeoutError("the server did not answer in time")
        self._socket = connected

    def __enter__(self) -> Exchange:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answer.close()
        self._connection.close()

    def read(self, most: int, seconds: float) -> bytes:
        """Return what is there of the body, at most so much, within so many seconds; empty: it is over."""
        with suppress(OSError):
            self._socket.settimeout(max(0.05, seconds))
        return self.answer.read1(most)


def _connect(
    addresses: Sequence[str], port: int, proxy: tuple[str, int] | None, deadline: float
) -> tuple[str, socket.socket]:
    last: OSError = OSError("there is no address")
    for address in addresses:
        left_s = min(_CONNECT_S, deadline - time.monotonic())
        if left_s <= 0:
            raise TimeoutError("nobody answered in time")
        try:
            if proxy is None:
                connected = socket.create_connection((address, port), left_s)
            else:
                connected = _tunnel(proxy, address, port, left_s)
        except OSError as error:
            last = error
            continue
        return address, connected
    raise last


def _proxy(parts: SplitResult, host: str) -> tuple[str, int] | None:
    """Return the proxy of the environment (`https_proxy`, `http_proxy`, `no_proxy`); it is told an address, so that it looks up none."""
    given = urllib.request.getproxies().get(parts.scheme)
    if not given or urllib.request.proxy_bypass(host):
        return None
    proxy = urlsplit(given if "://" in given else f"http://{given}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise Refused("proxy", f"the proxy {given!r} of the environment is none that is understood: http://HOST:PORT")
    return proxy.hostname, proxy.port or 3128


def _tunnel(proxy: tuple[str, int], address: str, port: int, seconds: float) -> socket.socket:
    connected = socket.create_connection(proxy, seconds)
    place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    try:
        connected.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            byte = connected.recv(1)  # what follows the head is the server's
            if not byte or len(head) > 16384:
                raise OSError("the proxy has closed the connection")
            head += byte
        words = head.split(b"\r\n", 1)[0].split(None, 2)
        if len(words) < 2 or words[1] != b"200":
            said = b" ".join(words[1:]).decode(errors="replace")
            raise OSError(f"the proxy refuses {place}: {said}")
    except BaseException:
        connected.close()
        raise
    return connected


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
