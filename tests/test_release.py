"""The changelog is that of the version that the package has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from penstock import __version__

ROOT = Path(__file__).resolve().parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_newest_version_of_the_changelog_is_that_of_the_package() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == __version__


def test_what_is_known_of_a_version_comes_in_one_order() -> None:
    newest = CHANGELOG.partition("\n## ")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.*)$", newest, re.MULTILINE) == ["Known limits", "Added", "Changed", "Fixed"]


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "penstock.__version__"}
