"""nginx as the front door: its workers go on with what they have begun when routes change."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Set
from pathlib import Path

from cordee.core.web import nginx
from cordee.core.web.nginx import ONWARD, NginxFolder
from cordee.machine.processes.tree import tree_of
from cordee.systems.services.door._base import PROXY_HEADER, Door, DoorRoute, DoorSettings

_HEAD = """\
  log_format door escape=json '{{"at":$msec,"service":"$server_name","user":"$user","status":$status,"sent":$bytes_sent,"received":$request_length,"seconds":$request_time}}';
  access_log {folder}/access.log door;
  map $upstream_connect_time $stood {{ default 1; '' 0; '-' 0; }}
  map $person $user {{ default $person; '' $remote_user; }}
  map $person $client {{ default $person; '' $binary_remote_addr$http_authorization; }}
"""
_PROXY = "      proxy_next_upstream off;\n" + ONWARD
# Who asks, where a proxy in front that knows the secret says so. Without ~ a map would take `Anna` for `anna`.
_PERSON = """\
  map $http_{proxy} $by_proxy {{ default 0; "~^{secret}$" 1; }}
  map "$by_proxy:$http_{header}" $person {{ default ''; "~^1:(?<who>[A-Za-z0-9._@+-]{{1,128}})$" $who; }}
"""
_NOBODY = "  map $remote_user $person { default ''; }\n"
_HOLD = """\
      auth_request /.cordee-hold;
      auth_request_set $target $upstream_http_x_cordee_target;
      proxy_pass http://$target;
"""
_SERVER = """\
  {limits}server {{
    listen {address}:{port}{ssl};
    server_name {service};
    client_max_body_size {body};
{quotas}    location / {{
{gate}{way}{proxy}    }}
    location @refused {{
      if ($stood) {{ return 502 "the service broke off\\n"; }}
      recursive_error_pages on;
      error_page 500 =503 @asleep;
{hold}{proxy}    }}
    location @asleep {{ return 503 "the service does not run; its owner sees why by: cordee service status {service}\\n"; }}
    location = /.cordee-hold {{
      internal;
      proxy_pass http://unix:{socket}:/{service};
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_read_timeout {hold_s:.0f}s;
    }}
  }}
"""
_GATE = """\
      set $known 0;
{person}      if ($http_authorization = "Bearer {token}") {{ set $known 1; }}
      if ($cookie_cordee_token = "{token}") {{ set $known 1; }}
      if ($arg_token = "{token}") {{
        add_header Set-Cookie "cordee_token={token}; Path=/; HttpOnly; SameSite=Strict";
        return 303 $uri;
      }}
      if ($known = 0) {{ return 401 "a token is needed: send it as Authorization: Bearer TOKEN, or open this address with ?token=TOKEN\\n"; }}
"""


class NginxDoor(Door):
    """See Door."""

    program, package = nginx.PROGRAM, nginx.PACKAGE
    finish_signal = signal.SIGQUIT

    def __init__(self, folder: Path, settings: DoorSettings) -> None:
        super().__init__(folder, settings)
        self._told: Set[int] = frozenset()

    @property
    def _files(self) -> NginxFolder:
        return NginxFolder(self.folder, self.settings.drain_s)

    def _argv(self, program: str) -> list[str]:
        return self._files.argv(program)

    def write(self, routes: list[DoorRoute]) -> None:
        head = _HEAD.format(folder=self.folder) + self._person()
        if self.settings.certificate:
            head += f"  ssl_certificate {self.settings.certificate};\n  ssl_certificate_key {self.settings.key};\n"
        self._files.write(head + "".join(self._server(route) for route in routes))

    def _person(self) -> str:
        if not self.settings.user_header:
            return _NOBODY
        names = {"proxy": _variable(PROXY_HEADER), "header": _variable(self.settings.user_header)}
        return _PERSON.format(secret=self.settings.proxy_secret, **names)

    def _identity(self, route: DoorRoute) -> tuple[str, str]:
        """Return maps that say whether who asks is let in, and by which credentials, and the headers that services get of it."""
        if not self.settings.user_header:
            return "", ""
        may = "".join(f' "~^{re.escape(name)}$" 1;' for name in route.users)
        maps = f"map $person $may_{route.port} {{ default 0;{may} }}\n  "
        headers = f"      proxy_set_header {PROXY_HEADER} '';\n"
        headers += f"      proxy_set_header {self.settings.user_header} $person;\n"
        if route.credentials:
            maps += f'map $may_{route.port} $key_{route.port} {{ default $http_authorization; 1 "{route.credentials}"; }}\n  '
            headers += f"      proxy_set_header Authorization $key_{route.port};\n"
        return maps, headers

    def _server(self, route: DoorRoute) -> str:
        limits, identity = self._identity(route)
        quotas = ""
        if route.requests_per_s is not None:
            zone = f"rate_{route.port}"
            rate = f"{max(1, round(route.requests_per_s * 60))}r/m"
            limits += f"limit_req_zone $client zone={zone}:1m rate={rate};\n  "
            burst = max(1, round(route.requests_per_s))
            quotas += f"    limit_req zone={zone} burst={burst} nodelay;\n    limit_req_status 429;\n"
        if route.connections is not None:
            zone = f"connections_{route.port}"
            limits += f"limit_conn_zone $client zone={zone}:1m;\n  "
            quotas += f"    limit_conn {zone} {route.connections};\n    limit_conn_status 429;\n"
        way = "      error_page 502 504 = @refused;\n" + (
            f"      proxy_pass http://{route.target};\n" if route.target else _HOLD
        )
        if not route.target:
            way = "      error_page 500 =503 @asleep;\n" + _HOLD
        person = f"      if ($may_{route.port}) {{ set $known 1; }}\n" if identity else ""
        return _SERVER.format(
            limits=limits,
            address=self.settings.address,
            port=route.port,
            ssl=" ssl" if self.settings.certificate else "",
            service=route.service,
            body=route.body_bytes or 0,
            quotas=quotas,
            gate=_GATE.format(token=route.token, person=person) if route.token else "",
            way=way,
            hold=_HOLD,
            proxy=_PROXY + identity,
            socket=self.settings.hold,
            hold_s=self.settings.hold_s,
        )

    def reload(self, pid: int) -> bool:
        workers = tree_of(pid).keys() - {pid}
        if not workers:  # before it has some a signal is lost, or ends it
            return False
        self._told = workers
        nginx.reload(pid)
        return True

    def follows(self, pid: int) -> bool:
        return not any(_accepts(worker) for worker in self._told & tree_of(pid).keys())

    def reopen(self, pid: int) -> None:
        os.kill(pid, signal.SIGUSR1)


def _accepts(worker: int) -> bool:
    """Return whether a worker takes connections: it renames itself right before it listens no more."""
    try:
        return b"shutting down" not in Path(f"/proc/{worker}/cmdline").read_bytes()
    except OSError:
        return False


def _variable(header: str) -> str:
    """Return what follows `$http_` for a header."""
    return header.lower().replace("-", "_")
