"""A local file server with broken connections, and a data set of one file."""

from __future__ import annotations

import contextlib
import http.server
import threading
from functools import partial

import data_samples as samples

from experiments.data.fetch import DataOrigin, Remote, install_unchanged
from experiments.data.source import Folder


class Server(http.server.ThreadingHTTPServer):
    """Serve ``files`` by path. ``cuts``: bytes after which each of the next connections ends."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.requests: list[str] = []

    def url(self, name):
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.requests.append(self.path)
        content = self.server.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.server.cuts.pop(0) if self.server.cuts else len(content)])

    def log_message(self, *_):
        """Log nothing; requests are counted instead."""


@contextlib.contextmanager
def serving():
    """Run a server."""
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


CONTENT = bytes(range(256)) * 4000


def verify_one(digest, root):
    """Read the data set of the tests: one file, ``one.bin``."""
    folder = Folder(root, "tiny", {"one.bin": digest})
    folder.read(folder.choose([[(folder.path / "one.bin",)]])[0])
    return folder.info()


def origin_of(*urls, content=CONTENT):
    digest = f"sha256:{samples.sha256(content)}"
    return DataOrigin((Remote("one.bin", digest, urls),), partial(verify_one, digest), install_unchanged)


def remotes_of(server):
    """All files of a server, with their digests."""
    return tuple(
        Remote(name, f"sha256:{samples.sha256(content)}", (server.url(name),)) for name, content in server.files.items()
    )


def silent(name, have, total):
    """Show no progress."""
