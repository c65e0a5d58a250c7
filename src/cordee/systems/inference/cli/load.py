"""`cordee service load`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option

SCHEMA = "cordee.service-load/1"
_TITLES = (
    "at once",
    "replicas",
    "requests/s",
    "tokens/s",
    "first p50",
    "first p99",
    "between p50",
    "between p99",
    "failed",
)


@click.command("load")
@click.argument("service", metavar="SERVICE|URL")
@click.option(
    "--at-once", default="1,2,4,8", show_default=True, metavar="N,N", help="Requests at the same time, each in turn."
)
@click.option("--requests", type=click.IntRange(1), default=32, show_default=True, help="Requests of each step.")
@click.option("--tokens", type=click.IntRange(1), default=32, show_default=True, help="The most tokens of an answer.")
@click.option("--prompt", "prompts", multiple=True, help="What is asked; several are taken in turn.")
@click.option("--model", default="", help="The model's name in requests (default: SERVICE).")
@json_option
def command(
    service: str, at_once: str, requests: int, tokens: int, prompts: tuple[str, ...], model: str, as_json: bool
) -> None:
    """Measure what an endpoint gives: tokens and requests in a second, time to the first token and between tokens, by percentiles.

    SERVICE is deployed; of a URL, the key is in OPENAI_API_KEY. Each number of requests at once is a step; with replicas, how many
    answered is beside it. Tokens are counted by the pieces of the stream. Exit code 1: a request failed.

    \b
    Example:
      cordee service load endpoint --at-once 1,4,16 --requests 64 --tokens 40
    """
    from cordee.core.ports.services import DEPLOYED, DeployedService, FindService
    from cordee.core.registry import offered
    from cordee.systems.inference.pool.served import read_pool
    from cordee.systems.inference.traffic import LoadQuestion, measure

    try:
        steps = [int(one) for one in at_once.split(",")]
        if min(steps) < 1 or max(steps) > 1024:
            raise ValueError
    except ValueError:
        raise UsageError(
            "--at-once is a list of numbers", given=at_once, allowed="1,2,4,8, each at most 1024"
        ) from None
    find: FindService | None = offered(DEPLOYED)
    if "://" in service:
        place = DeployedService(service.removesuffix("/v1"), os.environ.get("OPENAI_API_KEY", ""), Path("/nowhere"))
    elif find is None:
        raise UsageError("no services are known here", given=service, allowed="a URL")
    else:
        place = find(service)
    question = LoadQuestion(place.url, place.token, model or service, prompts or ("Once upon a time",), tokens)

    def replicas() -> int:
        told = read_pool(place.volumes / "models").get("instances", ())
        return sum(one["state"] == "ready" for one in told)

    found: list[dict[str, Any]] = []
    for step in steps:
        found.append(measure(question, step, requests, replicas).document())
        if not as_json:
            if len(found) == 1:
                click.echo(_line(_TITLES))
            click.echo(_row(found[-1]))
            for fault, number in found[-1]["faults"].items():
                click.echo(f"cordee: {number} failed: {fault}", err=True)
    if as_json:
        print_json({"schema": SCHEMA, "service": service, "tokens": tokens, "steps": found})
    if any(one["failed"] for one in found):
        raise click.exceptions.Exit(EXIT_BAD)


def _row(one: dict[str, Any]) -> str:
    def ms(value: float | None) -> str:
        return "-" if value is None else f"{value * 1000:.0f} ms"

    least, most = one["replicas"]["least"], one["replicas"]["most"]
    first, between = one["first_token_s"], one["between_tokens_s"]
    cells = (
        str(one["at_once"]),
        (str(most) if least == most else f"{least}..{most}") if most else "-",
        f"{one['requests_per_s']:.2f}",
        f"{one['tokens_per_s']:.1f}",
        ms(first["p50"]),
        ms(first["p99"]),
        ms(between["p50"]),
        ms(between["p99"]),
        str(one["failed"]),
    )
    return _line(cells)


def _line(cells: tuple[str, ...]) -> str:
    return "".join(f"{cell:>{max(9, len(title)) + 2}}" for cell, title in zip(cells, _TITLES, strict=True))
