"""One data set put on a tier of this node: whole or not there, claimed, and shared with all who use it here."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, NamedTuple, Optional, Sequence, Union

from cordee.core.errors import DataError
from cordee.machine.node_tiers import Tier
from cordee.systems.data.node.stage.arrived import refuse_other_bytes
from cordee.systems.data.node.stage.blocks import BlockFolder, BlockRow
from cordee.systems.data.node.stage.claims import StagedSets
from cordee.systems.data.node.stage.source import StagingSource, unpack
from cordee.wire.stores.local import SourceChanged

_KEPT = ".blocks"
_PACKED = ".packed"
_OF_A_SHELL = frozenset(("&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"))
Fill = Callable[[BlockFolder], None]


class StagedCopy(NamedTuple):
    """A data set on this node.

    Attributes:
        path: of the data.
        new: whether it was brought here now.
        removed: how many sets that nobody uses went for it.
        blocks: what peers can have of it; None: what lies here is not what the source has.
    """

    path: Path
    new: bool
    removed: int = 0
    blocks: Optional[BlockFolder] = None


def found(source: StagingSource, key: str, tier: Tier, claim: int) -> Optional[StagedCopy]:
    """Return what lies on a tier already, claimed; None: it is not there."""
    sets = StagedSets(tier.folder)
    if not (sets.folder(key) / source.name).exists():
        return None
    with sets.locked(key):
        path = sets.folder(key) / source.name
        if not path.exists():
            return None
        sets.claim(key, claim)
        return StagedCopy(path, False)


def put(
    source: StagingSource,
    key: str,
    tier: Tier,
    claim: int,
    fill: Optional[Fill],
    finish: Callable[[Path], None] = lambda target: None,
    apart: bool = False,
    lists_again: bool = True,
    waits: Callable[[], None] = lambda: None,
) -> StagedCopy:
    """Put a data set on a tier and claim it; waits for another process that does the same.

    Args:
        key: of its content.
        claim: pid of the process that uses it.
        fill: brings the blocks; None: an archive is unpacked from where it lies.
        finish: what is done to it before anyone sees it.
        apart: whether that is done to a copy, so that peers can have what the source has until `served_no_more`.
        lists_again: whether the source is looked at again at the end, as what is read from it now does not show all changes.
        waits: called before it waits for a process that does the same.

    Raises:
        DataError: it cannot be read, changed meanwhile, or the tier is full. Nothing is left of it then.
    """
    sets = StagedSets(tier.folder)
    with sets.locked(key, waits):
        path, removed, blocks = sets.folder(key) / source.name, [], None
        new = not path.exists()  # else somebody has staged it while this one waited
        if new:
            removed = sets.make_room(source.staged_bytes(fill is not None), key)
            partial = sets.partial(key)
            try:
                blocks = _put_together(source, partial, fill, finish, apart)
                if lists_again:
                    refuse_changed(source)
                os.rename(partial, sets.folder(key))
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                text = f"{tier.folder} is full" if full else f"{tier.folder} cannot be written: {error.strerror}"
                raise DataError(text, given=source.address, next="make room there, or stage it elsewhere") from error
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            if blocks is not None:
                blocks.moved(_objects_below(source, sets.folder(key), apart))
        sets.claim(key, claim)
    return StagedCopy(path, new, len(removed), blocks)


def served_no_more(source: StagingSource, copy: StagedCopy) -> None:
    """Remove what was kept for peers alone: the archive that was unpacked, or what has been prepared."""
    if source.archive or copy.new:
        shutil.rmtree(copy.path.parent / _PACKED, ignore_errors=True)


def refuse_changed(source: StagingSource) -> None:
    """Raise where the source is not what it was when it was listed.

    Raises:
        SourceChanged: so it is.
    """
    if source.changed():
        raise SourceChanged(
            "it changed while it was staged", given=source.address, next="stage it again when nobody writes it"
        )


def prepare(command: Sequence[str], target: Path) -> None:
    """Run a command once in the folder that holds a data set, as its user would: not with Cordée's own Python path.

    Raises:
        DataError: it failed.
    """
    if not command:
        return
    for_a_shell = next((word for word in command if word in _OF_A_SHELL), None)
    if for_a_shell is not None:
        raise DataError(
            f"no shell runs the command that prepares it, for which {for_a_shell} is a word like others",
            given=shlex.join(command),
            next="write sh -c '...', or a script",
        )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    folder = target if target.is_dir() else target.parent
    try:
        # What it prints must not be taken for an answer of the process that stages.
        code: Union[int, str] = subprocess.run(command, cwd=folder, env=env, stdout=sys.stderr, check=False).returncode
    except OSError as error:
        code = error.strerror or str(error)
    if code:
        how = f"ended with code {code}" if isinstance(code, int) else f"cannot be run: {code}"
        raise DataError(f"the command that prepares it {how}", given=shlex.join(command), next="correct the command")


def _objects_below(source: StagingSource, folder: Path, apart: bool) -> Path:
    if source.archive or apart:
        return folder / _PACKED
    return folder / source.name if source.is_folder else folder


def _put_together(
    source: StagingSource, partial: Path, fill: Optional[Fill], finish: Callable[[Path], None], apart: bool
) -> Optional[BlockFolder]:
    target, blocks = partial / source.name, None
    if fill is None:
        packed = Path(source.store.path(source.objects[0].name))
    else:
        below = _objects_below(source, partial, apart)
        below.mkdir(parents=True, exist_ok=True)
        blocks = BlockFolder(below, BlockRow(source.objects), partial / _KEPT)
        with contextlib.closing(blocks):
            fill(blocks)
            refuse_other_bytes(source, blocks)
        for one in source.objects:
            if not one.bytes:
                (below / one.name).parent.mkdir(parents=True, exist_ok=True)
                (below / one.name).touch()
        packed = below / source.objects[0].name if source.archive else below
        (partial / _KEPT).unlink()
    if source.archive:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        unpack(str(packed), str(target))
    elif apart:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(below, target if source.is_folder else partial, dirs_exist_ok=True)
    finish(target)
    return blocks
