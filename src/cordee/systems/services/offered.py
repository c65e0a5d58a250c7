"""What other systems may ask of services: where one that is ready answers."""

from __future__ import annotations

from pathlib import Path

from cordee.core.ports.services import DeployedService
from cordee.systems.services.instance import find_service
from cordee.systems.services.reach import reach_of


def deployed_service(name: str) -> DeployedService:
    """Return a service by its name (the port `deployed-service`).

    Raises:
        CordeeError: none has that name, or it is not ready.
    """
    folder = find_service(name)
    reach = reach_of(folder)
    token = Path(reach.token_file).read_text().strip() if reach.token_file else ""
    return DeployedService(reach.url, token, folder.root / "volumes")
