"""A page on loopback, and a browser without a window that shows it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.interop.browser import TIMEOUT, chromium

__all__ = ["TIMEOUT", "Site", "shown"]


class Site:
    """A web server with one page, which hears what the page has to tell: ``fetch('/tell', ...)``."""

    def __init__(self, page: str, library: Path) -> None:
        """``library``: a script that the page may load, by the name of the file."""
        self.told: queue.Queue[str] = queue.Queue()
        answers = {
            "/": ("text/html", page.encode()),
            f"/{library.name}": ("text/javascript", library.read_bytes()),
        }
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, body = answers.get(self.path, ("", b""))
                self._answer(200 if kind else 404, kind or "text/plain", body)

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                site.told.put(self.rfile.read(length).decode())
                self._answer(204, "text/plain", b"")

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def shown(site: Site, folder: Path) -> Iterator[None]:
    """Show the page in Chromium, whose files are in a folder of the test."""
    with chromium(folder, site.url):
        yield
