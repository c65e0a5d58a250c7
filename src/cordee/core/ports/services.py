"""Ports about services that are deployed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

DEPLOYED = "deployed-service"


class DeployedService(NamedTuple):
    """A service that is ready.

    Attributes:
        url: of its first endpoint, from this machine.
        token: that it asks for; empty: none.
        volumes: the folder of its volumes.
    """

    url: str
    token: str
    volumes: Path


class FindService(Protocol):
    """Returns a service by its name.

    Raises:
        CordeeError: none has that name, or it is not ready.
    """

    def __call__(self, name: str) -> DeployedService: ...
