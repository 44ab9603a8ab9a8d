"""The pictures of docs/architecture-in-ten-minutes.md are what their script draws, and what they name exists."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture-in-ten-minutes.md").read_text(encoding="utf-8")
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "architecture_pictures.py"))


@pytest.mark.parametrize("name", SCRIPT["DRAWN"])
def test_the_file_is_what_the_script_draws(name: str) -> None:
    drawn = SCRIPT["DRAWN"][name]()
    assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == drawn, (
        "renew it: python scripts/architecture_pictures.py"
    )
    ET.fromstring(drawn)
    assert f"](pictures/{name})" in PAGE


@pytest.mark.parametrize("name", SCRIPT["DRAWN"])
def test_a_picture_is_readable_in_light_and_in_dark(name: str) -> None:
    """It follows what the reader prefers, or has a background of its own."""
    drawn = SCRIPT["DRAWN"][name]()
    assert "prefers-color-scheme:dark" in drawn or re.search(r'<rect width="\d+" height="\d+" fill="#ffffff"/>', drawn)


def test_every_path_in_a_picture_exists() -> None:
    found = [
        path for draw in SCRIPT["DRAWN"].values() for path in re.findall(r'<text class="path"[^>]*>([^<]*)<', draw())
    ]
    assert len(found) > 30
    assert [path for path in found if not (ROOT / "src" / "penstock" / path).exists()] == []


def test_the_shared_plan_is_that_of_the_script_on_the_page() -> None:
    (script,) = re.findall(r"```cql\n(.*?)```", PAGE, re.DOTALL)
    assert SCRIPT["SCRIPT"].strip() == script.strip()
