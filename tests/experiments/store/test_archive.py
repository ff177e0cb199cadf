"""A source archive names its commit, and counts while its files are those of the commit."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from experiments.paths import ROOT
from experiments.store import archive, provenance, sources

NAMED = "experiments/store/archive.txt"


def git(folder: Path, *words: str) -> bytes:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    return subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, check=True).stdout


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked archive of a small repository, with names that git sorts in its own way."""
    home, there = tmp_path / "home", tmp_path / "there"
    files = {"run.py": "1", "ngn/a.py": "2", "ngn/a/b.py": "3", "ngn/a-b.py": "4", "docs/x.md": "é"}
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / NAMED).parent.mkdir(parents=True)
    for name in (".gitattributes", ".gitignore"):
        (home / name).write_bytes((ROOT / name).read_bytes())
    (home / NAMED).write_bytes(archive.PLACEHOLDERS)
    (home / "run.py").chmod(0o755)
    git(home, "init", "-q")
    git(home, "add", "-A")
    git(home, "commit", "-qm", "all")
    with tarfile.open(fileobj=io.BytesIO(git(home, "archive", "HEAD"))) as packed:
        packed.extractall(there, filter="data")
    monkeypatch.setattr(archive, "NAMED", there / NAMED)
    monkeypatch.setattr(provenance, "ROOT", there)
    monkeypatch.setattr(provenance, "STAMP", there / "source_stamp.json")
    monkeypatch.setattr(sources, "ROOT", there)
    return there


def test_an_archive_counts_until_its_sources_change(unpacked: Path) -> None:
    commit = git(unpacked.parent / "home", "rev-parse", "HEAD").decode().strip()
    (unpacked / "mine.yaml").write_text("what users put beside it does not count")
    (unpacked / "ngn" / "__pycache__").mkdir()
    (unpacked / "ngn" / "__pycache__" / "a.pyc").write_text("nor what git ignores")
    (unpacked / "docs" / "empty").mkdir()
    assert provenance._code() == provenance.Code(commit, True, "stamp")
    (unpacked / "docs" / "x.md").write_text("docs may change from the first training on")
    assert provenance._code().clean
    (unpacked / "ngn" / "a.py").write_text("5")
    assert provenance._code() == provenance.Code(commit, False, "stamp", ("ngn/a.py",))


@pytest.mark.parametrize("harm", ["changed", "removed", "added", "mode"])
def test_an_archive_that_was_changed_before_does_not_count(
    unpacked: Path, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked / "ngn" / "a" / "b.py"
    if harm == "changed":
        path.write_text("4")
    elif harm == "removed":
        path.unlink()
    elif harm == "mode":
        path.chmod(0o755)
    else:
        path.with_name("c.py").write_text("")
    found = provenance._code()
    assert (found.clean, found.source, (unpacked / "source_stamp.json").exists()) == (False, "stamp", False)
    monkeypatch.setattr(provenance, "code", lambda: found)
    assert "unpack the archive anew, or use a git clone" in str(provenance.why_not_counted())


@pytest.mark.checkout
def test_a_checkout_is_no_archive() -> None:
    assert archive.archived() is None
    assert archive.NAMED.read_bytes() == archive.PLACEHOLDERS
    assert archive.unchanged_commit(ROOT) is None


@pytest.mark.checkout
def test_the_tree_of_this_checkout_is_computed_as_git_does(tmp_path: Path) -> None:
    """Otherwise no archive of it counts: a file at the top is not listed, or ``.gitignore`` has a form not read."""
    listed = git(ROOT, "ls-files", "-z", "--", ":(exclude)results").decode().split("\0")[:-1]
    assert {name.partition("/")[0] for name in listed} | {"results"} == archive.TOP
    ignored = archive._ignored(ROOT)
    paths = {path for name in listed for path in (Path(name), *Path(name).parents) if path != Path()}
    assert not [path for path in paths if ignored(ROOT / path)]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (provenance.Code("c", True, "git"), None),
        (provenance.Code("c", False, "git", tuple("abcd")), "uncommitted changes (a, b, c and 1 more); commit them"),
        (provenance.Code("c" * 40, False, "stamp", ("ngn/gate.py",)), "not those of commit cccccccccc (ngn/gate.py)"),
        (provenance.Code(None, False, "none"), "names no commit; use a git clone or a source archive"),
    ],
)
def test_what_will_not_count_says_why(monkeypatch: pytest.MonkeyPatch, code: provenance.Code, said: str | None) -> None:
    monkeypatch.setattr(provenance, "code", lambda: code)
    why = provenance.why_not_counted()
    assert why is None if said is None else said in str(why)


def test_a_stamp_names_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_git", lambda *words: None)
    monkeypatch.setattr(provenance, "STAMP", tmp_path / "stamp.json")
    then = sources.source_digests() | {"ngn/gate.py": "another", "ngn/removed.py": "one"}
    (tmp_path / "stamp.json").write_text(json.dumps({"commit": "c", "sources": then}))
    assert provenance._code().changed == ("ngn/gate.py", "ngn/removed.py")
