"""Lists and documents that a person or another system writes: their text in any encoding that is clear, or an error that says where."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from pathlib import Path

_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ALLOWED = "UTF-8, or UTF-16 with a byte order mark"


def text_of(data: bytes, file: str, first_line: int = 1) -> str:
    r"""Return the text of a list or a document, without byte order marks; line ends stay as they are.

    Spreadsheets, editors of Windows and PowerShell write UTF-8 with a mark, or UTF-16. Nothing is guessed: what is in
    neither would have wrong letters without a word. Its lines end at `\n` alone, where `str.splitlines` also ends them at
    characters that stand within lines.

    Args:
        data: the file's bytes.
        file: for the error.
        first_line: the number of its first line in the file.

    Raises:
        DocumentError: it is in another encoding, or no text.
    """
    codec = "utf-16" if data[:2] in _WIDE else "utf-8"
    try:
        text = data.decode(codec)
        at = text.find("\0")
        if at < 0:
            # Lists that were joined have marks at the beginnings of lines.
            return text.removeprefix("\ufeff").replace("\n\ufeff", "\n")
        what, given, before = "holds a NUL character, as no text does", "\\0", text[:at]
    except UnicodeDecodeError as error:
        what, given = f"is not {codec.upper()}", repr(data[error.start : error.start + 1])[2:-1]
        before = data[: error.start].decode(codec, "ignore")
    from cordee.core.documents.faults import fault_error  # not needed by those who only look whether a file can be read

    raise fault_error(
        what,
        "not-utf8",
        file=file,
        line=before.count("\n") + first_line,
        given=given,
        allowed=_ALLOWED,
        next="save it as UTF-8 (in spreadsheets: CSV UTF-8)",
    )


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a list with their ends, as `csv` wants them; they are read one by one unless they are UTF-16.

    Raises:
        OSError: it cannot be read.
        DocumentError: as `text_of`.
    """
    with open(path, "rb") as file:
        wide = file.peek(2)[:2] in _WIDE
        for number, piece in enumerate((file.read(),) if wide else file, 1):
            yield from io.StringIO(text_of(piece, str(path), number), newline="")
