"""docs/functions.md is what the registry says."""

from __future__ import annotations

from pathlib import Path

from penstock.expressions.calls.catalogue import functions_page

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == functions_page(), (
        "renew it: python -m penstock.expressions.calls.catalogue > docs/functions.md"
    )
