"""Moving records: packing, checking, unpacking, and all steps with a machine without git."""

import json
import os
import re
import shutil
import subprocess
import zipfile

import numpy as np
import programs
import pytest
from record_samples import curves, grown, record, sealed

from experiments.config.compose import compose
from experiments.paths import ROOT
from experiments.store.provenance import code
from experiments.store.records import Store
from experiments.store.sources import SOURCES
from experiments.sweeps import transport
from scripts import transport as script


def head():
    return code().commit


def made(seed, commit=None, **code):
    """Make a record like one by the code of a commit."""
    config = compose({}, {"seed.value": seed})
    one = record(config, {"grown": grown([2.0], 1e-3, 1e-3)})
    one["code"] |= {"commit": commit or head(), **code}
    return one


@pytest.fixture
def there(tmp_path):
    """Make a folder of five records with curves, one record of other code and one of changed code."""
    store = Store(tmp_path / "there")
    for seed in range(5):
        store.write(made(seed), curves(50))
    store.write(made(5, commit="1" * 40))
    store.write(made(6, clean=False))
    return store


def files(store):
    return {
        p.relative_to(store.root).as_posix(): p.read_bytes() for p in store.root.rglob("[!.]*.[jn]*") if p.is_file()
    }


def test_records_come_back_as_they_were_in_archives_of_a_limited_size(there, tmp_path):
    records, damaged = transport.records_of_commit(there, head())
    assert (len(records), damaged) == (5, [])
    one = sum(f.stat().st_size for f in (records[0], there.curves_path(records[0].stem)))
    archives = transport.pack(there, records, tmp_path / "out", int(2.5 * one))
    assert len(archives) == 3
    assert all(path.stat().st_size <= 2.5 * one for path in archives)
    here = Store(tmp_path / "here")
    taken = transport.unpack(archives, here)
    assert taken.counts == {"new": 5}
    travelled = {p.relative_to(there.root).as_posix() for r in records for p in (r, there.curves_path(r.stem))}
    assert files(here) == {name: content for name, content in files(there).items() if name in travelled}
    before = files(here)
    assert transport.unpack(archives, here).counts == {"present": 5}
    assert files(here) == before
    with pytest.raises(ValueError, match="an archive may have at most 1000"):
        transport.pack(there, records, archives[0].parent, 1000)
    assert all(path.exists() for path in archives)  # packing no records removes no archive


def test_packing_again_leaves_no_older_archive(there, tmp_path):
    records, _ = transport.records_of_commit(there, head())
    transport.pack(there, records, tmp_path, 12_000)
    (only,) = transport.pack(there, records[:1], tmp_path, 12_000)
    assert list(tmp_path.glob("*.zip")) == [only]


def _change(content, **block):
    told = json.loads(content)
    for name, change in block.items():
        told[name] |= change
    return json.dumps(sealed(told)).encode()


CASES = {
    "not JSON": (lambda c, _: c[:100], "Unterminated|Expecting"),
    "an illegal record": (lambda c, _: json.dumps(json.loads(c) | {"status": "fine"}).encode(), "status"),
    "changed code": (lambda c, _: _change(c, code={"clean": False}), "uncommitted"),
    "an unknown commit": (lambda c, _: _change(c, code={"commit": "1" * 40}), "does not have"),
    "a name that is no commit": (lambda c, _: _change(c, code={"commit": "HEAD"}), "does not have"),
    "no number": (lambda c, _: re.sub(rb'"mse": [\d.e-]+', b'"mse": NaN', c), "not a finite number"),
    "deep": (lambda c, _: b"[" * 100_000, "recursion"),
    "large": (lambda c, _: b" " * (transport.MAX_MEMBER + 1), "larger than any record"),
    "no commit": (lambda c, _: _change(c, code={"commit": None}), "does not have"),
    "stale numerics": (lambda c, _: _change(c, code={"numerics": {"task": 0, "method": 1}}), "numerics"),
    "another configuration": (lambda c, _: _change(c, config={"profile": "smoke"}), "another run"),
}


@pytest.mark.parametrize("case", CASES)
def test_invalid_records_are_refused_and_the_rest_unpacked(there, tmp_path, case):
    change, reason = CASES[case]
    first, second = transport.records_of_commit(there, head())[0][:2]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(f"regression1d/{first.name}", change(first.read_bytes(), first))
        archive.write(second, f"regression1d/{second.name}")
    here = Store(tmp_path / "here")
    taken = transport.unpack([tmp_path / "a.zip"], here)
    assert taken.counts == {"new": 1, "refused": 1}
    ((name, why),) = taken.refused
    assert name == f"regression1d/{first.name}"
    assert re.search(reason, why), why
    assert set(files(here)) == {f"regression1d/{second.name}"}


def test_paths_outside_files_without_a_record_and_broken_curves_are_refused(there, tmp_path):
    first, second = transport.records_of_commit(there, head())[0][:2]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(first, f"../{first.name}")
        archive.writestr("regression1d/x.curves.npz", b"")
        archive.writestr("run.py", b"print()")
        archive.write(second, f"regression1d/{second.name}")
        archive.writestr(f"regression1d/{second.stem}.curves.npz", there.curves_path(second.stem).read_bytes()[:-40])
    here = Store(tmp_path / "here")
    taken = transport.unpack([tmp_path / "a.zip"], here)
    assert taken.counts == {"refused": 4}
    assert {name for name, _ in taken.refused} == {
        f"../{first.name}",
        "regression1d/x.curves.npz",
        "run.py",
        f"regression1d/{second.name}",
    }
    assert not here.root.exists() or files(here) == {}
    assert not (tmp_path / first.name).exists()


def test_an_existing_record_never_changes(there, tmp_path):
    records, _ = transport.records_of_commit(there, head())
    archives = transport.pack(there, records[:1], tmp_path, 20_000)
    here = Store(tmp_path / "here")
    other = made(0)
    other["time"]["seconds"] = 2.0
    here.write(other)
    before = files(here)
    taken = transport.unpack(archives, here)
    assert taken.counts == {"refused": 1}
    assert "already" in taken.refused[0][1]
    assert files(here) == before


def test_an_existing_record_that_cannot_be_read_is_named_and_stays(there, tmp_path):
    records, _ = transport.records_of_commit(there, head())
    archives = transport.pack(there, records[:2], tmp_path / "out", 10**6)
    here = Store(tmp_path / "here")
    path = here.path(records[0].stem)
    path.parent.mkdir(parents=True)
    path.symlink_to("/proc/self/mem")
    taken = transport.unpack(archives, here)
    assert taken.counts == {"new": 1, "refused": 1}
    assert "cannot be read (Input/output error)" in str(taken.refused)
    assert path.is_symlink()


def test_a_damaged_archive_is_named_and_unpacks_nothing(there, tmp_path, capsys):
    (path,) = transport.pack(there, transport.records_of_commit(there, head())[0][:1], tmp_path, 20_000)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    assert transport.unpack([path], Store(tmp_path / "here")).counts == {"refused": 1}
    whole = transport.pack(there, transport.records_of_commit(there, head())[0][1:2], tmp_path / "whole", 20_000)
    path.write_bytes(content[:100])
    assert script.main(["unpack", str(path), *map(str, whole), f"--results={tmp_path / 'here'}"]) == 1
    shown = capsys.readouterr()
    assert "1 new, 0 present, 1 refused" in shown.out
    assert f"{path}: damaged, or not an archive of records" in shown.err


@pytest.mark.parametrize("seed", range(3))
def test_damaged_archives_neither_stop_the_command_nor_add_damaged_files(there, tmp_path, seed):
    """Unpack a hundred archives with changed bytes, some of them compressed, then an undamaged one."""
    random = np.random.default_rng(seed)
    first, second = transport.records_of_commit(there, head())[0][:2]
    (sound,) = transport.pack(there, [second], tmp_path / "sound", 20_000)
    fuzzed = []
    for number in range(100):
        path = tmp_path / f"{number}.zip"
        inner = bytearray(there.curves_path(first.stem).read_bytes())
        if number % 2:
            inner[random.integers(len(inner))] ^= 1 << random.integers(8)
        with zipfile.ZipFile(path, "w", (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)[number % 4 // 2]) as archive:
            archive.write(first, f"regression1d/{first.name}")
            archive.writestr(f"regression1d/{first.stem}.curves.npz", bytes(inner))
        if number % 2 == 0:
            content = bytearray(path.read_bytes())
            content[random.integers(len(content))] = random.integers(256)
            path.write_bytes(content)
        fuzzed.append(path)
    here = Store(tmp_path / "here")
    taken = transport.unpack([*fuzzed, sound], here)
    assert taken.counts["refused"] > 10
    assert here.path(second.stem).read_bytes() == second.read_bytes()
    if here.path(first.stem).exists():
        assert here.path(first.stem).read_bytes() == first.read_bytes()
        assert here.curves(first.stem) is not None


def test_curves_are_optional_and_damaged_records_are_named(there, tmp_path):
    there.curves_path(transport.records_of_commit(there, head())[0][0].stem).unlink()
    bad = transport.records_of_commit(there, head())[0][1]
    bad.write_text("{")
    records, damaged = transport.records_of_commit(there, head())
    assert len(records) == 4
    assert bad.name in damaged[0]
    taken = transport.unpack(transport.pack(there, records, tmp_path, 100_000), Store(tmp_path / "here"))
    assert taken.counts == {"new": 4}
    assert np.array_equal(Store(tmp_path / "here").curves(records[1].stem)["grown.step"], curves(50)["grown.step"])


@pytest.mark.slow
def test_records_of_a_machine_without_git_count(tmp_path):
    """Stamp a clean checkout, copy it without its history, train there, and unpack the records here."""
    home, lent, out = tmp_path / "home", tmp_path / "lent", tmp_path / "out"
    home.mkdir()
    for name in (*SOURCES, "scripts", ".gitignore"):
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, home / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, home / name)
    # git searches for a repository only up to this folder
    env = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1", "GIT_CEILING_DIRECTORIES": str(tmp_path)}

    def call(folder, *words):
        return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)

    def python(folder, *words):
        done = programs.run(folder / words[0], *words[1:], cwd=folder, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    call(home, "git", "init", "-q")
    call(home, "git", "add", "-A")
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    assert call(home, "git", *who, "commit", "-qm", "all").returncode == 0
    commit = call(home, "git", "rev-parse", "HEAD").stdout.strip()
    assert commit in python(home, "scripts/transport.py", "stamp")
    shutil.copytree(home, lent, ignore=shutil.ignore_patterns(".git"))
    python(lent, "run.py", "task=regression1d", "gate=mlp", "train.steps=5", "seed=0..1", "results=results")
    assert "2 records" in python(lent, "scripts/transport.py", "pack", str(out))
    assert "2 new, 0 present, 0 refused" in python(home, "scripts/transport.py", "unpack", *map(str, out.glob("*.zip")))
    found = [json.loads(p.read_text()) for p in (home / "results").glob("*/*.json")]
    said = {name: {record["code"][name] for record in found} for name in ("commit", "clean", "source")}
    assert (len(found), said) == (2, {"commit": {commit}, "clean": {True}, "source": {"stamp"}})
    with open(lent / "ngn" / "gate.py", "a") as code:
        code.write("# changed\n")
    refused = programs.run(lent / "scripts" / "transport.py", "pack", str(out), cwd=lent, env=env)
    assert refused.returncode == 2
    assert "commit the code, or bring its stamp" in refused.stderr
