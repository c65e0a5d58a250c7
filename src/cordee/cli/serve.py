"""`cordee serve`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.cli.options import json_option, runs_folders
from cordee.cli.output import print_json
from cordee.errors import UsageError


@click.command()
@click.argument("run", required=False)
@click.option("--runs", "folders", multiple=True, metavar="DIR", help="Folder that holds runs; may be given again.")
@click.option("--port", type=click.IntRange(0, 65535), default=8090, help="Default: 8090; 0 is any.")
@click.option("--address", default="127.0.0.1", help="Where to listen (default: 127.0.0.1, this machine only).")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Name by which it is called, for the Host header.")
@json_option
def command(
    run: str | None, folders: tuple[str, ...], port: int, address: str, hosts: tuple[str, ...], as_json: bool
) -> None:
    """Show runs as web pages, live, from this machine; RUN opens with that one.

    \b
    Example:
      cordee serve --port 8090
    """
    try:
        from cordee.web.app import make_app
        from cordee.web.serving import serve
    except ImportError as error:
        raise UsageError(f"the pages need {error.name}", next="pip install 'cordee[web]'") from None
    parents = [Path(folder).absolute() for folder in folders] or runs_folders(None)

    def said(where: str, at: int) -> None:
        url = f"http://{where}:{at}/"
        if as_json:
            print_json({"schema": "cordee.serve/1", "url": url, "folders": [str(parent) for parent in parents]})
        else:
            click.echo(url)

    serve(make_app(parents, singles=[run] if run else [], hosts=hosts), address, port, said)
