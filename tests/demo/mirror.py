"""A mirror of the data set: a web server on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pullback.demo import fashion_mnist


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, *mirrors: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Have so many mirrors, each with these files by name, in place of the real ones; gives the list of what is asked
    for, ``number/name``."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path[1:])
            number, _, name = asked[-1].partition("/")
            content = mirrors[int(number)].get(name)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    addresses = tuple(f"http://127.0.0.1:{server.server_port}/{k}/" for k in range(len(mirrors)))
    monkeypatch.setattr(fashion_mnist, "MIRRORS", addresses)
    monkeypatch.setenv("PULLBACK_OFFLINE", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
