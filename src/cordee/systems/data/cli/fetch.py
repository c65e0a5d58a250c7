"""`cordee data fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option

if TYPE_CHECKING:
    from cordee.job.egress import FetchSite
    from cordee.systems.data.fetch.reach import Reach

SCHEMA = "cordee.fetch/1"


@click.command("fetch")
@click.argument("source", metavar="LIST", type=click.Path(path_type=Path))
@click.option(
    "--to", "folder", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Where files are made."
)
@click.option("--workers", type=click.IntRange(1, 256), default=16, show_default=True, help="Fetches at a time.")
@click.option("--per-site", type=click.IntRange(1, 64), default=4, show_default=True, help="Of them from one site.")
@click.option("--type", "kind", default="", metavar="TYPE", help="What all files must be, such as image/*.")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Ask only this host and those below it; repeatable."
)
@click.option("--max-size", default="50GB", show_default=True, metavar="SIZE", help="Of one file.")
@click.option(
    "--min-rate", default="10kB", show_default=True, metavar="SIZE", help="A second, or a server is given up."
)
@click.option("--max-time", default="1h", show_default=True, metavar="TIME", help="For one file.")
@click.option("--scan", "hook", metavar="COMMAND", help="Gets each file as its last word; not 0 refuses it.")
@click.option(
    "--private", multiple=True, metavar="NETWORK", help="May be reached although it is not public; repeatable."
)
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose rules hold (default: CORDEE_ON, else local).")
@json_option
def command(
    source: Path,
    folder: Path,
    workers: int,
    per_site: int,
    kind: str,
    hosts: tuple[str, ...],
    max_size: str,
    min_rate: str,
    max_time: str,
    hook: str | None,
    private: tuple[str, ...],
    cluster: str | None,
    as_json: bool,
) -> None:
    """Fetch the URLs of a list into a folder: each is looked at before it gets its name, and each ends in the account, fetch.jsonl.

    \b
    Example:
      cordee data fetch urls.txt --to images --type "image/*"
      cordee data fetch laion.parquet --to images --workers 64
    """
    import shlex

    from cordee.core.units import format_duration, format_size, parse_duration, parse_size
    from cordee.systems.data.fetch.download import Download, Limits
    from cordee.systems.data.fetch.listing import read_list
    from cordee.systems.data.fetch.run import BlockList, FetchRun

    site, fixed = _site(cluster)
    reach = _reach(site, fixed, hosts, private)
    hooks = site.scan or (tuple(shlex.split(hook)) if hook else ())
    try:
        limits = Limits(float(parse_size(min_rate)), parse_duration(max_time), parse_size(max_size), hooks)
    except ValueError as error:
        raise UsageError(f"an option is wrong: {error}") from None
    wanted = read_list(source)
    if kind:
        wanted = [one if one.type else one._replace(type=kind) for one in wanted]
    blocked = BlockList(None if site.blocked is None else Path(site.blocked))
    download = Download(folder, reach, limits, allowed=blocked.require)
    done = FetchRun(folder, download, blocked, workers, per_site, site.rate).run(wanted)
    counts = done.counts
    if as_json:
        numbers = {name: counts[name] for name in ("fetched", "already")}
        sums = {"bytes": done.bytes, "seconds": round(done.seconds, 3), "path": str(folder)}
        of_kind = {f"{name}_count": counts[name] for name in done.named}
        print_json({"schema": SCHEMA, **numbers, **sums, **of_kind, **done.named})
    else:
        words = [
            f"{counts[name]} {name}" for name in ("fetched", "already", "gone", "refused", "failed") if counts[name]
        ]
        click.echo(f"{folder}: {', '.join(words)}; {format_size(done.bytes)} in {format_duration(done.seconds)}")
        for name, entries in done.named.items():
            for entry in entries[:5]:
                click.echo(f"{name}: {entry['url']}: {entry['text']}", err=True)
            if counts[name] > 5:
                click.echo(f"{name}: {counts[name] - 5} more, see {folder / 'fetch.jsonl'}", err=True)
    if counts["refused"] or counts["failed"]:
        raise click.exceptions.Exit(EXIT_BAD)


def _site(cluster: str | None) -> tuple[FetchSite, bool]:
    """Return the rules of the cluster, and whether the site has made them: then nobody can widen them."""
    from cordee.job.cluster import load_cluster, profile_files
    from cordee.job.egress import FetchSite

    profile = load_cluster(cluster_name(cluster))
    try:
        files = profile_files(profile.name)
    except UsageError:
        files = []
    for file in files:
        if file.kind == "site profile" and isinstance(file.document.get("fetch"), dict):
            return FetchSite.model_validate(file.document["fetch"]), True
    return profile.fetch, False


def _reach(site: FetchSite, fixed: bool, hosts: tuple[str, ...], private: tuple[str, ...]) -> Reach:
    import ipaddress

    from cordee.systems.data.fetch.reach import Reach

    if private and fixed:
        raise UsageError("the site says what may be reached", given=f"--private {private[0]}", next="ask the operators")
    outside = [
        name for name in hosts if site.hosts and not any(name == one or name.endswith(f".{one}") for one in site.hosts)
    ]
    if outside:
        raise UsageError("the site does not allow that host", given=outside[0], allowed=", ".join(site.hosts))
    try:
        networks = tuple(ipaddress.ip_network(text, strict=False) for text in (*site.private, *private))
    except ValueError as error:
        raise UsageError(f"that is no network: {error}", given="--private", allowed="such as 10.1.0.0/16") from None
    return Reach(tuple(site.schemes), tuple(hosts or site.hosts), networks)
