"""Fetching from a local server: other addresses, digests, several processes, no network."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator

import data_samples as samples
import filelock
import pytest
from data_server import CONTENT, Server, origin_of, serving, silent
from waiting import leave_partial

from experiments.data import DataError
from experiments.data import fetch as fetching
from experiments.data.fetch import WORKING, fetch


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


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
    assert server.requests == ["/one.bin"]


def test_what_a_call_left_that_was_killed_at_its_end_is_removed(server, tmp_path):
    server.files["one.bin"] = CONTENT
    origin = origin_of(server.url("one.bin"))
    fetch("tiny", tmp_path, origin, silent)
    before = sorted(tmp_path.rglob("*"))
    samples.put(tmp_path / "tiny" / WORKING, {"one.bin": CONTENT})
    leave_partial(tmp_path / "tiny" / "one.bin")
    with filelock.FileLock(tmp_path / "tiny" / f"{WORKING}.lock"):  # somebody is at work
        assert fetch("tiny", tmp_path, origin, silent)[1] is False
        assert len(list(tmp_path.rglob("*"))) == len(before) + 3
    assert fetch("tiny", tmp_path, origin, silent)[1] is False
    assert sorted(tmp_path.rglob("*")) == before


def test_a_connection_that_ends_early_is_given_up(server, tmp_path):
    server.files["one.bin"] = CONTENT
    server.cuts = [1000]
    with pytest.raises(DataError, match=rf"ended after 1000 of {len(CONTENT)} bytes"):
        fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    assert not list((tmp_path / "tiny" / WORKING).iterdir())


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
    assert server.requests == ["/absent", "/damaged", "/good"]


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
    # The advice of the message works: a file placed by hand is installed without a connection.
    samples.put(tmp_path / "tiny", {"one.bin": CONTENT})
    assert fetch("tiny", tmp_path, origin_of(url), silent)[1] is False


def test_the_digest_of_a_large_file_is_computed_once_until_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "LARGE", 4)
    large, small, notes = tmp_path / "large", tmp_path / "small", tmp_path / "notes"
    large.write_bytes(b"weights")
    small.write_bytes(b"abc")
    first = [fetching.known_digest(path, notes) for path in (large, small)]
    assert first == [hashlib.sha256(path.read_bytes()).hexdigest() for path in (large, small)]
    (note,) = (notes / "digests").iterdir()
    monkeypatch.setattr(fetching, "digest", lambda path: "0" * 64)
    assert fetching.known_digest(large, notes) == first[0]
    note.write_text("damaged")
    assert fetching.known_digest(large, notes).endswith("000")
    note.unlink()
    large.write_bytes(b"WEIGHTS")
    assert fetching.known_digest(large, notes).endswith("000")
    assert fetching.known_digest(small, notes).endswith("000")
