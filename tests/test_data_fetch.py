"""Fetching, against a server on this machine: resuming, fall-backs, digests, many processes, no network."""

from __future__ import annotations

import hashlib
import http.server
import multiprocessing
import re
import runpy
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import data_samples as samples
import filelock
import pytest

from ngn.data import DataError, DataInfo, MissingData, cifar10, mnist, sets
from ngn.data.fetch import WORKING, Origin, Remote, fetch, move
from ngn.data.source import Folder

SCRIPT = Path(__file__).parent.parent / "scripts" / "fetch_data.py"


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files`` by path with ranges; ``cuts`` are numbers of bytes after which the next connections end."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.ranges = True
        self.requests: list[tuple[str, str | None]] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.requests.append((self.path, asked))
        content = self.server.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.ranges else 0
        if asked and self.server.ranges and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if asked and self.server.ranges else 200)
        if asked and self.server.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = start + self.server.cuts.pop(0) if self.server.cuts else len(content)
        self.wfile.write(content[start:stop])

    def log_message(self, *_: object) -> None:
        """Nothing: the requests are counted instead."""


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


CONTENT = bytes(range(256)) * 4000


def verify_one(digest: str, root: Path) -> DataInfo:
    """The set of the tests: one file, ``one.bin``."""
    folder = Folder(root, "tiny", {"one.bin": digest})
    folder.read(folder.choose([[(folder.path / "one.bin",)]])[0])
    return folder.info()


def origin_of(*urls: str, content: bytes = CONTENT) -> Origin:
    digest = f"sha256:{samples.sha256(content)}"
    return Origin((Remote("one.bin", digest, urls),), partial(verify_one, digest), move)


def silent(name: str, have: int, total: int | None) -> None:
    """No progress is shown."""


def test_a_file_is_fetched_once_and_then_left_alone(server, tmp_path):
    server.files["one.bin"] = CONTENT
    steps: list[tuple[str, int, int | None]] = []
    info, fetched = fetch("tiny", tmp_path, origin_of(server.url("one.bin")), lambda *step: steps.append(step))
    assert fetched
    assert info.provenance == "official files, digests checked"
    assert (tmp_path / "tiny" / "one.bin").read_bytes() == CONTENT
    assert steps[-1] == ("one.bin", len(CONTENT), len(CONTENT))
    assert not (tmp_path / "tiny" / WORKING).exists()
    again, fetched = fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    assert (again, fetched) == (info, False)
    assert server.requests == [("/one.bin", None)]


def test_a_cut_connection_is_resumed_where_it_ended(server, tmp_path):
    server.files["one.bin"] = CONTENT
    server.cuts = [300_000, 200_000]
    fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    assert [asked for _, asked in server.requests] == [None, "bytes=300000-", "bytes=500000-"]
    assert (tmp_path / "tiny" / "one.bin").read_bytes() == CONTENT


def test_a_later_call_resumes_what_an_earlier_one_left(server, tmp_path):
    server.files["one.bin"] = CONTENT
    samples.put(tmp_path / "tiny" / WORKING, {"one.bin.part": CONTENT[:123_456]})
    fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    assert server.requests == [("/one.bin", "bytes=123456-")]
    assert (tmp_path / "tiny" / "one.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("left", [b"another file", CONTENT, CONTENT + b"and more"])
def test_a_part_that_is_foreign_whole_or_too_long_still_ends_in_the_right_file(server, tmp_path, left):
    server.files["one.bin"] = CONTENT
    samples.put(tmp_path / "tiny" / WORKING, {"one.bin.part": left})
    fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    assert (tmp_path / "tiny" / "one.bin").read_bytes() == CONTENT
    assert len(server.requests) == (1 if left == CONTENT else 2)


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.files["one.bin"] = CONTENT
    server.ranges = False
    samples.put(tmp_path / "tiny" / WORKING, {"one.bin.part": CONTENT[:1000]})
    fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    assert (tmp_path / "tiny" / "one.bin").read_bytes() == CONTENT


def test_a_connection_that_brings_nothing_is_given_up(server, tmp_path):
    server.files["one.bin"] = CONTENT
    server.cuts = [1000, 0]
    with pytest.raises(DataError, match=rf"ended after 1000 of {len(CONTENT)} bytes"):
        fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    assert len(server.requests) == 2
    assert (tmp_path / "tiny" / WORKING / "one.bin.part").read_bytes() == CONTENT[:1000]


def test_wrong_content_is_refused_and_not_kept(server, tmp_path):
    server.files["one.bin"] = CONTENT[:-1] + b"?"
    with pytest.raises(DataError) as caught:
        fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    message = str(caught.value)
    assert "wrong content" in message
    assert samples.sha256(CONTENT) in message
    assert samples.sha256(server.files["one.bin"]) in message
    assert [p.name for p in (tmp_path / "tiny").rglob("*") if p.is_file()] == [f"{WORKING}.lock"]


def test_the_next_address_is_tried(server, tmp_path):
    server.files |= {"damaged": CONTENT[:-1] + b"?", "good": CONTENT}
    fetch("tiny", tmp_path, origin_of(*map(server.url, ("absent", "damaged", "good"))), silent)
    assert [path for path, _ in server.requests] == ["/absent", "/damaged", "/good"]


def test_no_network_is_explained_with_the_alternative(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/one.bin"
        with pytest.raises(DataError) as caught:
            fetch("tiny", tmp_path, origin_of(url), silent)
    message = str(caught.value)
    assert f"{url}: [Errno" in message
    assert "refused" in message
    assert f"put one.bin into {tmp_path / 'tiny'}" in message
    # The advice works: the file brought by hand is taken without a connection.
    samples.put(tmp_path / "tiny", {"one.bin": CONTENT})
    assert fetch("tiny", tmp_path, origin_of(url), silent)[1] is False


def test_a_damaged_file_is_reported_not_replaced(server, tmp_path):
    server.files["one.bin"] = CONTENT
    samples.put(tmp_path / "tiny", {"one.bin": b"mine"})
    with pytest.raises(DataError, match=r"one\.bin: not the expected file"):
        fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    assert (tmp_path / "tiny" / "one.bin").read_bytes() == b"mine"
    assert server.requests == []


def test_a_place_that_cannot_be_written_is_explained(server, tmp_path):
    (tmp_path / "tiny").write_text("a file where a folder should be")
    with pytest.raises(DataError, match=r"cannot be written .*--data-root"):
        fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)


def _fetch_in_process(root: str, url: str, barrier, answers) -> None:
    barrier.wait()
    info, fetched = fetch("tiny", Path(root), origin_of(url), silent)
    answers.put((fetched, info.sha256))


def test_eight_processes_at_once_download_once(server, tmp_path):
    server.files["one.bin"] = CONTENT
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(8), context.Queue()
    processes = [
        context.Process(target=_fetch_in_process, args=(str(tmp_path), server.url("one.bin"), barrier, answers))
        for _ in range(8)
    ]
    for process in processes:
        process.start()
    results = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert sorted(fetched for fetched, _ in results) == [False] * 7 + [True]
    assert len({digest for _, digest in results}) == 1
    assert server.requests == [("/one.bin", None)]


def test_who_waits_for_the_lock_uses_what_the_other_fetched(server, tmp_path):
    (tmp_path / "tiny").mkdir()
    seen_missing = threading.Event()

    def verify(root: Path) -> DataInfo:
        try:
            return verify_one(f"sha256:{samples.sha256(CONTENT)}", root)
        except MissingData:
            seen_missing.set()
            raise

    remotes = origin_of(server.url("one.bin")).remotes
    answers: list[bool] = []
    with filelock.FileLock(tmp_path / "tiny" / f"{WORKING}.lock"):
        waiting = threading.Thread(
            target=lambda: answers.append(fetch("tiny", tmp_path, Origin(remotes, verify, move), silent)[1])
        )
        waiting.start()
        assert seen_missing.wait(timeout=60)
        samples.put(tmp_path / "tiny", {"one.bin": CONTENT})
    waiting.join()
    assert answers == [False]
    assert server.requests == []


def test_mnist_is_unpacked_from_the_official_gzip_files(server, tmp_path):
    files, _ = samples.mnist()
    server.files = samples.gzipped(files)
    remotes = tuple(
        Remote(name, f"md5:{hashlib.md5(content).hexdigest()}", (server.url(name),))
        for name, content in server.files.items()
    )

    def verify(root: Path) -> DataInfo:
        return mnist.read(Folder(root, "mnist", samples.official(files)), *samples.MNIST_COUNTS).info

    fetch("mnist", tmp_path, Origin(remotes, verify, sets.install_mnist), silent)
    assert {p.name for p in (tmp_path / "mnist").iterdir()} == set(files) | {f"{WORKING}.lock"}
    assert fetch("mnist", tmp_path, Origin(remotes, verify, sets.install_mnist), silent)[1] is False


def cifar_origin(server: Server) -> Origin:
    packed = samples.tar_gz("cifar-10-batches-bin", samples.cifar()[0])
    server.files = {cifar10.BINARY_ARCHIVE: packed}

    def verify(root: Path) -> DataInfo:
        return cifar10.read(Folder(root, "cifar10", {}), samples.CIFAR_BATCH).info

    remote = Remote(
        cifar10.BINARY_ARCHIVE, f"md5:{hashlib.md5(packed).hexdigest()}", (server.url(cifar10.BINARY_ARCHIVE),)
    )
    return Origin((remote,), verify, sets.install_cifar10)


def test_cifar10_is_unpacked_with_a_manifest_that_names_the_archive(server, tmp_path):
    origin = cifar_origin(server)
    info, fetched = fetch("cifar10", tmp_path, origin, silent)
    assert fetched
    assert (
        info.provenance == "official files, unpacked from cifar-10-binary.tar.gz (md5:c32a1d4ab5d03f1284b67883e8d87530)"
    )
    binary = samples.cifar()[0]
    for name, content in binary.items():
        assert (tmp_path / "cifar10" / "cifar-10-batches-bin" / name).read_bytes() == content
    assert fetch("cifar10", tmp_path, origin, silent) == (info, False)
    # Stopped between the manifest and the files: the next call completes it.
    for name in binary:
        (tmp_path / "cifar10" / "cifar-10-batches-bin" / name).unlink()
    (tmp_path / "cifar10" / "cifar-10-batches-bin").rmdir()
    assert fetch("cifar10", tmp_path, origin, silent) == (info, True)


def test_cifar10_does_not_replace_what_is_in_the_way(server, tmp_path):
    origin = cifar_origin(server)
    samples.put(tmp_path / "cifar10", {"manifest.json": b'{"provenance": "mine", "files": {}}'})
    with pytest.raises(DataError, match=r"manifest\.json: is in the way"):
        fetch("cifar10", tmp_path, origin, silent)
    (tmp_path / "cifar10" / "manifest.json").unlink()
    samples.put(tmp_path / "cifar10" / "cifar-10-batches-bin", {"data_batch_1.bin": b"mine"})
    with pytest.raises(DataError, match="cifar-10-batches-bin: is in the way"):
        fetch("cifar10", tmp_path, origin, silent)
    assert (tmp_path / "cifar10" / "cifar-10-batches-bin" / "data_batch_1.bin").read_bytes() == b"mine"


def test_every_data_set_has_secure_addresses_and_digests():
    assert set(sets.ORIGINS) == set(sets.NAMES)
    for origin in sets.ORIGINS.values():
        for remote in origin.remotes:
            assert remote.urls
            assert all(url.startswith("https://") and url.endswith(f"/{remote.file}") for url in remote.urls)
            assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", remote.digest)


@pytest.fixture
def main():
    return runpy.run_path(str(SCRIPT), run_name="fetch_data")["main"]


def test_the_script_fetches_reports_and_fails_with_a_status(main, server, tmp_path, capsys, monkeypatch):
    server.files["one.bin"] = CONTENT
    monkeypatch.setattr(sets, "NAMES", ("tiny", "gone"))
    monkeypatch.setattr(
        sets, "ORIGINS", {"tiny": origin_of(server.url("one.bin")), "gone": origin_of(server.url("nowhere"))}
    )
    assert main(["tiny", "--data-root", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"tiny: fetched in {tmp_path} (official files, digests checked)\n"
    assert "one.bin: 100 % of 1.0 MB" in shown.err
    monkeypatch.setenv("NGN_DATA", str(tmp_path))
    # One that fails does not keep the others from being fetched.
    (tmp_path / "tiny" / "one.bin").unlink()
    monkeypatch.setattr(sets, "NAMES", ("gone", "tiny"))
    (tmp_path / "other").mkdir()
    assert main(["--data-root", str(tmp_path / "other")]) == 1
    shown = capsys.readouterr()
    assert "HTTP 404" in shown.err
    assert "tiny: fetched" in shown.out


def test_the_script_adopts_and_refuses(main, tmp_path, capsys):
    assert main(["--adopt", "mnist", "--data-root", str(tmp_path), "--provenance", "mine"]) == 1
    assert "train-images-idx3-ubyte is not in" in capsys.readouterr().err
    files, _ = samples.mnist((60_000, 10_000))
    samples.put(tmp_path / "mnist", files)
    assert main(["--adopt", "mnist", "--data-root", str(tmp_path), "--provenance", "mine"]) == 0
    capsys.readouterr()
    assert main(["mnist", "--data-root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"mnist: present in {tmp_path} (mine)\n"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["mnits"], "no data set 'mnits'; there are: mnist, cifar10, cora"),
        (["--adopt", "mnist"], "belong together"),
        (["--provenance", "x"], "belong together"),
        (["cora", "--adopt", "mnist", "--provenance", "x"], "leave the other names out"),
    ],
)
def test_a_wrong_command_line_ends_with_status_2(main, capsys, arguments, fault):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert fault in capsys.readouterr().err
