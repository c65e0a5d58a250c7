"""`cordee serve`."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_folders

if TYPE_CHECKING:
    from cordee.core.web.tokens import Token

_ROOT = 0


@click.command()
@click.argument("run", required=False)
@click.option("--runs", "folders", multiple=True, metavar="DIR", help="Folder that holds runs; may be given again.")
@click.option("--port", type=click.IntRange(0, 65535), default=8090, help="Default: 8090; 0 is any.")
@click.option("--address", default="127.0.0.1", help="Where to listen (default: 127.0.0.1, this machine only).")
@click.option("--tokens", metavar="FILE", help="Lines `NAME read TOKEN`, mode 0600: who may look beside yourself.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Additional host name to accept (Host header).")
@click.option("--open", "browse", is_flag=True, help="Open a browser.")
@json_option
def command(
    run: str | None,
    folders: tuple[str, ...],
    port: int,
    address: str,
    tokens: str | None,
    hosts: tuple[str, ...],
    browse: bool,
    as_json: bool,
) -> None:
    """Show runs as web pages, live, to yourself on this machine; RUN (a run or a recording) is shown first.

    \b
    Example:
      cordee serve --port 8090
    """
    try:
        from cordee.faces.web.app import make_app
        from cordee.faces.web.server_loop import listen, serve
    except ImportError as error:
        raise UsageError(f"the pages need {error.name}", next="pip install 'cordee[web]'") from None
    parents = list(dict.fromkeys(Path(folder).absolute() for folder in folders)) or runs_folders(None)
    shown = _found(run, parents) if run else None
    local = _is_local(address)
    known = _tokens(tokens, address, local)
    app = make_app(
        parents,
        singles=[shown] if shown else [],
        hosts=[*hosts, *_names(address, local)],
        tokens=known,
        users={os.geteuid(), _ROOT} if local else (),
        completes=True,
    )
    listener = listen(address, port)
    name = _names(address, local)[0]
    page = f"#/run/{shown.name}" if shown else ""
    url = f"http://{name}:{listener.getsockname()[1]}/{page}"

    def ready() -> None:
        if as_json:
            folders_shown = [str(parent) for parent in parents]
            print_json({"schema": "cordee.serve/1", "url": url, "folders": folders_shown, "tokens": len(known)})
        else:
            click.echo(url)
        if browse:
            click.launch(url)

    serve(app, listener, ready)


def _found(run: str, parents: list[Path]) -> Path:
    """Return the folder of a run or a recording.

    Raises:
        RunNotFound: there is none.
    """
    from cordee.runs.folder import RunFolder
    from cordee.runs.index import find_run
    from cordee.telemetry.node.recording import is_recording

    folder = RunFolder(Path(run).resolve())
    if Path(run).is_dir() and (folder.exists() or is_recording(folder)):
        return folder.root
    return find_run(run, *parents).root.resolve()


def _is_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise UsageError(
            "this is no address",
            given=address,
            allowed="an IPv4 or IPv6 address of this machine, as 127.0.0.1 or 0.0.0.0",
        ) from None


def _tokens(path: str | None, address: str, local: bool) -> list[Token]:
    """Return the tokens of a file.

    Raises:
        UsageError: others could reach the server, and there are none.
    """
    if path is None and not local:
        raise UsageError(
            "others can reach this address: they need tokens",
            given=f"--address {address}",
            allowed="--tokens FILE with lines `NAME read TOKEN`, mode 0600",
            next="`openssl rand -hex 24` makes a token; or listen on 127.0.0.1 and use `ssh -L 8090:localhost:8090 HOST`",
        )
    if path is None:
        return []
    from cordee.core.web.tokens import read_tokens

    return read_tokens(path)


def _names(address: str, local: bool) -> list[str]:
    """Return the names by which a server on this address is called."""
    if local:
        return [f"[{address}]" if ":" in address else address]
    given = [] if ipaddress.ip_address(address).is_unspecified else [f"[{address}]" if ":" in address else address]
    return [*given, socket.gethostname()]
