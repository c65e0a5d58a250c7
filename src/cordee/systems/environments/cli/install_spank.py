"""`cordee env install-spank`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from cordee.core.errors import CordeeError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option

INSTALL_SCHEMA = "cordee.env.install-spank/1"


@click.command("install-spank")
@click.option("--destdir", default="", metavar="DIR", help="A folder in front of all that is written, for packages.")
@click.option(
    "--plugin-dir", metavar="DIR", help="Where Slurm has its plugins (default: as `scontrol show config` says)."
)
@click.option("--plugstack", metavar="FILE", help="Its plugstack.conf (default: beside slurm.conf).")
@click.option("--python", metavar="PATH", help="What has Cordée where jobs are submitted (default: this interpreter).")
@click.option("--node-python", metavar="PATH", help="Another one for nodes, 3.9 or newer, that needs no Cordée.")
@click.option(
    "--cluster", metavar="CLUSTER", help="Whose profile counts (default: CORDEE_ON of each user, else local)."
)
@click.option(
    "--bind", multiple=True, metavar="PATH", help="Of nodes, for every container to show: a TaskProlog, srun."
)
@click.option("--timeout-s", type=click.IntRange(1), metavar="S", help="To start a container (default: 120).")
@click.option("--compiler", metavar="CC", help="A C compiler (default: CC, else cc).")
@click.option("--include", multiple=True, metavar="DIR", help="Where slurm/spank.h lies, if the compiler finds none.")
@json_option
def command(
    destdir: str,
    plugin_dir: str | None,
    plugstack: str | None,
    python: str | None,
    node_python: str | None,
    cluster: str | None,
    bind: tuple[str, ...],
    timeout_s: int | None,
    compiler: str | None,
    include: tuple[str, ...],
    as_json: bool,
) -> None:
    """Build Slurm's plugin and install it: srun, sbatch and salloc take --environment from then on.

    It is compiled against the headers of the site's Slurm, and its line is written at the end of plugstack.conf. A Slurm
    that has such an option already keeps its own: then nothing is written.

    \b
    Example:
      cordee env install-spank --node-python /usr/bin/python3
      cordee env install-spank --destdir pkg --plugin-dir /usr/lib64/slurm --plugstack /etc/slurm/plugstack.conf
    """
    from cordee.job.submit.bundle import write_node_zip
    from cordee.systems.environments import spank_install

    library = Path(plugin_dir or spank_install.plugin_folder()).absolute() / spank_install.LIBRARY
    words = [f"python={python or sys.executable}"]
    if node_python:
        words += [f"node_python={node_python}", f"node_cordee={library.with_name(spank_install.NODE_ZIP)}"]
    words += [f"cluster={cluster}"] if cluster else []
    words += [f"bind={':'.join(bind)}"] if bind else []
    words += [f"timeout_s={timeout_s}"] if timeout_s else []
    try:
        written = spank_install.install(
            library,
            Path(plugstack or spank_install.plugstack()).absolute(),
            words,
            destdir=destdir,
            compiler=compiler or os.environ.get("CC") or "cc",
            include=include,
            write_node_side=write_node_zip if node_python else None,
        )
    except OSError as error:
        raise CordeeError(
            f"it cannot be installed: {error.strerror}", given=error.filename, next="call it as root, or give --destdir"
        ) from None
    if as_json:
        print_json({"schema": INSTALL_SCHEMA, "written": [str(path) for path in written], "words": words})
    else:
        click.echo("\n".join(str(path) for path in written))
