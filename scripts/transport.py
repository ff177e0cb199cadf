"""Bring the code to a borrowed machine, and its records back. That machine needs neither git nor a network.

    python scripts/transport.py stamp                   # here: source_stamp.json, which travels with a copy of the tree
    timeout 25m python scripts/sweep.py run decay learners --device cuda    # there
    python scripts/transport.py pack OUT                # there: OUT/records-0001.zip, ... of at most 16 MiB each
    python scripts/transport.py unpack OUT/*.zip        # here: into results/, each record checked

The stamp names the commit, so records made there count like those made here. `pack` takes the records that this code
made. `unpack` refuses records that are damaged, stale, of changed code or of an unknown commit. It never changes an
existing record.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse

from experiments.cli.pipes import exit_with
from experiments.paths import RESULTS
from experiments.store.provenance import code, write_stamp
from experiments.store.records import RecordError, Store
from experiments.sweeps import transport


def stamp_command(_: argparse.Namespace) -> int:
    """Write the stamp."""
    print(f"{write_stamp()}: commit {code().commit}")
    return 0


def pack_command(given: argparse.Namespace) -> int:
    """Pack the records of this code; return 1 if a file in the folder is damaged or there are no records."""
    now = code()
    if now.commit is None or not now.clean:
        raise RuntimeError("records of changed or unknown code never count: commit the code, or bring its stamp")
    records, damaged = transport.records_of_commit(Store(given.results), now.commit)
    archives = transport.pack(Store(given.results), records, given.folder, int(given.max_mib * 2**20))
    for path in archives:
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
    print(f"{len(records)} records of commit {now.commit[:10]} in {len(archives)} archives")
    for fault in damaged:
        print(f"left out: {fault}", file=sys.stderr)
    return 1 if damaged or not records else 0


def unpack_command(given: argparse.Namespace) -> int:
    """Import records; return 1 if any was refused."""
    taken = transport.unpack(given.archives, Store(given.results))
    print(", ".join(f"{taken.counts[what]} {what}" for what in ("new", "present", "refused")))
    for name, why in taken.refused:
        print(f"  {name}: {why}", file=sys.stderr)
    return 1 if taken.refused else 0


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 0, 1 if a record was left out or refused, 2 if nothing could be done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="stamp | pack | unpack")
    stamp = commands.add_parser("stamp", help="name the commit in a file, for a tree without git")
    stamp.set_defaults(run=stamp_command)
    pack = commands.add_parser("pack", help="pack the records that this code has made")
    pack.add_argument("folder", type=Path, metavar="OUT", help="folder of the archives; older ones in it are replaced")
    pack.add_argument("--max-mib", type=float, default=16.0, help="size of an archive at most (16)")
    pack.set_defaults(run=pack_command)
    unpack = commands.add_parser("unpack", help="take the records of archives in")
    unpack.add_argument("archives", type=Path, nargs="+", metavar="ARCHIVE")
    unpack.set_defaults(run=unpack_command)
    for command in (pack, unpack):
        command.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")
    given = parser.parse_args(argv)
    try:
        return int(given.run(given))
    except (RuntimeError, RecordError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    exit_with(main)
