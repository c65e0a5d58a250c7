"""torch.load and joblib.load: a line where a rank loads a file that the gate has not looked at."""

from __future__ import annotations

import functools
import json
import os
from types import ModuleType
from typing import Any

from cordee.client import rank as _rank
from cordee.client.adapters.tee import argument

SEEN_FILE = "scan.json"  # in the run's folder: what the gate has looked at
_MOST_TOLD = 20
_told: set[str] = set()


def wrap(module: ModuleType) -> None:
    """Put a look at the path before the module's `load`, the file is not touched, and loading stays as it is."""
    try:
        with open(os.path.join(os.environ["CORDEE_RUN_DIR"], SEEN_FILE), encoding="utf-8") as file:
            seen = json.load(file)
    except (OSError, KeyError):
        return
    load, places, at = module.load, tuple(seen["places"]), float(seen["at"])  # type: ignore[attr-defined]
    own = tuple(os.environ[name] for name in ("CORDEE_RUN_DIR", "CORDEE_CHECKPOINT_DIR") if os.environ.get(name))

    @functools.wraps(load)
    def told_load(*args: Any, **kwargs: Any) -> Any:
        try:
            _tell(argument(args, kwargs, 0, "f") or kwargs.get("filename"), kwargs, places, own, at)
        except Exception:  # whatever it was given: the library says what is wrong with it
            pass
        return load(*args, **kwargs)

    module.load = told_load  # type: ignore[attr-defined]


def _tell(source: Any, kwargs: dict[str, Any], places: tuple[str, ...], own: tuple[str, ...], at: float) -> None:
    given = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    if not isinstance(given, (str, os.PathLike)):
        return
    path = os.path.realpath(os.fspath(given))
    if path in _told or len(_told) >= _MOST_TOLD or path.startswith("/proc/self/fd/") or _is_below(path, own):
        return
    changed = os.stat(path).st_ctime
    if _is_below(path, places) and changed <= at:
        return
    _told.add(path)
    runs = ", and weights_only=False runs whatever it names" if kwargs.get("weights_only") is False else ""
    _rank.tell_once(
        f"{path} is loaded, and nobody has looked at it{runs}: `cordee.load(path)` looks first; what the job's command or [data] names is looked at before it starts"
    )


def _is_below(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(os.path.join(os.path.realpath(place), "")) for place in places)
