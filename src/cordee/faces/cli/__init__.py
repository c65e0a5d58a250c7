"""The `cordee` command: parses, calls one function, renders."""

from __future__ import annotations

import sys

import click

from cordee.core.errors import EXIT_INTERNAL, EXIT_USAGE, CordeeError, UsageError
from cordee.core.terminal.group import LazyGroup
from cordee.faces.cli.commands import SECTIONS

# What shells, Slurm and other tools call them.
_ELSEWHERE = {
    **dict.fromkeys(("list", "ls", "ps", "jobs", "queue", "squeue", "sacct", "history"), "runs"),
    **dict.fromkeys(("status", "info", "describe"), "show"),
    **dict.fromkeys(("stop", "kill", "scancel", "abort", "rm"), "cancel"),
    **dict.fromkeys(("submit", "sbatch", "srun", "launch", "start", "train"), "run"),
    **dict.fromkeys(("restart", "continue", "requeue"), "resume"),
    **dict.fromkeys(("tail", "log", "output"), "logs"),
    **dict.fromkeys(("ssh", "exec", "attach"), "shell"),
    **dict.fromkeys(("top", "monitor", "dashboard"), "watch"),
    **dict.fromkeys(("sinfo", "clusters"), "cluster"),
    **dict.fromkeys(("image", "images", "build", "container"), "env"),
    **dict.fromkeys(("validate", "lint", "doctor"), "check"),
}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    elsewhere=_ELSEWHERE,
    systems=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(None, "-V", "--version", package_name="cordee", message="cordee %(version)s")
def cordee() -> None:
    """Take a training job from a laptop to a supercomputer and make every node pull its weight.

    \b
    Begin in a folder with a train.py:
      cordee run train.py  run it at once, as it is

    \b
    Say more in a document:
      cordee init       write a cordee.toml for what is there
      cordee check      see exactly what would run
      cordee run        run it: vetted, sampled, restarted, reported
    """


def main(arguments: list[str] | None = None, command: click.Command = cordee) -> int:
    """Run a command line and exit with the code of `cordee.core.errors`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = command.main(args=arguments, prog_name=command.name, standalone_mode=False)
    except click.exceptions.Exit as exit_request:
        code = exit_request.exit_code
    except click.ClickException as error:
        code = _tell(_usage_error(error), arguments)
    except click.Abort:
        code = 130
    except CordeeError as error:
        code = _tell(error, arguments)
    except BrokenPipeError:
        sys.stderr.close()
        code = EXIT_INTERNAL
    sys.exit(code if isinstance(code, int) else 0)


def _usage_error(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    name = context.command_path if context else "cordee"
    allowed = getattr(error, "possibilities", None)
    return UsageError(error.format_message(), allowed=allowed or None, next=f"`{name} --help` shows what it takes")


def _tell(error: CordeeError, arguments: list[str]) -> int:
    if "--json" in arguments:
        from cordee.core.terminal.output import print_json

        print_json(error.document())
    else:
        from cordee.core.draw.clean import clean

        click.echo(clean(f"cordee: {error}"), err=True)  # what a program has printed may be in it
    return error.exit_code if error.exit_code else EXIT_USAGE
