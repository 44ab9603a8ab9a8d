"""The answers of a query over its past: folded up to the instant from which they are emitted, kept in files beyond.

BEGINNING emits all of them. Else a relation begins with its content at the instant τ0, and the answers after it follow;
a stream begins with the elements after τ0, or at τ0 with NOW. τ0 is the query's heartbeat when the past has been read,
or the tick of AT.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.physical.elements import Elements, concat, decode, encode
from penstock.physical.execution.answers import answer_table
from penstock.physical.execution.progress import NOTHING
from penstock.runtime.live.content import Content, difference
from penstock.runtime.live.results import Track
from penstock.runtime.spark.checkpoint.folder import write_whole
from penstock.runtime.spark.output.withheld import Withheld
from penstock.storage import storage


class PastAnswers:
    """The answers of one query.

    Args:
        place: a folder of its own, for answers that are emitted.
    """

    def __init__(self, query: Query, start: Start, place: Path) -> None:
        self._query = query
        self._start = start
        #: The tick of AT. What waits WARM is withheld until its first instant, which may come later than thought.
        self._at = start.at if start.mode is StartMode.AT else None
        self._place = place
        self._track = Track(query, 0, Content(query.root.schema.types))
        #: Answers beyond the heartbeat that stay when those after them are forgotten.
        self._early: list[Elements] = []
        self._files = 0
        #: The heartbeat up to which answers have been taken.
        self.reached = NOTHING

    def take(self, parts: Iterable[Elements], heartbeat: int) -> None:
        """Accept the answers of a round. heartbeat: of the query after it."""
        self._track.take(parts)
        self.reached = max(self.reached, heartbeat)
        final = self._track.final(self.reached)
        if final is None:
            return
        if self._start.mode is StartMode.BEGINNING or (
            self._start.mode is StartMode.NOW and self._query.root.is_stream
        ):
            self._keep(final)
        elif self._at is None:
            self._fold(final)
        else:
            self._fold(final.filter(final.ts <= self._at))
            self._keep(final.filter(final.ts > self._at))

    def keep_early(self) -> None:
        """Keep the answers beyond the heartbeat that are known by now when those after them are forgotten."""
        self._early = list(self._track.early)

    def forget_early(self) -> None:
        """Leave out the answers beyond the heartbeat, but those that are kept."""
        self._track.early = [part.filter(part.ts > self.reached) for part in self._early]

    def tables(self, most: int) -> list[pa.Table]:
        """Return what is emitted, in at most `most` tables, at least one."""
        parts: list[list[Elements]] = []
        if not self._query.root.is_stream and len(self._track.content.rows()):
            begin = self.reached if self._at is None else self._at
            types = self._query.root.schema.types
            parts.append([difference(Content(types), self._track.content, begin)])
        parts += [[self._read(number)] for number in range(self._files)]
        parts += [[part] for part in self._track.early]
        size = max(1, -(-len(parts) // max(1, most)))
        joined = [list(chain.from_iterable(parts[i : i + size])) for i in range(0, len(parts), size)]
        return [answer_table(self._query, some) for some in joined or [[]]]

    def withheld(self) -> Withheld:
        """Return the answer of a query that is withheld: of a relation its content, and what comes after it."""
        begin = self.reached if self._at is None else self._at
        content = difference(Content(self._query.root.schema.types), self._track.content, begin)
        parts = [content, *(self._read(number) for number in range(self._files)), *self._track.early]
        return Withheld(concat(parts), begin)

    def _fold(self, elements: Elements) -> None:
        if not self._query.root.is_stream and len(elements):
            self._track.content.add(elements)

    def _keep(self, elements: Elements) -> None:
        if len(elements):
            write_whole(self._path(self._files), encode([elements.to_batch()]), durable=False)
            self._files += 1

    def _read(self, number: int) -> Elements:
        (batch,) = decode(storage().map(self._path(number)))
        return Elements.from_batch(batch)

    def _path(self, number: int) -> Path:
        return self._place / f"{number:09d}.arrow"
