"""nginx before the instances of a model: it sends each request to who has fewest of those that it gave away since they last changed.

When instances come or go, what is under way goes on. A question (POST) is sent again only where nobody took the connection
(https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_next_upstream).
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Collection
from pathlib import Path

from cordee.core.errors import CordeeError
from cordee.core.web.nginx import ONWARD, PACKAGE, NginxFolder, find_nginx, reload
from cordee.machine.processes.tree import is_same_process, kill_all, tree_of

_END_S = 5.0
_HTTP = """\
  access_log off;
  upstream instances {{
    zone instances 256k;
    least_conn;
{servers}  }}
  server {{
    listen {host}:{port};
    keepalive_timeout 0;
    client_max_body_size 0;
    location / {{
      {way}
{onward}    }}
  }}
"""
_SERVER = "    server 127.0.0.1:{port} max_fails=1 fail_timeout=1s;\n"
_ON = "proxy_pass http://instances; proxy_next_upstream error;"
_NOBODY = 'return 503 "no server of the model is ready\\n";'
# In place of one that is not there: upstreams are never empty.
_NO_SERVER = "    server 127.0.0.1:1 down;\n"


class BalancerError(CordeeError):
    """There is no nginx, or it does not take its configuration."""

    kind = "service"


class Balancer:
    """One nginx, which leads to nobody until `lead_to` is called.

    Args:
        folder: private.
        host, port: where it listens.
        drain_s: how long requests of instances that were left out may take.

    Attributes:
        open: the ports of instances that are given requests.
    """

    def __init__(self, folder: Path, host: str, port: int, drain_s: float) -> None:
        self._files = NginxFolder(folder, drain_s, workers=1, log="stderr")
        self._host, self._port = host, port
        self.open: set[int] = set()
        self._ports: tuple[int, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._workers: set[tuple[int, int]] = set()
        self._before: set[tuple[int, int]] = set()

    def start(self) -> None:
        """Start it; workers of one that was killed finish what they have begun, and free its port.

        Raises:
            BalancerError: it is not installed.
        """
        program = find_nginx()
        if program is None:
            raise BalancerError(
                "several instances need nginx, which is not on this node",
                allowed="nginx 1.22 or newer",
                next=f"apt-get install {PACKAGE}, or deploy with replicas = 1",
            )
        kill_all((pid for pid, start in self._workers if is_same_process(pid, start)), signal.SIGQUIT)
        self._workers, self._before, self.open = set(), set(), set()
        self._write(self._ports)
        self._process = subprocess.Popen(self._files.argv(program), stdin=subprocess.DEVNULL)

    @property
    def lives(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def has_left(self, port: int) -> bool:
        """Return whether nobody gives requests to the instance at a port any more."""
        return port not in self._ports and self._settled

    @property
    def _settled(self) -> bool:
        self._before = {one for one in self._before if is_same_process(*one) and not _is_ending(one[0])}
        return not self._before

    def lead_to(self, ports: Collection[int]) -> None:
        """Send requests to the instances at these ports of this node; those that others have go on.

        Raises:
            OSError: the disk refuses, or it has just ended; the way is as it was.
        """
        if self._process is None or not self.lives:
            return
        seen = tree_of(self._process.pid).values()
        self._workers = {(one.pid, one.start_ticks) for one in seen if one.pid != self._process.pid} or self._workers
        wanted = tuple(sorted(ports))
        self.open &= set(wanted)
        if wanted != self._ports and self._workers:  # a worker is there: the signal is understood
            self._write(wanted)
            reload(self._process.pid)
            self._ports = wanted
            self._before |= self._workers
        elif self._workers and self._settled:
            self.open = set(self._ports)

    def _write(self, ports: tuple[int, ...]) -> None:
        servers = "".join(_SERVER.format(port=port) for port in ports) or _NO_SERVER
        way = _ON if ports else _NOBODY
        self._files.write(_HTTP.format(servers=servers, host=self._host, port=self._port, way=way, onward=ONWARD))

    def end(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _is_ending(pid: int) -> bool:
    """Return whether a worker takes no new requests: nginx writes that into its name."""
    try:
        return b"shutting down" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True
