"""What all adapters share: numbers that a library was given are recorded once, under its name, and nothing is raised.

A name belongs to one source. What a script says by `cordee.log` is kept before what it says to any library, and between
libraries the first one keeps the name; the other's values of that name are not recorded a second time, and the run's
facts say so.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, Mapping, Optional

from cordee.client import rank as _rank
from cordee.wire.channel import ChannelWriter, Shape, bounded_name, shape_of
from cordee.wire.facts import SourceFact

_MOST_SHAPES = 1024
_MOST_NAMES = 2000
_MOST_DEPTH = 4

_owners: dict[str, str] = {}


def adapt(adapter: str, module: ModuleType) -> None:
    """Put an adapter's calls around those of the module that was just imported; a module that it does not know is left alone."""
    try:
        import_module(f"cordee.client.adapters.{adapter}").wrap(module)
    except Exception as error:
        _rank.tell_once(f"Cordée's adapter for {adapter} is left out: {module.__name__} is not as expected: {error}")


class Tee:
    """Records what one library is given.

    Args:
        source: the library's name, under which the metrics are known.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self._own_names = 0
        self._declared: set[tuple[str, str, bool]] = set()

    def __call__(self, step: Any, values: Mapping[str, Any], *, counts: bool = True) -> None:
        """Record the numbers among `values`; never waits long, never raises.

        Args:
            step: what the library calls the step; None: none was given.
            counts: the step is the script's own, and says how far the training is; else the library has counted calls.
        """
        writer = _rank.writer
        if writer is None:
            writer = self._open()
            if writer is None:
                return
        guard = _rank.guard
        if not guard.acquire(False) and not guard.acquire(timeout=_rank.CONTENDED_S):
            writer.drop()
            return
        try:
            if len(writer.names) != self._own_names:
                self._forget(writer)
            writer.write(step, values, self._shapes[tuple(values)])
            if counts and step is not None:
                writer.step_of_adapter(step)
        except Exception:
            self._carefully(writer, step, values, counts)
        finally:
            guard.release()

    def lose(self) -> None:
        """Count a call of which nothing could be recorded."""
        if _rank.writer is not None:
            _rank.writer.drop()

    def _open(self) -> Optional[ChannelWriter]:
        if _rank.opened:
            _rank.tell_if_forked(f"recording what {self._source} is given")
            return None
        return _rank.open_writer()

    def _forget(self, writer: ChannelWriter) -> None:
        """`cordee.log` has recorded new names: what was decided about names may not hold any more."""
        self._own_names = len(writer.names)
        self._shapes.clear()

    def _carefully(self, writer: ChannelWriter, step: Any, values: Any, counts: bool) -> None:
        """Record names that are new, or values of which some are no numbers."""
        try:
            numbers: dict[str, float] = {}
            _collect(writer, values, "", numbers, _MOST_DEPTH)
            mine = {name: number for name, number in numbers.items() if self._is_mine(writer, name, not counts)}
            if not mine:
                return
            names = tuple(mine)
            shape = self._shapes.get(names)
            if shape is None:
                shape = shape_of(names)
                if len(self._shapes) < _MOST_SHAPES:
                    self._shapes[names] = shape
            whole = None if step is None else int(step)
            writer.write(whole, mine, shape)
            if counts and whole is not None:
                writer.step_of_adapter(whole)
        except Exception:
            writer.drop()

    def _is_mine(self, writer: ChannelWriter, name: str, counted: bool) -> bool:
        """Return whether this source records the name, and see to it that the run knows who does."""
        owner = "cordee.log" if name in writer.names else _owners.get(name)
        if owner is None:
            owner = self._source
            if len(_owners) < _MOST_NAMES:
                _owners[name] = owner
        also = "" if owner == self._source else self._source
        known = (also, name, counted) in self._declared or len(self._declared) >= _MOST_NAMES
        if not known and writer.tell(SourceFact(bounded_name(name), owner, also, counted=counted and not also)):
            self._declared.add((also, name, counted))
        return owner == self._source


def _collect(writer: ChannelWriter, values: Mapping[Any, Any], before: str, into: dict[str, float], depth: int) -> None:
    """Put the numbers among `values` into `into`; those of a mapping within get its name, a dot and their own."""
    for name, value in values.items():
        if isinstance(value, (str, bytes, bytearray)) or value is None:
            continue
        if isinstance(value, Mapping):
            if depth:
                _collect(writer, value, f"{before}{name}.", into, depth - 1)
            continue
        try:
            into[f"{before}{name}"] = float(value.detach() if hasattr(value, "detach") else value)
        except OverflowError:
            writer.drop()
        except Exception:
            continue  # an image, a table, an array: not for us


def argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], at: int, name: str) -> Any:
    """Return an argument as it was given by place or by name, None when it was not given."""
    return args[at] if len(args) > at else kwargs.get(name)
