"""Image folders: the first folder of a file is its class."""

from __future__ import annotations

from typing import Dict, List, Tuple

from cordee.core.errors import UsageError
from cordee.systems.data.node.shards.sample_names import Folders

_SPLITS = {"train", "training", "val", "valid", "validation", "eval", "test", "testing", "dev"}
_MEDIA = set(
    b"jpg jpeg png webp bmp gif tif tiff ppm pgm jxl avif wav flac mp3 ogg opus m4a mp4 avi mkv webm mov npy npz pt".split()
)
_MOSTLY = 0.9


def folder_classes(folders: Folders, force: bool) -> Tuple[List[str], Dict[bytes, int], List[str]]:
    """Return the classes, their numbers by first folder, and notes for people.

    Numbers follow the sorted names of the folders, as torchvision's ImageFolder counts them; a hidden folder is no class.

    Args:
        force: the folders are classes whatever they look like; else only where there are at least two and nearly all
            files are pictures, sound, films or arrays below one of them.

    Raises:
        UsageError: `force`, and the folders are splits such as train and val.
    """
    media: Dict[bytes, int] = {}
    for folder, files in folders:
        first = folder[: folder.find(b"/")] if folder else b""
        count = len(files) if force else sum([base[base.rfind(b".") + 1 :].lower() in _MEDIA for base, _ in files])
        if first and count and first[:1] != b".":
            media[first] = media.get(first, 0) + count
    found = sorted(media)
    names = [folder.decode("utf-8", "surrogateescape") for folder in found]
    files_in_all = sum(len(files) for folder, files in folders if folder[:1] != b".")
    if not force and (len(found) < 2 or sum(media.values()) < _MOSTLY * files_in_all):
        return [], {}, []
    if not names or not {name.lower() for name in names} <= _SPLITS:
        return names, {folder: number for number, folder in enumerate(found)}, []
    if force:
        raise UsageError(
            "these folders look like splits, and would be the only classes",
            given=f"--labels folders: {', '.join(names)}",
            allowed="folders that are classes",
            next="pack each split by itself: the folders in it are its classes",
        )
    text = f"{', '.join(names)} look like splits, not classes: no labels; pack each folder by itself to get them"
    return [], {}, [text]
