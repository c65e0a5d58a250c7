"""What bytes are, by how they begin, against what a server or a list says that they are."""

from __future__ import annotations

from cordee.systems.data.fetch.reach import Refused

HEAD_BYTES = 512
_MAGIC: tuple[tuple[bytes, int, str], ...] = (
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"GIF8", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"BM", 0, "image/bmp"),
    (b"II*\0", 0, "image/tiff"),
    (b"MM\0*", 0, "image/tiff"),
    (b"%PDF-", 0, "application/pdf"),
    (b"PK\x03\x04", 0, "application/zip"),
    (b"\x1f\x8b", 0, "application/gzip"),
    (b"\x28\xb5\x2f\xfd", 0, "application/zstd"),
    (b"\xfd7zXZ\0", 0, "application/x-xz"),
    (b"ustar", 257, "application/x-tar"),
    (b"PAR1", 0, "application/vnd.apache.parquet"),
    (b"ftyp", 4, "video/mp4"),
    (b"\x1aE\xdf\xa3", 0, "video/webm"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"ID3", 0, "audio/mpeg"),
    (b"WAVE", 8, "audio/wav"),
)
_PROGRAMS = ((b"\x7fELF", "ELF"), (b"MZ", "Windows"), (b"#!", "script"), (b"\xcf\xfa\xed\xfe", "Mach-O"))
# Names of the same thing.
_ALIASES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "application/x-gzip": "application/gzip",
    "application/x-zip-compressed": "application/zip",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/x-flac": "audio/flac",
    "video/x-matroska": "video/webm",
    "audio/webm": "video/webm",
    "audio/mp4": "video/mp4",
    "video/quicktime": "video/mp4",
    "video/ogg": "audio/ogg",
    "application/ogg": "audio/ogg",
}
_KNOWN = {kind for _, _, kind in _MAGIC}


def look_at(head: bytes, said: str, wanted: str) -> None:
    """Look whether the first bytes of a file can be what is wanted, and what the server says that they are.

    Args:
        head: the first bytes.
        said: the server's Content-Type.
        wanted: a type, such as `image/jpeg`, or `image/*`; empty: anything but programs.

    Raises:
        Refused: they cannot.
    """
    said = plain(said)
    kind = kind_of(head)
    if wanted and not fits(kind or said, wanted):
        raise Refused("type", f"{wanted} is wanted, and this is {kind or said or 'nothing known'}")
    if said in _KNOWN and kind != said:
        raise Refused("type", f"the server says {said}, and this is {kind or 'something else'}")
    program = next((name for magic, name in _PROGRAMS if head.startswith(magic)), None)
    if program is not None and not wanted:
        raise Refused("type", f"it is a program ({program}); name its type if that is meant")


def kind_of(head: bytes) -> str:
    """Return the type that bytes begin like; empty: not known."""
    kind = next((kind for magic, at, kind in _MAGIC if head[at : at + len(magic)] == magic), "")
    if kind in ("image/webp", "audio/wav") and not head.startswith(b"RIFF"):
        kind = ""
    if kind == "" and len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return "audio/mpeg"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    if not kind and (text.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script"))):
        return "text/html"
    return kind


def fits(kind: str, wanted: str) -> bool:
    """Return whether a type is the one that is wanted, or of its family (`image/*`)."""
    wanted = plain(wanted)
    return kind == wanted or (wanted.endswith("/*") and kind.startswith(wanted[:-1]))


def plain(said: str) -> str:
    """Return a type without its parameters, by its usual name."""
    kind = said.partition(";")[0].strip().lower()
    return _ALIASES.get(kind, kind)
