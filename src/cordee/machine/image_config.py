"""What a container image says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class ImageConfig:
    """What an image says of itself.

    Attributes:
        env: its variables.
        entrypoint, command: its argument vectors.
        workdir: where its commands begin; None: not said.
        architecture: as OCI spells it (`amd64`, `arm64`); None: not said.
        digest: `sha256:...` of the manifest it was imported from; None: it is a bare folder or file.
    """

    env: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    workdir: Optional[str] = None
    architecture: Optional[str] = None
    digest: Optional[str] = None
