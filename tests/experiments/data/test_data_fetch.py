"""Fetching from a local server and installing, and the command ``scripts/fetch_data.py``."""

import hashlib
import re
import socket

import data_samples as samples
import pytest
from data_server import CONTENT, origin_of, remotes_of, serving, silent

from experiments.data import DataError, cifar10, sets, tinystories
from experiments.data import fetch as fetching
from experiments.data.fetch import WORKING, DataOrigin, fetch
from scripts.fetch_data import main


@pytest.fixture
def server():
    with serving() as running:
        yield running


def test_a_file_is_fetched_once_and_then_left_alone(server, tmp_path):
    server.files["one.bin"] = CONTENT
    steps = []
    info, fetched = fetch("tiny", tmp_path, origin_of(server.url("one.bin")), lambda *step: steps.append(step))
    assert fetched
    assert info.provenance == "official files, digests checked"
    assert (tmp_path / "tiny" / "one.bin").read_bytes() == CONTENT
    assert steps[-1] == ("one.bin", len(CONTENT), len(CONTENT))
    assert not (tmp_path / "tiny" / WORKING).exists()
    again, fetched = fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
    assert (again, fetched) == (info, False)
    assert server.requests == ["/one.bin"]


@pytest.mark.parametrize("harm", ["cut", "changed"])
def test_wrong_content_is_refused_and_not_kept(server, tmp_path, harm):
    server.files["one.bin"] = CONTENT if harm == "cut" else CONTENT[:-1] + b"?"
    server.cuts = [1000] if harm == "cut" else []
    said = {"cut": rf"ended after 1000 of {len(CONTENT)} bytes", "changed": "wrong content.*%s.*%s"}[harm]
    if harm == "changed":
        said %= (samples.sha256(server.files["one.bin"]), samples.sha256(CONTENT))
    with pytest.raises(DataError, match=said):
        fetch("tiny", tmp_path, origin_of(server.url("one.bin")), silent)
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


def cifar_origin(server):
    server.files = {cifar10.BINARY_ARCHIVE: samples.tar_gz("cifar-10-batches-bin", samples.cifar()[0])}
    install = sets.ORIGINS["cifar10"].install
    return DataOrigin(remotes_of(server), lambda root: samples.read_cifar(root, {}).info, install)


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
    # After an interruption between the manifest and the files, the next call completes the installation.
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
        assert origin.remotes or origin.install.func is tinystories.install_from_hub
        for remote in origin.remotes:
            assert remote.urls
            urls = [url for url in remote.urls if not url.startswith("pip:")]
            assert all(url.startswith("https://") and url.endswith(f"/{remote.file}") for url in urls)
            assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}|git:[0-9a-f]{40}", remote.digest)


def test_the_script_fetches_reports_and_fails_with_a_status(server, tmp_path, capsys, monkeypatch):
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
    # One failing data set does not stop the others.
    (tmp_path / "tiny" / "one.bin").unlink()
    monkeypatch.setattr(sets, "USUAL", ("gone", "tiny"))
    (tmp_path / "other").mkdir()
    assert main(["--data-root", str(tmp_path / "other")]) == 1
    shown = capsys.readouterr()
    assert "HTTP 404" in shown.err
    assert "tiny: fetched" in shown.out


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["mnits"], "no data set 'mnits'; there are: mnist, cifar10, cora"),
        (["--adopt", "mnist"], "belong together"),
        (["--provenance", "x"], "belong together"),
        (["cora", "--adopt", "mnist", "--provenance", "x"], "leave the other names out"),
    ],
)
def test_a_wrong_command_line_ends_with_status_2(capsys, arguments, fault):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert fault in capsys.readouterr().err
