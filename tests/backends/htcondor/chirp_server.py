"""A starter's Chirp, as far as a run uses it: files below a folder and attributes of the job, on loopback."""

from __future__ import annotations

import os
import re
import shutil
import socketserver
import threading
from pathlib import Path

_WORD = re.compile(r"(?:\\.|[^ ])+")
_NUMBERS = {FileNotFoundError: -3, FileExistsError: -4, IsADirectoryError: -13, NotADirectoryError: -14}


class ChirpServer(socketserver.ThreadingTCPServer):
    """Serves a folder.

    Args:
        folder: the access point's.
        config: the file that is written for jobs: host, port and cookie.

    Attributes:
        attributes: of the job, as they were set last.
        away: connections are hung up at their next command.
        asked: the commands that came, with their first word.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, config: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.cookie = folder, "sesame"
        self.attributes: dict[str, str] = {}
        self.asked: list[str] = []
        self.away = False
        config.write_text(f"127.0.0.1 {self.server_address[1]} {self.cookie}\n")
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        super().__exit__(*error)


class _Handler(socketserver.StreamRequestHandler):
    server: ChirpServer

    def handle(self) -> None:
        self._files: dict[int, int] = {}
        known = False
        for line in self.rfile:
            words = [re.sub(r"\\(.)", r"\1", word) for word in _WORD.findall(line.decode().rstrip("\n"))]
            if self.server.away:
                return
            self.server.asked.append(words[0])
            try:
                if words[0] == "cookie":
                    known = words[1] == self.server.cookie
                    answer: int | tuple[int, bytes] = 0 if known else -1
                else:
                    answer = getattr(self, f"_{words[0]}")(*words[1:]) if known else -1
            except OSError as error:
                answer = _NUMBERS.get(type(error), -127)
            number, data = answer if isinstance(answer, tuple) else (answer, b"")
            self.wfile.write(f"{number}\n".encode() + data)

    def _at(self, path: str) -> Path:
        return self.server.folder / path

    def _stat(self, path: str) -> tuple[int, bytes]:
        state = os.stat(self._at(path))
        return 0, f"1 2 3 4 5 6 7 {state.st_size} 9 10 11 12 13\n".encode()

    def _open(self, path: str, flags: str, mode: str) -> tuple[int, bytes]:
        assert set(flags) <= set("wc")
        handle = os.open(self._at(path), os.O_WRONLY | os.O_CREAT, int(mode))
        return handle, self._stat(path)[1]

    def _pwrite(self, handle: str, length: str, offset: str) -> int:
        return os.pwrite(int(handle), self.rfile.read(int(length)), int(offset))

    def _close(self, handle: str) -> int:
        os.close(int(handle))
        return 0

    def _getfile(self, path: str) -> tuple[int, bytes]:
        data = self._at(path).read_bytes()
        return len(data), data

    def _getdir(self, path: str) -> tuple[int, bytes]:
        data = "".join(f"{name}\n" for name in os.listdir(self._at(path))).encode()
        return len(data), data

    def _mkdir(self, path: str, mode: str) -> int:
        self._at(path).mkdir(mode=int(mode))
        return 0

    def _unlink(self, path: str) -> int:
        self._at(path).unlink()
        return 0

    def _rmall(self, path: str) -> int:
        shutil.rmtree(self._at(path))
        return 0

    def _rename(self, old: str, new: str) -> int:
        self._at(old).rename(self._at(new))
        return 0

    def _set_job_attr(self, name: str, value: str) -> int:
        self.server.attributes[name] = value
        return 0
