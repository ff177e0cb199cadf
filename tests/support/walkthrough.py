"""Follow a page of instructions word by word: write its files, type its commands, and compare what they print.

A page has captioned files (a path in backticks above a block), commands (``sh`` blocks), what they print (the ``text``
block after them), tables of messages (``| missing | message |``), and tables that a section of the report holds.
"""

import os
import re
import shutil
import subprocess
import tempfile

import programs

from experiments.core.paths import ROOT

FILE = re.compile(r"^`(scratch/mine/[^`]+)`\n\n```(?:python|yaml)\n(.*?)^```$", re.S | re.M)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.S | re.M)
PRINTED = re.compile(r"^```text\n(.*?)^```$", re.S | re.M)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)
MISSING = re.compile(r"^\| ((?:`[^`]+` in )?`[^`]+`) \| `(.+)` \|$", re.M)
SHOWN = re.compile(r"section\n?\s?\"([^\"]+)\"\s+has the (?:line|table):\n\n((?:\|.*\|\n)+)")
NUMBER = re.compile(r"(?<![\w.-])-?\d+\.\d+(?:e[+-]\d+)?(?: s\b)?")
OWN_FOLDER = "scratch/mine"


class Lie(AssertionError):
    """The page says what is not so."""


class Reader:
    """Somebody in a folder who types what a page says, with the package of a checkout (or in it)."""

    def __init__(self, folder, checkout=ROOT):
        self.folder, self.checkout, self.printed, self.exported = folder, checkout, "", ""
        if folder != checkout:
            for name in ("run.py", "scripts"):
                (folder / name).symlink_to(checkout / name)

    def run(self, commands):
        """Type commands into a shell that knows the variables exported before."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("NGN_")},
            "PATH": programs.path(),
            "PYTHONPATH": str(self.checkout),
            "NGN_OUTPUT": str(self.folder / "scratch"),
        }
        return subprocess.run(
            ["bash", "-e", "-c", f"{self.exported}{commands}"],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def follow(self, page):
        """Do everything that the page says, in its order; a Lie where something else happens than it says."""
        forms = {FILE: self.write, COMMANDS: self.type, PRINTED: self.compare, MISSING: self.miss, SHOWN: self.see}
        steps = [(found.start(), do, found.groups()) for form, do in forms.items() for found in form.finditer(page)]
        for _, do, parts in sorted(steps, key=lambda step: step[0]):
            do(*parts)

    def write(self, name, text):
        """Write a file into a folder that is there."""
        try:
            (self.folder / name).write_text(text)
        except FileNotFoundError as error:
            raise Lie(f"no command of the page makes the folder of {name}") from error

    def compute(self, code):
        """Run a program that ends well; return what it prints."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write(code)
            program.flush()
            return self.type(f"python {program.name}\n")

    def type(self, commands):
        """Type commands that end well; return what they print."""
        done = self.run(commands)
        if done.returncode:
            raise Lie(f"{commands}{done.stdout}{done.stderr}")
        self.exported += "".join(line for line in commands.splitlines(True) if line.startswith("export "))
        self.printed = done.stdout.replace(f"{self.folder}/", "")
        return self.printed

    def compare(self, text):
        """Compare the last output with the page's."""
        if not alike(self.printed, text):
            raise Lie(f"printed:\n{self.printed}\nthe page says:\n{text}")

    def miss(self, what, message):
        """Take something away, type the command of the page, and put it back."""
        *line, name = re.findall(r"`([^`]+)`", what)
        place, aside = self.folder / OWN_FOLDER / name, self.folder / "aside"
        shutil.move(place, aside)
        if line:
            place.write_text("".join(one for one in aside.read_text().splitlines(True) if line[0] not in one))
        choice = message.split()[0]
        done = self.run(f"python run.py task=sine {choice if choice.startswith('method=') else ''}")
        if line:
            place.unlink()
        shutil.move(aside, place)
        said = done.stderr.replace(f"{self.folder}/", "")
        if done.returncode != 2 or said != f"refused: {message}\n":
            raise Lie(f"without {what}:\n{said}\nthe page says:\n{message}")

    def see(self, section, table):
        """Find the lines of a table in a section of the report."""
        found = rows_of(self.report(), section)
        wanted = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        for line in (wanted[0], *wanted[2:]):
            if not any(same_cells(cells[: len(line)], line) for cells in found):
                raise Lie(f'the report has no line {line} in its section "{section}", but {found}')

    def report(self):
        """The report's page."""
        return (self.folder / "scratch" / "report" / "report.html").read_text()


def alike(printed, text):
    """Whether two outputs have the same words and whole numbers, and near decimals; times may differ."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", text).split():
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(text), strict=True)
    return all(a.endswith(" s") or near(float(a), float(b)) for a, b in pairs)


def near(a, b):
    """Whether two results of the same training on two machines may differ so much."""
    return abs(a - b) <= 0.25 * max(abs(a), abs(b))


def same_cells(found, wanted):
    """Whether the cells of a row are those of the page."""
    return len(found) == len(wanted) and all(map(alike, found, wanted))


def rows_of(report, heading):
    """The rows of the tables below a heading of the report, as plain texts."""
    section = re.search(rf"<h2>{re.escape(heading)}</h2>(.*?)</section>", report, re.S)
    rows = re.findall(r"<tr>(.*?)</tr>", section[1] if section else "", re.S)
    return [
        [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]
        for row in rows
    ]
