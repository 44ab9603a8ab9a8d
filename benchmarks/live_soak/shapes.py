"""The kinds of queries, and what each answers: computed anew from the rows, by itself and without the engine.

An answer is a list of changes `(tick, sign, row)`: of a stream each sign is 1, of a relation 1 or -1.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from benchmarks.live_soak.feed import BETWEEN, STEP, levels, stream

Change = tuple[int, int, tuple[int, ...]]


@dataclass(frozen=True)
class Span:
    """What is read and answered.

    Args:
        seed: of the rows.
        first: the first row that the query reads.
        after, until: the ticks of the answer, without the first and with the last.
    """

    seed: int
    first: int
    after: int
    until: int

    def rows(self, before: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return number, key and value of the rows that count, from `before` ticks ahead of the answer on."""
        first = max(self.first, (self.after - before) // STEP + 1, 0)
        table = stream(self.seed, first, self.until // STEP + 1 - first)
        return tuple(table.column(name).to_numpy() for name in "nkv")  # type: ignore[return-value]


class Shape(Protocol):
    """A kind of query with its constants. leaves_early: whether its rows are answered before their instant is
    complete."""

    @property
    def is_stream(self) -> bool: ...

    @property
    def leaves_early(self) -> bool: ...

    @property
    def text(self) -> str: ...

    def answer(self, span: Span) -> list[Change]: ...


@dataclass(frozen=True)
class Passed:
    """Some of the rows as they are."""

    modulus: int
    rest: int
    is_stream: bool = field(default=True, init=False)
    leaves_early: bool = field(default=True, init=False)

    @property
    def text(self) -> str:
        return f"SELECT n, v FROM s WHERE v % {self.modulus} = {self.rest}"

    def answer(self, span: Span) -> list[Change]:
        number, _, value = span.rows()
        chosen = value % self.modulus == self.rest
        return [(n * STEP, 1, (n, v)) for n, v in zip(number[chosen].tolist(), value[chosen].tolist(), strict=True)]


@dataclass(frozen=True)
class Sums:
    """Sums of a sliding window at its boundaries. length, slide: in seconds."""

    length: int
    slide: int
    is_stream: bool = field(default=True, init=False)
    leaves_early: bool = field(default=False, init=False)

    @property
    def text(self) -> str:
        window = f"[RANGE {self.length} SECONDS SLIDE {self.slide} SECONDS]"
        return f"RSTREAM(SELECT k, COUNT(*) AS c, SUM(v) AS total, MAX(v) AS top FROM s {window} GROUP BY k)"

    def answer(self, span: Span) -> list[Change]:
        length, slide = 1000 * self.length, 1000 * self.slide
        number, key, value = span.rows(length)
        found: list[Change] = []
        for boundary in range((max(span.after, -1) // slide + 1) * slide, span.until + 1, slide):
            at = number * STEP
            inside = (at > boundary - length) & (at <= boundary)
            for k in np.unique(key[inside]).tolist():
                own = value[inside & (key == k)]
                found.append((boundary, 1, (k, len(own), int(own.sum()), int(own.max()))))
        return found


@dataclass(frozen=True)
class Totals:
    """Sums of the last seconds as a relation."""

    length: int
    is_stream: bool = field(default=False, init=False)
    leaves_early: bool = field(default=False, init=False)

    @property
    def text(self) -> str:
        return f"SELECT k, COUNT(*) AS c, SUM(v) AS total FROM s [RANGE {self.length} SECONDS] GROUP BY k"

    def content(self, span: Span, tick: int) -> Counter[tuple[int, ...]]:
        """Return the rows at an instant."""
        length = 1000 * self.length
        number, key, value = Span(span.seed, span.first, tick, tick).rows(length)
        inside = (number * STEP > tick - length) & (number * STEP <= tick)
        own = {k: value[inside & (key == k)] for k in np.unique(key[inside]).tolist()}
        return Counter((k, len(values), int(values.sum())) for k, values in own.items())

    def answer(self, span: Span) -> list[Change]:
        """Return the changes; at the tick `after` the content that there is then."""
        begin = max(span.after, -1)
        state = {row[0]: row[1:] for row in self.content(span, begin)}
        found: list[Change] = [(begin, 1, (k, *rest)) for k, rest in state.items()]
        number, key, value = span.rows(1000 * self.length)
        moves: list[tuple[int, int, int, int]] = []
        for n, k, v in zip(number.tolist(), key.tolist(), value.tolist(), strict=True):
            moves += [(n * STEP, k, 1, v), (n * STEP + 1000 * self.length, k, -1, -v)]
        waiting: dict[tuple[int, int], tuple[int, int]] = {}
        for tick, k, count, total in moves:
            if begin < tick <= span.until:
                known = waiting.get((tick, k), (0, 0))
                waiting[tick, k] = known[0] + count, known[1] + total
        for (tick, k), (count, total) in sorted(waiting.items()):
            before = state.get(k, (0, 0))
            after = before[0] + count, before[1] + total
            if before != after:
                found += [(tick, -1, (k, *before))] if before[0] else []
                found += [(tick, 1, (k, *after))] if after[0] else []
            state[k] = after
        return found


@dataclass(frozen=True)
class Levelled:
    """Each row with the level of its key: a join with a relation that is posted."""

    modulus: int
    is_stream: bool = field(default=True, init=False)
    leaves_early: bool = field(default=False, init=False)

    @property
    def text(self) -> str:
        return (
            "SELECT ISTREAM(s.n AS n, l.level AS level) FROM s [NOW] AS s, levels AS l "
            f"WHERE s.k = l.k AND s.v % {self.modulus} = 0"
        )

    def answer(self, span: Span) -> list[Change]:
        changes = levels(span.seed, 0, span.until // (STEP * BETWEEN) + 1)
        by_key: dict[int, tuple[list[int], list[int]]] = {}
        columns = (changes.column(name).to_pylist() for name in ("k", "at", "level"))
        for k, at, level in zip(*columns, strict=True):
            ticks, known = by_key.setdefault(k, ([], []))
            ticks.append(at)
            known.append(level)
        found: list[Change] = []
        for n, k, v in zip(*(column.tolist() for column in span.rows()), strict=True):
            if v % self.modulus == 0 and k in by_key:
                place = int(np.searchsorted(by_key[k][0], n * STEP, side="right")) - 1
                if place >= 0:
                    found.append((n * STEP, 1, (n, by_key[k][1][place])))
        return found


def drawn(draw: random.Random, like: Shape | None = None) -> Shape:
    """Return a query of a random kind, or one with the columns of `like` that is not the same: by itself a query goes
    on."""
    while (made := _drawn(draw, like)) == like:
        pass
    return made


def _drawn(draw: random.Random, like: Shape | None) -> Shape:
    slide = draw.randint(1, 5)
    made: dict[type, Shape] = {
        Passed: Passed(draw.randint(2, 9), draw.randint(0, 1)),
        Sums: Sums(slide * draw.randint(1, 6), slide),
        Totals: Totals(draw.randint(1, 40)),
        Levelled: Levelled(draw.randint(1, 4)),
    }
    return made[type(like)] if like is not None else draw.choice(list(made.values()))
