"""Where an agent and a rank that srun started meet: files in the node's memory, in a folder that both know.

For each rank the agent makes three FIFOs (what the rank prints, and what its launcher says of it), reads them, and then
writes the order: command, environment and working folder. The order is there only when everything else is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple, Optional, Union

from cordee.core.errors import WireError
from cordee.machine.private import open_private_folder, read_own_file
from cordee.wire.codec import FORMS, fields_of, read_fields

WORD, OUT, ERR = "word", "out", "err"
FIFOS = (WORD, OUT, ERR)
_MOST_ORDER_BYTES = 64 << 20


class RankOrder(NamedTuple):
    """What a rank is to run; `whole`: of its launcher's environment nothing is added but what the step is."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    whole: bool


class Runs(NamedTuple):
    """What a launcher says at first: the rank's pid, and its own."""

    pid: int
    launcher: int


class LastWord(NamedTuple):
    """What a launcher says at last: how the rank has ended, or why it did not start."""

    code: Optional[int]
    signal: Optional[str]
    text: str


Word = Union[Runs, LastWord]
_ORDER, _RUNS, _LAST_WORD = (fields_of(cls, FORMS) for cls in (RankOrder, Runs, LastWord))


def line_of(word: Word) -> bytes:
    """Return a launcher's word as it goes through the FIFO."""
    return json.dumps(word._asdict()).encode() + b"\n"


def word_of(line: bytes) -> Word:
    """Return the word that a launcher has said.

    Raises:
        WireError: it is none.
    """
    document = _object(line, "a launcher's word")
    if "pid" in document:
        return Runs(*read_fields(_RUNS, document, "a launcher's first word"))
    return LastWord(*read_fields(_LAST_WORD, document, "a launcher's last word"))


def _object(text: bytes, what: str) -> dict[str, object]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise WireError(f"{what} is no JSON object", given=repr(text[:100]))
    return document


class Handover:
    """The files of one rank.

    Args:
        folder: the agent's folder on this node.
        attempt, rank: whose files.
    """

    def __init__(self, folder: Path, attempt: int, rank: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self._stem = f"{attempt}-{rank}"

    def fifo(self, name: str) -> str:
        """Return the path of one of the FIFOS."""
        return str(self._folder / f"{self._stem}.{name}")

    def open_for_reading(self) -> dict[str, int]:
        """Make the FIFOs anew and return their reading ends, which never block.

        Raises:
            OSError: the folder cannot be written.
        """
        self.remove()
        opened: dict[str, int] = {}
        try:
            for name in FIFOS:
                os.mkfifo(self.fifo(name), 0o600)
                opened[name] = os.open(self.fifo(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            for descriptor in opened.values():
                os.close(descriptor)
            raise
        return opened

    def write_order(self, order: RankOrder) -> None:
        """Say what the rank is to run.

        Raises:
            OSError: the folder cannot be written.
        """
        path = self._order()
        partial = path.with_suffix(".order-partial")
        partial.write_text(json.dumps(order._asdict()))
        partial.chmod(0o600)
        os.replace(partial, path)

    def read_order(self) -> Optional[RankOrder]:
        """Return what the rank is to run, or None as long as the agent has not written it.

        Raises:
            WireError: it is no order.
            OSError: others may write into the folder, or the order is not a file of this user.
        """
        try:
            within = open_private_folder(self._folder)
            try:
                document = _object(read_own_file(self._order().name, within, _MOST_ORDER_BYTES), "a rank's order")
                return RankOrder(*read_fields(_ORDER, document, "a rank's order"))
            finally:
                os.close(within)
        except FileNotFoundError:
            return None

    def others(self) -> list[int]:
        """Return the ranks that the attempt has orders for on this node."""
        orders = self._folder.glob(f"{self._attempt}-*.order")
        return sorted(int(path.stem.partition("-")[2]) for path in orders)

    def call_off(self) -> None:
        """Say that nothing is to start any more for this attempt on this node."""
        self._called_off().touch()

    def is_called_off(self) -> bool:
        """Return whether the attempt is over for this node."""
        return self._called_off().exists()

    def remove(self) -> None:
        """Delete the rank's files."""
        for path in (self._order(), *(Path(self.fifo(name)) for name in FIFOS)):
            try:
                path.unlink()
            except FileNotFoundError:
                continue

    def _order(self) -> Path:
        return self._folder / f"{self._stem}.order"

    def _called_off(self) -> Path:
        return self._folder / f"{self._attempt}.over"
