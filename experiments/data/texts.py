"""Read the text data sets: questions with answers, and running text, from JSON, JSON lines or plain text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.core.task import DataInfo
from experiments.data import text_schemas as forms
from experiments.data.source import DataError, Folder


@dataclass(frozen=True)
class Texts:
    """The files of one layout, by name: a list of records (from JSON or JSON lines), or the text."""

    parts: dict[str, Any]
    info: DataInfo


@dataclass(frozen=True)
class TextSet:
    """One text data set.

    Attributes:
        NAME: name of the data set and of its folder below the data root.
        layouts: possible sets of files, best first. A later one is a stand-in or another packing.
        schemas: file name → type of each of its records. Text files have no entry.
        inside: folders of the official packing, where the files may also be.
        OFFICIAL: digests of official files.
        check: checks what records of several files must agree on.
    """

    NAME: str
    layouts: tuple[tuple[str, ...], ...]
    schemas: Mapping[str, Any]
    inside: tuple[str, ...] = ()
    OFFICIAL: Mapping[str, str] = field(default_factory=dict)
    check: forms.Check = field(default=lambda parts: None)

    def read_folder(self, folder: Folder) -> Texts:
        """Read the first complete layout; see :meth:`load_data`."""
        places = (folder.path, *(folder.path / name for name in self.inside))
        files = [[(place / name,) for name in layout] for layout in self.layouts for place in places]
        parts = {path.name: self._parsed(path, folder.read(path).tobytes()) for path in folder.choose(files)}
        try:
            self.check(parts)
        except ValueError as fault:
            raise DataError(f"{folder.path}: {fault}") from None
        return Texts(parts, folder.info())

    def load_data(self, root: Path) -> Texts:
        """Read the data set below a data root.

        Raises:
            DataError: if a file is missing, damaged, not the expected one, or not of its form.
        """
        return self.read_folder(Folder(root, self.NAME, self.OFFICIAL))

    def _parsed(self, path: Path, content: bytes) -> Any:
        try:
            text = content.decode()
        except UnicodeDecodeError as fault:
            raise DataError(f"{path}: unreadable ({fault})") from None
        if path.name in self.schemas:
            return forms.read_records(path, text, self.schemas[path.name])
        if not text.strip():
            raise DataError(f"{path}: holds no text")
        return text


WIKISQL = TextSet(
    "wikisql",
    (("train.jsonl", "train.tables.jsonl", "test.jsonl", "test.tables.jsonl"), ("dev.jsonl", "dev.tables.jsonl")),
    {f"{part}.jsonl": forms.WIKISQL_QUESTION for part in ("train", "dev", "test")}
    | {f"{part}.tables.jsonl": forms.WIKISQL_TABLE for part in ("train", "dev", "test")},
    inside=("data",),
    check=forms.check_wikisql,
)
"""Zhong, Xiong and Socher, "Seq2SQL", 2017; BSD-3-Clause. The stand-in has only the official dev questions."""
GSM8K = TextSet(
    "gsm8k",
    (("train.jsonl", "test.jsonl"),),
    dict.fromkeys(("train.jsonl", "test.jsonl"), forms.GSM8K_QUESTION),
    inside=("grade_school_math/data",),
    OFFICIAL={
        "train.jsonl": "sha256:17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
        "test.jsonl": "sha256:3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    },
)
"""Cobbe et al., "Training Verifiers to Solve Math Word Problems", 2021; MIT. Digests of openai/grade-school-math."""
SPIDER = TextSet(
    "spider",
    (("train_spider.json", "dev.json", "tables.json"),),
    dict.fromkeys(("train_spider.json", "dev.json"), forms.SPIDER_QUESTION) | {"tables.json": forms.SPIDER_DATABASE},
    inside=("spider", "spider_data"),
    OFFICIAL={
        "train_spider.json": "git:673f7c4ca415a4fd1ebb8654960c2ff18cbc90c3",
        "dev.json": "sha256:30d64a3fccde493226df79687aed9e4a1c0129525baf44f29c0573d914d758a4",
        "tables.json": "sha256:61bb20aa401f03164e2d7f3b16509b7b5f79cc9c943ca7bd159046df1159e2ed",
    },
    check=forms.check_spider,
)
"""Yu et al., "Spider", 2018; CC BY-SA 4.0. The databases are not used."""
SQUAD = TextSet(
    "squad",
    (("train-v1.1.json", "dev-v1.1.json"), ("xquad.en.json",)),
    dict.fromkeys(("train-v1.1.json", "dev-v1.1.json", "xquad.en.json"), forms.SQUAD_ARTICLE),
    OFFICIAL={
        "train-v1.1.json": "sha256:3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
        "dev-v1.1.json": "sha256:95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
        "xquad.en.json": "sha256:e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29",
    },
    check=forms.check_squad,
)
"""Rajpurkar et al., "SQuAD", 2016; CC BY-SA 4.0. The stand-in is XQuAD's English part: 240 dev paragraphs."""
WIKITEXT2 = TextSet("wikitext2", (("wiki.test.tokens",), ("test.txt",)), {}, inside=("wikitext-2",))
"""Merity et al., "Pointer Sentinel Mixture Models", 2016; CC BY-SA. The test part, tokens as published."""
PILE10K = TextSet("pile10k", (("pile-10k.jsonl",),), {"pile-10k.jsonl": forms.DOCUMENT})
"""The first 10,000 documents of the Pile (Gao et al., 2020): one JSON object with "text" on each line."""
TINYSTORIES = TextSet(
    "tinystories", (("TinyStories-train.txt", "TinyStories-valid.txt"), ("train.txt", "valid.txt")), {}
)
"""Eldan and Li, "TinyStories", 2023; CDLA-Sharing-1.0. Stories end with ``<|endoftext|>``."""
SETS = {each.NAME: each for each in (WIKISQL, GSM8K, SPIDER, SQUAD, WIKITEXT2, PILE10K, TINYSTORIES)}
