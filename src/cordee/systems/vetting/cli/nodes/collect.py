"""`cordee nodes collect`."""

from __future__ import annotations

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.core.units import SIZE_FORMS, parse_size
from cordee.job.terminal.options import json_option


@click.command("collect")
@click.option("--folder", required=True, metavar="DIR", help="The history's folder.")
@click.option("--tokens", required=True, metavar="FILE", help="Lines `NAME read|write|read,write TOKEN`; mode 0600.")
@click.option("--port", type=click.IntRange(0, 65535), default=8443, help="Default: 8443; 0 is any.")
@click.option("--address", default="127.0.0.1", help="Where to listen (default: 127.0.0.1; TLS is a proxy's).")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Names by which it is called, for the Host header."
)
@click.option("--max-body", default="64MB", metavar="SIZE", help="Largest vetting (default: 64MB).")
@json_option
def collect_command(
    folder: str, tokens: str, port: int, address: str, hosts: tuple[str, ...], max_body: str, as_json: bool
) -> None:
    """Take vettings over HTTP and write them into a history, for nodes that share no folder.

    \b
    Example:
      cordee nodes collect --folder /site/history --tokens /etc/cordee/tokens --port 8443
    """
    try:
        most_bytes = parse_size(max_body)
    except ValueError:
        raise UsageError("--max-body is not a size", given=max_body, allowed=SIZE_FORMS) from None
    try:
        from cordee.core.web.tokens import read_tokens
        from cordee.systems.vetting.fleet.collector import make_app, serve

        known = read_tokens(tokens)
        app = make_app(folder, known, [*hosts, "127.0.0.1", "localhost", "[::1]"], most_bytes)
    except ImportError as error:
        raise UsageError(f"the collector needs {error.name}", next="pip install 'cordee[web]'") from None

    def said(where: str) -> None:
        if as_json:
            print_json({"schema": "cordee.collect/1", "listening": where, "folder": folder, "tokens": len(known)})
        else:
            click.echo(f"{where}, writing into {folder}", err=True)

    serve(app, address, port, said)
