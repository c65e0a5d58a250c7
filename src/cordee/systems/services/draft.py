"""A new blueprint, to be changed by whoever asked for it."""

from __future__ import annotations

import re
from pathlib import Path

from cordee.core.documents.toml_text import quoted
from cordee.core.errors import UsageError
from cordee.systems.services.blueprint import NAME_FORMS, read_blueprint
from cordee.systems.services.catalogue import find_blueprint

_DRAFT = """\
# A blueprint of Cordée: what a service is, whatever it runs on. `cordee service check` says whether it is right.
schema = 1
name = NAME
purpose = "One sentence: what it is for."
cost = "Memory, disk, and seconds until it is ready."
install = ["pip install ..."]        # shown where the program is not there

# In braces: {host}, {port.NAME}, {url.NAME}, {volume.NAME}, {secret.NAME} (a file), {file.NAME}, {parameter.NAME}, {temp}.
argv = ["python", "-m", "http.server", "{port.http}", "--bind", "{host}", "--directory", "{volume.data}"]
# image = "registry/name@sha256:..."  # for podman and Kubernetes
guard = "token"                      # "own": the program asks for a password itself; "token": Cordée's guard does

[ports.http]
port = 8080                          # in a container; on a host a free one is taken

[ready]                              # without path, a connection is enough
[closed]                             # must be refused without credentials before the service counts as ready
path = "/"

[volumes.data]
path = "/data"                       # in a container; on a host a folder of the service
size = "1GB"

[secrets.token]                      # generated, in a file of mode 0600

[need]
cpus = 1
memory = "1GB"

[backup]
text = "The service is stopped while its volume is copied."
"""


def draft(name: str, base: str | None, path: Path) -> str:
    """Return the text of a new blueprint.

    Args:
        name: of the service.
        base: an entry of the catalogue to begin with.
        path: where it will be.

    Raises:
        UsageError: the name is none, or the catalogue has no such entry.
    """
    require_name(name)
    if base is None:
        text = _DRAFT.replace("NAME\n", quoted(name) + "\n", 1)
    else:
        text = re.sub(r'(?m)^name = ".*"$', f"name = {quoted(name)}", find_blueprint(base).text, count=1)
    read_blueprint(text, path)
    return text


def require_name(name: str) -> str:
    """Return a name of a service.

    Raises:
        UsageError: it is none: a path, say.
    """
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", name):
        raise UsageError("is no name of a service", given=name, allowed=NAME_FORMS)
    return name
