"""nginx, run in the foreground by one user with all of its files in one folder: the front door, and the way to the servers of a model.

Its workers finish what they have begun when the configuration changes (https://nginx.org/en/docs/control.html).
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

PROGRAM, PACKAGE = "nginx", "nginx-light"
_PLACES = "/usr/sbin:/usr/local/sbin:/sbin"
_HEAD = """\
daemon off;
{user}pid {folder}/nginx.pid;
error_log {log} warn;
worker_processes {workers};
worker_rlimit_nofile 16384;
worker_shutdown_timeout {drain:.0f}s;
events {{ worker_connections 8000; }}
http {{
  client_body_temp_path {folder}/tmp/body;
  proxy_temp_path {folder}/tmp/proxy;
  fastcgi_temp_path {folder}/tmp/fastcgi;
  uwsgi_temp_path {folder}/tmp/uwsgi;
  scgi_temp_path {folder}/tmp/scgi;
  server_tokens off;
  default_type text/plain;
  map $http_upgrade $onward {{ default upgrade; '' close; }}
"""
# A connection for each request: nginx then never sends one again over another, and an open connection is a request under way.
ONWARD = """\
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_connect_timeout 5s;
      proxy_read_timeout 1d;
      proxy_send_timeout 1d;
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $onward;
"""


class NginxFolder:
    """The files of one nginx.

    Args:
        root: private to its user.
        drain_s: how long what was begun before a change lives on; then it is cut.
        workers: processes that answer.
        log: of its errors; empty: `error.log` in the folder.
    """

    def __init__(self, root: Path, drain_s: float, workers: int = 2, log: str = "") -> None:
        self.root, self._drain_s, self._workers = root, drain_s, workers
        self._log = log or str(root / "error.log")

    @property
    def configuration(self) -> Path:
        """Its file."""
        return self.root / "nginx.conf"

    def argv(self, program: str) -> list[str]:
        """Return the command that runs it, after `write`."""
        return [program, "-e", self._log, "-p", str(self.root), "-c", str(self.configuration)]

    def write(self, http: str) -> None:
        """Write the configuration.

        Args:
            http: what stands in `http { ... }`; `ONWARD` belongs in each location that leads on.

        Raises:
            OSError: the disk refuses.
        """
        (self.root / "tmp").mkdir(0o700, exist_ok=True)
        user = "user root;\n" if os.getuid() == 0 else ""
        about = {"folder": self.root, "log": self._log, "workers": self._workers, "drain": self._drain_s}
        partial = self.root / ".nginx.conf"
        partial.write_text(_HEAD.format(user=user, **about) + http + "}\n")
        partial.replace(self.configuration)


def find_nginx() -> str | None:
    """Return the program; None: it is not installed."""
    return shutil.which(PROGRAM) or shutil.which(PROGRAM, path=_PLACES)


def reload(pid: int) -> None:
    """Have a running nginx take what was written; what is under way goes on as it began.

    Raises:
        OSError: it is gone.
    """
    os.kill(pid, signal.SIGHUP)
