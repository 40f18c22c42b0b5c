"""Serve the built book with a Jupyter kernel behind it: ``make live``.

The pages are those of ``make book``.  As they are served, each gets two lines more, which load
``live.js`` and tell it the token; the files of the book stay as they are.  The server listens on
this machine only, and whoever does not come with the token gets nothing, neither page nor kernel.

Usage: python book/_live/serve.py FOLDER_OF_THE_BUILT_BOOK [PORT]
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import AuthenticatedFileHandler, JupyterHandler
from jupyter_server.serverapp import ServerApp
from tornado import web

from aimlib.chapters import check_kernel

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Nothing of a page may come from elsewhere, whatever a library would like to load.
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "connect-src 'self' ws://127.0.0.1:*; frame-ancestors 'none'"
)


class LocalFile(AuthenticatedFileHandler):
    """A file of the book or of this folder, for those who are logged in."""

    @property
    def content_security_policy(self) -> str:
        return POLICY

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        """Serve what tornado allows below its root; hidden files need no rule of their own."""
        return web.StaticFileHandler.validate_absolute_path(self, root, absolute_path)


class Page(JupyterHandler):
    """A page of the book with the means to run its cells."""

    def initialize(self, folder: Path) -> None:
        self.folder = folder

    @property
    def content_security_policy(self) -> str:
        return POLICY

    @web.authenticated
    def get(self, name: str) -> None:
        path = (self.folder / name).resolve()
        if not (path.is_file() and path.is_relative_to(self.folder)):
            raise web.HTTPError(404)
        settings = {"token": self.identity_provider.token, "page": name.removesuffix(".html")}
        text = json.dumps(settings).replace("<", "\\u003c")
        added = (
            f'<script type="application/json" id="live-settings">{text}</script>'
            '<link rel="stylesheet" href="/live/live.css">'
            '<script src="/live/live.js" defer></script></head>'
        )
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(path.read_text(encoding="utf-8").replace("</head>", added, 1))


class BookServer(ServerApp):
    """A Jupyter server for one book and its notebooks."""

    name = "aimlib-live"

    def load_config_file(self, suppress_errors: bool = True) -> None:
        """Personal settings of Jupyter could open the server to others: use none."""

    def init_webapp(self) -> None:
        super().init_webapp()
        book = Path(self.book).resolve()
        handlers: list[tuple[Any, ...]] = [
            (r"/", web.RedirectHandler, {"url": "/book/index.html", "permanent": False}),
            (r"/book/(.*\.html)", Page, {"folder": book}),
            (r"/book/(.*)", LocalFile, {"path": str(book)}),
            (r"/live/(.*)", LocalFile, {"path": str(HERE)}),
        ]
        self.web_app.add_handlers(".*$", handlers)


def start(book: Path, port: int) -> BookServer:
    """Return a server that is ready to run, and print its address."""
    check_kernel()
    BookServer.book = str(book)
    server = BookServer(
        ip="127.0.0.1",
        port=port,
        root_dir=str(ROOT),
        open_browser=False,
        allow_root=True,
        terminals_enabled=False,
        jpserver_extensions={},
        log_level=logging.ERROR,
    )
    server.identity_provider_class.token.default_value = secrets.token_hex(24)
    server.initialize(argv=[], find_extensions=False)
    token = server.identity_provider.token
    print(f"The book is live at http://127.0.0.1:{server.port}/book/index.html?token={token}")
    print('Open a notebook page and press "Run in this page". Ctrl-C stops.', flush=True)
    return server


if __name__ == "__main__":
    if not (Path(sys.argv[1]) / "index.html").is_file():
        raise SystemExit(f"there is no built book in {sys.argv[1]}: run 'make book'")
    start(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8888).start()
