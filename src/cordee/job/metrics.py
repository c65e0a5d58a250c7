"""`[metrics]`: what is recorded of a training beside its own `cordee.log`."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cordee.core.documents.fields import Document, Duration, Lines, wrong

Adapter = Literal["wandb", "tensorboard", "mlflow", "device_mesh", "megatron"]
_URL_FORMS = (
    'an address of this node, such as "http://127.0.0.1:8000/metrics"; {port}, {rank} and {local_rank} are filled in'
)
_PLACEHOLDERS = {"port", "rank", "local_rank"}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _url(value: str) -> str:
    unknown = set(re.findall(r"\{([^}]*)\}", value)) - _PLACEHOLDERS
    if unknown:
        raise wrong(f"holds {{{min(unknown)}}}, which stands for nothing here", _URL_FORMS)
    filled = value.format_map(dict.fromkeys(_PLACEHOLDERS, "1")) if "{" in value else value
    try:
        parts = urlsplit(filled)
        port = parts.port
    except ValueError:
        raise wrong("is not a URL", _URL_FORMS) from None
    if parts.scheme != "http" or not parts.hostname or port == 0 or any(character <= " " for character in value):
        raise wrong("is not a URL that begins with http://", _URL_FORMS)
    if parts.username is not None or not _is_loopback(parts.hostname):
        raise wrong("does not lead to the node itself", _URL_FORMS)
    return value


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ScrapeTable(Document):
    """`[[metrics.scrape]]`: a Prometheus endpoint of the job that is read on every node, or for every rank."""

    url: Annotated[str, AfterValidator(_url)]
    """The address on the node; `{port}`, `{rank}` and `{local_rank}` are filled in."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """The port of local rank 0, which each local rank adds its number to."""
    every: Annotated[Duration, Field(ge=1, le=3600)] = 5.0
    """The time between two readings."""
    per: Literal["node", "rank"] = "node"
    """Whether it is read once on each node, or for each rank."""
    metrics: Lines = ()
    """Patterns of the metrics that are kept; without them, all."""

    @model_validator(mode="after")
    def _port_is_given_where_it_is_used(self) -> ScrapeTable:
        if ("{port}" in self.url) != (self.port is not None):
            text = "port goes with {port} in url" if self.port is not None else "{port} in url needs port"
            raise wrong(text, 'port = 8000 and url = "http://127.0.0.1:{port}/metrics": 8000 + the local rank')
        if self.per == "node" and re.search(r"\{(rank|local_rank)\}", self.url):
            raise wrong(
                '{rank} in url needs per = "rank"', 'per = "rank", or a url that is the same for the whole node'
            )
        return self


class MetricsTable(Document):
    """`[metrics]`: libraries whose numbers are recorded too, and endpoints that are read."""

    adapters: Annotated[tuple[Adapter, ...], BeforeValidator(_tuple)] = (
        "wandb",
        "tensorboard",
        "mlflow",
        "device_mesh",
        "megatron",
    )
    """Libraries whose numbers are recorded, too; an empty list turns them off."""
    scrape: Annotated[tuple[ScrapeTable, ...], BeforeValidator(_tuple)] = ()
    """Prometheus endpoints of the job."""
