"""`cordee shell`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import termios
import tty
from pathlib import Path
from typing import Any

import click

from cordee import wire
from cordee.control.identity import agent_file, on_this_host, read_record
from cordee.control.supervisor.ownership import Ownership
from cordee.core.backends import abilities
from cordee.core.errors import CordeeError, UsageError
from cordee.faces.cli.scheduler_state import stand, state_word, words
from cordee.job.submit import plan_of
from cordee.job.terminal.options import runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.runs.folder import RunFolder
from cordee.wire import messages
from cordee.wire.messages import TO_CLIENT, decode, encode


@click.command(context_settings={"ignore_unknown_options": True})
@run_argument
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@click.option("--node", help="On this node (default: the first).")
@runs_option
def command(run: str, argv: tuple[str, ...], node: str | None, runs: str | None) -> None:
    """Open a shell inside RUN (default: the last one), on one of its nodes, in the ranks' environment.

    A command after RUN is run there instead, and its exit code is returned. What is typed and shown is not encrypted on its way:
    where that way leads to another host, the cluster's profile must say `network_trusted = true`.

    \b
    Example:
      cordee shell last --node local-1
      cordee shell last -- nvidia-smi
    """
    folder = found(run, runs)
    state, standing = stand(folder, state_of(folder))
    if state.ended:
        raise UsageError("this run has ended; there is no job to open a shell in", given=folder.id)
    if state_word(state.state, standing) in ("queued", "held"):
        text = f"this run has no nodes now: {words(standing)}" if standing else "this run has not started yet"
        raise UsageError(text, given=folder.id, next=f"`cordee watch {folder.id}` shows when it does")
    node = way_to(folder, [one.node for one in state.nodes], node)
    raise click.exceptions.Exit(asyncio.run(ShellSession(folder.rendezvous, list(argv), node).run()))


def way_to(folder: RunFolder, nodes: list[str], node: str | None) -> str | None:
    """Return the node to open a shell on; None leaves it to the supervisor.

    What is typed goes from here to the supervisor, and from there to the node, where others may read it between hosts.

    Args:
        folder: the run's.
        nodes: the names of its nodes.
        node: the one that was asked for.

    Raises:
        UsageError: a part of the way leads to another host, or nobody knows, and the profile does not trust the network.
    """
    plan = plan_of(folder)
    if not abilities(plan["backend"]).several_machines or plan.get("network_trusted"):
        return node
    here = [name for name in nodes if on_this_host(read_record(agent_file(folder, name)))]
    epochs = Ownership(folder.control / "epochs")
    newest = epochs.newest()
    leads_here = bool(newest) and on_this_host(epochs.owner(newest or 0) or {})
    asked = node or next(iter(here), None)
    if leads_here and asked in here:
        return asked
    allowed = ", ".join(here) if leads_here and here else "none from here"
    raise UsageError(
        "what is typed into this shell would cross the network, where others may read it",
        given=f"from {socket.gethostname()} to {node or 'a node of the run'}, through the run's supervisor",
        allowed=f"nodes on this host, if the supervisor is here, too ({allowed}); all nodes with network_trusted in the profile",
        next="where nobody else can read the cluster's network, set `network_trusted = true` in its profile before the next run;"
        f" else `ssh {node or 'NODE'}`, if your site allows that",
    )


class ShellSession:
    """One shell session, from this terminal to a node.

    Args:
        rendezvous: the run's rendezvous file.
        argv: the command; empty for the user's shell.
        node: the node's name; None for the first.
    """

    def __init__(self, rendezvous: Path, argv: list[str], node: str | None) -> None:
        self._rendezvous, self._argv, self._node = rendezvous, argv, node
        self._ended: asyncio.Future[tuple[int, str]]

    async def run(self) -> int:
        """Connect, relay until the shell ends, and return its exit code.

        Raises:
            CordeeError: no supervisor answers.
        """
        self._ended = asyncio.get_running_loop().create_future()
        try:
            place = wire.read_rendezvous(self._rendezvous)
            connection = await wire.connect(
                place.address,
                place.port,
                place.token,
                "client",
                f"shell-{os.getpid()}",
                epoch=place.epoch,
                on_message=self._message,
                on_close=self._closed,
            )
        except (TimeoutError, OSError) as error:
            raise CordeeError(f"the run's supervisor does not answer: {error}", next="try again in a moment") from error
        columns, rows = shutil.get_terminal_size()
        term = os.environ.get("TERM")
        connection.send(encode(messages.ClientShell(tuple(self._argv), self._node, term, rows, columns)))
        saved = self._attach(connection)
        try:
            code, text = await self._ended
        finally:
            if saved is not None:
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, saved)
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            connection.close()
        if text:
            click.echo(f"cordee: {text}", err=True)
        return code

    def _attach(self, connection: wire.Connection) -> list[Any] | None:
        loop = asyncio.get_running_loop()
        keyboard = sys.stdin.fileno()

        def typed() -> None:
            data = os.read(keyboard, 65536)
            if data:
                connection.send(encode(messages.ShellInput()), data)
            else:
                loop.remove_reader(keyboard)
                connection.send(encode(messages.ShellInput()), b"\x04")

        def resized() -> None:
            columns, rows = shutil.get_terminal_size()
            connection.send(encode(messages.ShellResize(rows, columns)))

        try:
            loop.add_reader(keyboard, typed)
        except PermissionError:
            connection.send(encode(messages.ShellInput()), b"\x04")
        loop.add_signal_handler(signal.SIGWINCH, resized)
        if not sys.stdin.isatty():
            return None
        saved = termios.tcgetattr(keyboard)
        tty.setraw(keyboard, termios.TCSADRAIN)
        return saved

    def _message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        said = decode(message, TO_CLIENT)
        if isinstance(said, messages.ShellOutput):
            sys.stdout.buffer.write(body)
            sys.stdout.buffer.flush()
        elif not self._ended.done():
            self._ended.set_result((said.code, said.text))

    def _closed(self, connection: wire.Connection, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result((5, "the run's supervisor has gone"))
