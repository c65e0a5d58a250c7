"""What srun, sbatch and salloc run once for `--environment`: from the name of an EDF to what the job carries."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cordee.core.backends import HERE
from cordee.core.errors import EXIT_INTERNAL, CordeeError, UsageError
from cordee.systems.environments.node.spank.carried import carry
from cordee.systems.environments.prepare import resolve_here, store_of
from cordee.systems.environments.start import site_words

LENIENT = "CORDEE_EDF_LENIENT"


def render(name: str, *, cwd: Path, variables: Mapping[str, str]) -> str:
    """Return the environment that an EDF describes, with its image looked up, as the word that travels with the job.

    An image that is not in the store yet is fetched now: once, and before nodes wait for it.

    Args:
        name: as `--environment` takes it.
        cwd: the caller's working directory.
        variables: the caller's environment; `CORDEE_ON` is the cluster whose profile counts, and `CORDEE_EDF_LENIENT=1`
            keeps keys that are not known.

    Raises:
        CordeeError: the EDF, or its image, is not there or wrong, or it is too large to travel.
    """
    site = site_words(variables.get("CORDEE_ON") or HERE, variables)
    lenient = variables.get(LENIENT, "0") not in ("", "0")
    resolved = resolve_here(name, site, cwd=cwd, environ=variables, lenient=lenient)
    for finding in resolved.findings:
        _say(str(finding))
    environment = resolved.located(store_of(site, variables), pull=True, say=_say)
    try:
        return carry(environment)
    except ValueError as error:
        raise UsageError(
            "the environment is too large to travel with a job",
            file=str(resolved.files[-1]),
            given=str(error),
            next="give fewer mounts or shorter variables: mount a folder instead of what lies in it",
        ) from None


def _say(text: str) -> None:
    print(f"cordee: {text}", file=sys.stderr)


def main(argv: list[str]) -> int:
    """Print the word for the EDF that the only argument names; words on standard error when it cannot be had."""
    try:
        print(render(argv[0], cwd=Path.cwd(), variables=os.environ))
    except CordeeError as error:
        faults = getattr(error, "findings", None) or [error]
        for fault in faults:
            _say(f"--environment={argv[0]}: {fault}")
        if any("--lenient" in (fault.next or "") for fault in faults):
            _say(f"in front of a command of Slurm, --lenient is {LENIENT}=1")
        return error.exit_code
    except OSError as error:
        _say(f"--environment={argv[0]}: {error.filename}: {error.strerror}")
        return EXIT_INTERNAL
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
