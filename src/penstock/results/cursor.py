"""Cursors: how far a reader has read a result.

A cursor is a text, `<id>.<batch>.<row>`: the result, and the number of rows of a batch that have been read. Clients may
look at it, but only pass it back. The ids of results are never used again, so that a cursor of another result is
recognized.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import PenstockError

_TEXT = re.compile(r"([a-z0-9][a-z0-9_-]{0,99})\.([0-9]{1,15})\.([0-9]{1,15})")


@dataclass(frozen=True)
class Cursor:
    """All rows before `batch` have been read, and `row` rows of it."""

    id: str
    batch: int
    row: int

    def __str__(self) -> str:
        return f"{self.id}.{self.batch}.{self.row}"

    @staticmethod
    def parse(text: str) -> Cursor:
        """Return the cursor that a text stands for. Raises PenstockError P0712."""
        found = _TEXT.fullmatch(text)
        if found is None:
            shown = text if len(text) <= 60 else text[:60] + "..."
            raise PenstockError(
                "P0712", f"{shown!r} is no cursor", hint="pass the cursor that came with the last rows, unchanged"
            )
        return Cursor(found[1], int(found[2]), int(found[3]))
