"""A part of a text keeps its line and column where the rest of the text before it is blank."""

from __future__ import annotations

import pytest

from penstock.language.text import SourceText, TextSpan

TEXT = "SET a = 1;\n\n  -- \N{GREEK SMALL LETTER TAU}\tx\nSELECT 1; SELECT wrong"


@pytest.mark.parametrize("start", range(len(TEXT)))
def test_a_part_keeps_its_place(start: int) -> None:
    span = TextSpan(start, len(TEXT))
    blank = SourceText(TEXT).blank_before(span)
    assert not blank.strip(" \n")
    behind = SourceText(blank + TEXT[start:])
    before, after = SourceText(TEXT).position(span), behind.position(TextSpan(len(blank), len(behind.text)))
    assert (before.line, before.column) == (after.line, after.column)
