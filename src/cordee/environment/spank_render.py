"""What srun, sbatch and salloc run once for `--environment`: from the name of an EDF to what the job carries."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cordee.environment.edf import resolve
from cordee.environment.images import Store, locate, store_folder
from cordee.environment.spank.carried import carry
from cordee.errors import CordeeError, UsageError


def render(name: str, *, cwd: Path, variables: Mapping[str, str]) -> str:
    """Return the environment that an EDF describes, with its image looked up, as the word that travels with the job.

    Args:
        name: as `--environment` takes it.
        cwd: the caller's working directory.
        variables: the caller's environment.

    Raises:
        CordeeError: the EDF, or its image, is not there or wrong, or it is too large to travel.
    """
    resolved = resolve(name, cwd=cwd, variables=variables)
    for finding in resolved.findings:
        print(f"cordee: {finding}", file=sys.stderr)
    environment = locate(resolved.environment, Store(store_folder(variables)), pull=True)
    try:
        return carry(environment)
    except ValueError as error:
        raise UsageError(
            "the environment is too large to travel with a job",
            file=str(resolved.files[-1]),
            given=str(error),
            next="give fewer mounts or shorter variables: mount a folder instead of what lies in it",
        ) from None


def main(argv: list[str]) -> int:
    """Print the word for the EDF that the only argument names; words on standard error when it cannot be had."""
    try:
        print(render(argv[0], cwd=Path.cwd(), variables=os.environ))
    except CordeeError as error:
        for fault in getattr(error, "findings", None) or [error]:
            print(f"cordee: --environment={argv[0]}: {fault}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
