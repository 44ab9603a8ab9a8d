"""docs/architecture.md draws every room; what it and docs/adding-an-operator.md name exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "penstock"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

OPERATORS_PAGE = (ROOT / "docs" / "adding-an-operator.md").read_text(encoding="utf-8")

#: What stands in backticks and ends like a file or a folder.
NAMED = sorted(set(re.findall(r"`([a-z_][\w/]*(?:\.py|/))`", PAGE + OPERATORS_PAGE)))


def test_what_the_pages_name_exists() -> None:
    assert NAMED
    assert [name for name in NAMED if not (SRC / name).exists() and not (ROOT / name).exists()] == []


def test_the_classes_that_the_pages_name_exist() -> None:
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)[`.(]", PAGE + OPERATORS_PAGE))
    files = [*SRC.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    defined = {name for file in files for name in re.findall(r"^class (\w+)", file.read_text("utf-8"), re.MULTILINE)}
    assert named - defined == set()


def test_every_room_is_drawn() -> None:
    drawing = PAGE.partition("## The rooms")[2].split("```")[1]
    rooms = {
        folder.name
        for folder in SRC.rglob("*")
        if folder.is_dir() and folder.name != "__pycache__" and any(folder.glob("*.py"))
    }
    missing = sorted(room for room in rooms if not re.search(rf"(?<!\w){room}/", drawing))
    assert missing == []


def test_the_drawing_has_no_room_that_is_gone() -> None:
    drawing = PAGE.partition("## The rooms")[2].split("```")[1]
    rooms = {folder.name for folder in SRC.rglob("*") if folder.is_dir()}
    assert sorted(set(re.findall(r"(\w+)/", drawing)) - rooms) == []


def test_the_walks_are_there() -> None:
    for heading in ("## A walk: one script, from text to plan", "## A walk: one row, from a csv file"):
        section = PAGE.partition(heading)[2].split("\n## ")[0]
        assert len(re.findall(r"`[\w/]+\.py`", section)) >= 12
