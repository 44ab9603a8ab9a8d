"""When values of a stream are closed by its punctuations (docs/promises.md).

A value is closed at the instant of the first punctuation that it fulfils, and stays closed. What is kept are the
punctuations over the columns of the promise, each part written once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra.properties.promises import Punctuated
from penstock.algebra.properties.punctuations import Punctuation
from penstock.physical.elements import Int64s, taken, unnamed
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.physical.synopses.promises.element_counts import ElementCounts
from penstock.physical.synopses.promises.punctuations import Level, Punctuations
from penstock.storage.documents import Document, as_integer
from penstock.types import BEGIN, END

#: About the bytes of a punctuation.
_BYTES = 200
_NONE = np.empty(0, np.int64)


class PunctuatedIndex(Synopsis):
    """The punctuations of a stream over the columns of a promise, which are the columns of its values."""

    def __init__(self, promise: Punctuated) -> None:
        self._places = {column: place for place, column in enumerate(promise.columns)}
        self._kept = Punctuations()
        #: Those of this round in the order of their instants.
        self.news: list[tuple[int, Punctuation]] = []
        self._written: list[tuple[int, Level]] = []
        self._next = 0

    def advance(self, heartbeat: int, columns: Sequence[pa.Array], ts: Int64s, counts: ElementCounts) -> None:
        """Add the punctuations of a round: texts, each at the instant from which on no row fulfils it. Which values
        they close is not known."""
        self._kept = self._kept.added(one for _, one in self.news)
        order = np.argsort(ts, kind="stable").tolist()
        texts = columns[0].to_pylist()
        moved = ((int(ts[row]), Punctuation.from_text(texts[row])) for row in order)
        self.news = [(tick, self._moved(one)) for tick, one in moved if set(one.columns) <= self._places.keys()]

    def _moved(self, one: Punctuation) -> Punctuation:
        """Return a punctuation over the columns of values."""
        moved = ((self._places[column], condition) for column, condition in one.conditions)
        return Punctuation(tuple(sorted(moved, key=lambda condition: condition[0])))

    def passed(self, columns: Sequence[pa.Array], length: int) -> Int64s:
        """Return the instant of the first punctuation that each value fulfils: BEGIN where that was before this round,
        END for none."""
        found = np.full(length, END, np.int64)
        by_place = dict(enumerate(columns))
        found[self._kept.fulfilled(by_place, length, ())] = BEGIN
        rows = np.flatnonzero(found == END)
        self._note_first(self.news, taken(columns, rows), rows, found)
        return found

    def _note_first(
        self, news: Sequence[tuple[int, Punctuation]], columns: Sequence[pa.Array], rows: Int64s, found: Int64s
    ) -> None:
        """Write the instant of the first of `news` that rows fulfil. columns: of the rows."""
        if not news or not len(rows):
            return
        hits = np.flatnonzero(Level.of(one for _, one in news).fulfilled(dict(enumerate(columns)), len(rows)))
        if not len(hits):
            return
        rows, columns = rows[hits], taken(columns, hits)
        if news[0][0] == news[-1][0]:
            found[rows] = news[0][0]
            return
        middle = len(news) // 2
        self._note_first(news[:middle], columns, rows, found)
        left = np.flatnonzero(found[rows] == END)
        self._note_first(news[middle:], taken(columns, left), rows[left], found)

    def until(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return the first closing of values from `ts` on; END where it is not known yet."""
        return np.maximum(self.passed(columns, len(ts)), ts)

    def since(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return BEGIN for values that were open until `ts` at least, else `ts`."""
        return np.where(self.passed(columns, len(ts)) < ts, ts, BEGIN)

    def snapshot(self) -> tuple[Document, Chunks]:
        kept = self._kept.added(one for _, one in self.news)
        known = {id(level): number for number, level in self._written}
        written: list[tuple[int, Level]] = []
        for level in kept.levels:
            number = known.get(id(level))
            if number is None:
                self._next, number = self._next + 1, self._next + 1
            written.append((number, level))
        self._kept, self._written = kept, written
        chunks = {number: unnamed([pa.array([one.as_text() for one in level])]) for number, level in written}
        return {"levels": [number for number, _ in written], "next": self._next}, chunks

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        numbers = manifest["levels"]
        assert isinstance(numbers, list), "as it was written"
        self._written = [
            (as_integer(number, "levels"), Level.of(map(Punctuation.from_text, chunks[number].column(0).to_pylist())))
            for number in numbers
        ]
        self._next = as_integer(manifest["next"], "next")
        self._kept, self.news = Punctuations(levels=tuple(level for _, level in self._written)), []

    @property
    def rows(self) -> int:
        return len(self._kept) + len(self.news)

    @property
    def nbytes(self) -> int:
        return _BYTES * self.rows
