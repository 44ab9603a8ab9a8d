"""Random small worlds: sources, their rows, and queries as text from the supported grammar.

Values are drawn from small ranges, so that ties, equal tuples, empty windows and empty groups are frequent. Contract:
`random_case(choices)` returns a `RandomCase` whose `render()` is a `.cqltest` file without its `expect` blocks; the
same choices give the same case. `Choices` is drawn by Hypothesis (`hypothesis_choices`, shrinks toward the first
alternatives, which are the simplest) or by `random.Random` (`seeded_choices`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.testing.choices import Choices, seeded_choices
from penstock.testing.random.aggregate_lookups import Probing
from penstock.testing.random.aggregates import (
    approximate_aggregate,
    bound_of,
    combined_aggregate,
    ordered_aggregate,
    plain_aggregate,
)
from penstock.testing.random.cells import COMPARED, NUMERIC, ROUGH, VALUES
from penstock.testing.random.contract import RandomCase, RandomColumn, Table
from penstock.testing.random.flavours import FLAVOURS, Flavour
from penstock.testing.random.periods import temporal_case
from penstock.testing.random.relations import Relations
from penstock.testing.random.semi_and_outer_joins import Matching
from penstock.testing.random.windows import frequency, frequency_window, row_window, time_window
from penstock.testing.samples import STATEMENTS as SAMPLES
from penstock.types import MOST_TICKS

# --- Conditions of random joins that compare the sides by ranges.

Named = tuple[str, str]
#: Constants by type; the last of INT overflows.
_WIDTHS = {
    "INT": ("1", "0", "2", "2147483647"),
    "BIGINT": ("1", "2"),
    "DOUBLE": ("0.5", "1"),
    "DECIMAL(6,2)": ("1.25",),
}


def range_condition(choices: Choices, left: list[Named], right: list[Named]) -> str | None:
    """Return a range condition over (name, type) of both sides, sometimes with an equality; None where no types
    agree.
    """
    pairs = [(a, b) for a in left for b in right if a[1] == b[1] and a[1] in COMPARED]
    if not pairs:
        return None
    parts = [_range(choices, *choices.pick(pairs), right)]
    if choices.chance(30):
        parts.append(f"{' = '.join(name for name, _ in choices.pick(pairs))}")
    if choices.chance(20):
        parts.append(_range(choices, *choices.pick(pairs), right))
    return " AND ".join(parts)


def _range(choices: Choices, one: Named, other: Named, right: list[Named]) -> str:
    if choices.chance(50):
        one, other = other, one
    (x, kind), (y, _) = one, other
    if kind not in NUMERIC or choices.chance(25):
        return f"{x} {choices.pick(('<', '>=', '>', '<='))} {y}"
    less, more = (choices.pick(_WIDTHS[kind]) for _ in range(2))
    shape = choices.pick(("between", "both", "columns", "sum", "size", "difference"))
    if shape == "between":
        return f"{x} BETWEEN {y} - {less} AND {y} + {more}"
    if shape == "both":
        return f"{x} {choices.pick(('<', '<='))} {y} + {more} AND {y} {choices.pick(('<', '<='))} {x} + {less}"
    if shape == "size":
        return f"ABS({x} - {y}) {choices.pick(('<', '<='))} {more}"
    if shape == "difference":
        return f"{x} - {y} {choices.pick(('<', '>='))} {choices.pick(('', '-'))}{less}"
    if shape == "sum":
        return f"{x} + {less} {choices.pick(('<', '>='))} {y}"
    alike = [name for name, type_ in right if type_ == kind]
    return f"{x} BETWEEN {y} AND {choices.pick(alike)}"


# --- Random set operations and ORDER BY ... LIMIT, as text, for `worlds.py`.


def set_operations(choices: Choices, text: str, select: Callable[[], str]) -> str:
    """Combine `text` with one or two more of `select` by set operations, with or without parentheses."""
    for _ in range(choices.integer(1, 2)):
        operator = choices.pick(("EXCEPT ALL", "INTERSECT ALL", "EXCEPT", "INTERSECT", "UNION", "UNION ALL"))
        other = select()
        text = f"{text} {operator} {other}" if choices.chance(70) else f"{other} {operator} ({text})"
    return text


def first_rows(choices: Choices, columns: Sequence[tuple[str, str]]) -> str:
    """Return ORDER BY and LIMIT over `columns`, (name, type)."""
    keys: list[str] = []
    for _ in range(choices.integer(0, 2)):
        name, type_ = choices.pick(columns)
        key = choices.pick((name, str([n for n, _ in columns].index(name) + 1)))
        key = f"{name} % 2" if type_ == "INT" and choices.chance(20) else key
        keys.append(key + choices.pick(("", " DESC")) + choices.pick(("", " NULLS FIRST", " NULLS LAST")))
    text = f" ORDER BY {', '.join(keys)}" if keys else ""
    text += f" LIMIT {choices.integer(0, 4)}"
    return text + (f" OFFSET {choices.integer(0, 3)}" if choices.chance(30) else "")


# --- Random calls of the aggregates of `samples`. Part of the generators.

_WHOLE = ("INT", "BIGINT")
_NUMBERS = (*_WHOLE, "DOUBLE", "DECIMAL(6,2)")


def user_aggregate(choices: Choices, scope: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return a call over columns (name, type), and its type."""
    distinct = "DISTINCT " if choices.chance(15) else ""
    name, type_, taken, constant = choices.pick(
        (
            ("total", "BIGINT", _WHOLE, "1"),
            ("spread", "DOUBLE", _NUMBERS, "1"),
            # A double as text may be spelled in two ways for one value.
            ("joined", "STRING", tuple(t for _, t in scope if t != "DOUBLE"), "'a'"),
        )
    )
    argument = choices.pick([column for column, t in scope if t in taken] or [constant])
    return f"{name}({distinct}{argument})", type_


__all__ = [
    "FLAVOURS",
    "Choices",
    "Flavour",
    "RandomCase",
    "RandomColumn",
    "random_case",
    "seeded_choices",
]


_NEW_YEAR = dt.datetime(2013, 1, 1)
#: Beginnings of time in integer domains and in that of the calendar (False, True): before zero, and near the ends.
ORIGINS: dict[bool, tuple[int, ...]] = {
    False: (-7, -MOST_TICKS + 1, MOST_TICKS - 60, 2**31 - 9),
    True: (-(2013 - 1970) * 365 * 86_400, -2012 * 365 * 86_400),
}


def random_case(choices: Choices, flavour: Flavour = FLAVOURS[0], queries: Sequence[str] | None = None) -> RandomCase:
    """Return a case over up to four sources and two views.

    Args:
        queries: the names of its queries; None for one, `q`, and sometimes another, `p`.
    """
    if flavour.temporal and choices.chance(flavour.temporal):
        return temporal_case(choices, ("q",) if queries is None else queries)
    return _Maker(choices, flavour).case(queries)


class _Maker(Relations):
    def __init__(self, choices: Choices, flavour: Flavour) -> None:
        self.choices, self.flavour = choices, flavour
        self.result = RandomCase()
        self.tables: list[Table] = []
        self.names = 0
        self.internal = False
        self.calendar = choices.chance(flavour.calendar)
        # A wall clock has no ticks before 1970.
        self.result.origin = 0 if flavour.clock or choices.chance(75) else choices.pick(ORIGINS[self.calendar])
        self.slide: str | None = None
        self.bare = False
        self.restored = False
        #: alias -> whether rows of a stream carry their timestamp; relations have no entry.
        self.stamped: dict[str, bool] = {}

    def case(self, queries: Sequence[str] | None) -> RandomCase:
        if self.flavour.user:
            self.result.statements += [f"{statement};" for statement in SAMPLES]
        self.stream("S")
        if self.choices.chance(50):
            self.stream("T")
        if self.choices.chance(self.flavour.static):
            self.relation("R")
        if self.choices.chance(self.flavour.updates):
            self.updated("U")
        if self.choices.chance(self.flavour.keyed):
            self.keyed("K")
        if self.choices.chance(self.flavour.nrr):
            self.nrrs = [self.nrr(name) for name in (("N", "M") if self.choices.chance(30) else ("N",))]
        for number in range(self.choices.integer(0, 2) if self.choices.chance(self.flavour.nested) else 0):
            self.view(f"V{number}")
        if clocked := self.choices.chance(self.flavour.clock):
            self.clock()
        # The heartbeat of an idle stream depends on all streams it is joined with: with a clock there is one query.
        if queries is None:
            queries = ("q", "p") if not clocked and self.choices.chance(15) else ("q",)
        for name in queries:
            self.result.statements.append(f"CREATE QUERY {name} AS {self.query(root=True)[0]};")
        if self.result.inputs.get("R") and self.choices.chance(40):
            self.enlarge("R")
        return self.result

    def enlarge(self, name: str) -> None:
        """Give a static relation that is read once so many rows that joins with it use another algorithm."""
        text = "\n".join(s for s in self.result.statements if not s.startswith("CREATE RELATION"))
        views = [t.name for t in self.tables if t.name.startswith("V")]
        if len(re.findall(rf"\b{name}\b", text)) != 1 or any(len(re.findall(rf"\b{v}\b", text)) > 2 for v in views):
            return  # pairs of its own rows would be too many for the oracle
        (columns,) = (t.columns for t in self.tables if t.name == name)
        # The oracle forms all pairs, anew at every instant.
        many = not self.flavour.multi and self.choices.chance(8)
        size = self.choices.pick((1500, 5000)) if many else self.choices.pick((257, 300, 400))
        drawn = seeded_choices(self.choices.integer(0, 10**6))
        keys = [str(drawn.integer(-5, size)) if drawn.chance(95) else "NULL" for _ in range(size)]
        self.result.inputs[name] = [[key, *(drawn.pick(VALUES[c.type]) for c in columns[1:])] for key in keys]

    # --- sources ---

    def columns(self) -> tuple[RandomColumn, ...]:
        types = [self.choices.pick(tuple(VALUES)) for _ in range(self.choices.integer(0, 2))]
        return (RandomColumn("k", "INT"), *(RandomColumn(f"v{i}", t) for i, t in enumerate(types)))

    def row(self, columns: tuple[RandomColumn, ...]) -> list[str]:
        return [self.choices.pick(VALUES[c.type]) for c in columns]

    def tick(self, tick: int) -> str:
        tick += self.result.origin
        return (_NEW_YEAR + dt.timedelta(seconds=tick)).isoformat() + "Z" if self.calendar else str(tick)

    @property
    def ts_type(self) -> str:
        return "TIMESTAMP" if self.calendar else "BIGINT" if self.result.origin else "INT"

    def declare(self, kind: str, name: str, columns: Sequence[str], tail: str) -> None:
        self.result.statements.append(f"CREATE {kind} {name} ({', '.join(columns)}) FROM MEMORY (){tail};")

    def stream(self, name: str) -> None:
        columns, slack = self.columns(), 0
        ticks = self.ticks(self.choices.integer(0, 10))
        rows = [(tick, self.row(columns)) for tick in ticks]
        if self.choices.chance(self.flavour.disorder):
            slack = self.choices.integer(0, 4)
            late = self.choices.chance(30)
            rows = sorted(rows, key=lambda row: row[0] + self.choices.integer(0, slack + 3 if late else slack))
        self.result.inputs[name] = [[self.tick(tick), *cells] for tick, cells in rows]
        tail = f" TIMESTAMP BY ts{'' if self.calendar else ' UNIT SECOND'}"
        tail += f" ORDER WITHIN {slack} SECOND" if slack else ""
        tail += f" ADVANCE AT MOST {self.choices.integer(1, 5)} SECOND" if self.choices.chance(10) else ""
        declared = [f"ts {self.ts_type}", *(f"{c.name} {c.type}" for c in columns)]
        self.declare("STREAM", name, declared, tail)
        self.tables.append(Table(name, columns, True))

    def ticks(self, count: int) -> list[int]:
        tick, found = self.choices.integer(0, 3), []
        for _ in range(count):
            found.append(tick)
            tick += self.choices.pick((1, 0, 2, 5))
        return found

    def relation(self, name: str) -> None:
        columns = self.columns()
        self.result.inputs[name] = [self.row(columns) for _ in range(self.choices.integer(0, 4))]
        self.declare("RELATION", name, [f"{c.name} {c.type}" for c in columns], "")
        self.tables.append(Table(name, columns, False))

    def updated(self, name: str) -> None:
        columns = self.columns()
        held: list[list[str]] = []
        rows: list[list[str]] = []
        for tick in self.ticks(self.choices.integer(0, 8)):
            if held and self.choices.chance(40):
                cells, op = held.pop(self.choices.integer(0, len(held) - 1)), "-"
            elif self.choices.chance(8):
                cells, op = self.row(columns), "-"  # most often no such row exists
            else:
                cells, op = self.row(columns), "+"
                held.append(cells)
            rows.append([self.tick(tick), op, *cells])
        self.result.inputs[name] = rows
        declared = [f"ts {self.ts_type}", "op STRING"]
        tail = f" TIMESTAMP BY ts{'' if self.calendar else ' UNIT SECOND'} OPERATION BY op"
        self.declare("RELATION", name, declared + [f"{c.name} {c.type}" for c in columns], tail)
        self.tables.append(Table(name, columns, False))

    def view(self, name: str) -> None:
        text, columns, is_stream = self.query(root=False)
        if any(c.type == ROUGH for c in columns):
            return
        self.result.statements.append(f"CREATE VIEW {name} AS {text};")
        self.tables.append(Table(name, columns, is_stream))

    # --- queries ---

    def query(self, root: bool, depth: int = 2) -> tuple[str, tuple[RandomColumn, ...], bool]:
        """Return a query's text, its columns, and whether it is certainly a stream (an operator makes it one)."""
        if self.choices.chance(self.flavour.kept):
            return self.kept(depth)
        if self.choices.chance(self.flavour.frequency // 2):
            return self.picked(depth)
        r2s = self.choices.pick(("ISTREAM", "DSTREAM", "RSTREAM")) if self.choices.chance(self.flavour.r2s) else None
        text, columns = self.select(None, root and r2s is None, depth)
        if self.choices.chance(self.flavour.union) and not any(c.type == ROUGH for c in columns):
            other, _ = self.select(columns, False, depth)
            text = f"{text} UNION ALL {other}"
        elif self.choices.chance(self.flavour.sets) and not any(c.type == ROUGH for c in columns):
            text = set_operations(self.choices, text, lambda: self.select(columns, False, depth)[0])
        elif r2s and self.choices.chance(20) and "SELECT" not in text.removeprefix("SELECT").partition(" FROM ")[0]:
            verb = "SELECT DISTINCT " if text.startswith("SELECT DISTINCT ") else "SELECT "
            items, _, rest = text.removeprefix(verb).partition(" FROM ")
            return f"{verb}{r2s}({items}) FROM {rest}", columns, True
        if self.choices.chance(self.flavour.limit) and not any(c.type == ROUGH for c in columns):
            text += first_rows(self.choices, [(c.name, c.type) for c in columns])
        return (f"{r2s}({text})" if r2s else text), columns, r2s is not None

    def picked(self, depth: int) -> tuple[str, tuple[RandomColumn, ...], bool]:
        """Return a SELECT with FREQUENCY over its answer stream."""
        streams = len(self.stamped)
        text, columns = self.select(None, False, depth)
        if len(self.stamped) == streams:
            return text, columns, False  # relations alone have no instants
        verb = "SELECT DISTINCT " if text.startswith("SELECT DISTINCT ") else "SELECT "
        items, _, rest = text.removeprefix(verb).partition(" FROM ")
        if "SELECT" in items:
            return text, columns, False
        if self.choices.chance(25):
            items = f"{self.choices.pick(('ISTREAM', 'RSTREAM', 'DSTREAM'))}({items})"
        return f"{verb}{items} [{frequency(self.choices, [c.name for c in columns])}] FROM {rest}", columns, True

    def kept(self, depth: int) -> tuple[str, tuple[RandomColumn, ...], bool]:
        """Return WSTREAM(query)[window], or a query with RESTORE whose windows have one SLIDE."""
        plain, self.bare = self.flavour, True
        self.restored = restored = self.choices.chance(50)
        if restored:
            self.slide = f" SLIDE {self.choices.integer(2, 5)} SECOND"
            self.slide += f" ALIGN TO {self.choices.integer(1, 3)} SECOND" if self.choices.chance(15) else ""
        self.flavour = replace(plain, kept=0, nested=0, distinct=plain.distinct if restored else 0)
        text, columns = self.select(None, False, 1)
        if self.choices.chance(self.flavour.union):
            text = f"{text} UNION ALL {self.select(columns, False, 1)[0]}"
        self.flavour, self.slide, self.bare = plain, None, False
        if restored:
            return f"{self.choices.pick(('ISTREAM', 'RSTREAM'))} RESTORE({text})", columns, True
        return f"WSTREAM({text}){self.window(columns) or ' [RANGE UNBOUNDED]'}", columns, False

    def select(
        self, like: tuple[RandomColumn, ...] | None, rough: bool, depth: int
    ) -> tuple[str, tuple[RandomColumn, ...]]:
        internal = self.choices.chance(self.flavour.internal)
        source = self.internal_source if internal else lambda: self.source(depth)
        where: list[str] = []
        beside: tuple[RandomColumn, ...] = ()
        if many := bool(self.flavour.probe) and not internal and self.choices.chance(self.flavour.probe):
            scope, from_text, where = Probing(self).joined(depth)
        elif many := not internal and self.choices.chance(self.flavour.multi):
            scope, from_text, where = self.multi_join(depth)
        elif self.nrrs and self.choices.chance(70):
            scope, beside, from_text, where = self.with_nrr()
        else:
            scope, from_text = source()
        self.internal = self.internal or internal
        if not many and self.choices.chance(self.flavour.join):
            more, right = source()
            condition = self.join_condition(scope, more)
            # After a comma an outer join would apply to the NON RETROACTIVE relation alone.
            if not beside and self.choices.chance(self.flavour.outer):
                from_text = f"{from_text} {Matching(self).outer_join(scope, more, right, condition)}"
            elif condition and self.choices.chance(50):
                from_text = f"{from_text} JOIN {right} ON {condition}"
            else:
                from_text, where = f"{from_text}, {right}", where + ([condition] if condition else [])
            scope = scope + more
        plain = not (internal or many or beside) and bool(Matching(self).whole_numbers(scope))
        if plain and self.choices.chance(self.flavour.subquery // 5):
            scope, from_text = Matching(self).lateral(scope, from_text)
        scope = scope + beside
        if self.choices.chance(30):
            where.append(self.predicate(scope))
        if self.choices.chance(self.flavour.subquery):
            where.append(Matching(self).condition(scope, depth))
        tail = f" WHERE {' AND '.join(where)}" if where else ""
        if like is None and self.choices.chance(self.flavour.group):
            items, columns, group = self.grouped(scope, rough)
            tail += group
        else:
            items, columns = self.items(scope, like)
        unique = self.choices.chance(self.flavour.distinct) and not any(c.type == ROUGH for c in columns)
        unique = unique and not self.internal  # results of INTERNAL windows cannot be under DISTINCT
        return f"SELECT {'DISTINCT ' if unique else ''}{', '.join(items)} FROM {from_text}{tail}", columns

    def source(self, depth: int) -> tuple[tuple[RandomColumn, ...], str]:
        """Return columns as `alias.name`, and the text of one FROM item."""
        self.names += 1
        alias = f"x{self.names}"
        if depth > 1 and self.choices.chance(self.flavour.nested):
            text, columns, is_stream = self.query(False, depth - 1)
            name = f"({text})"
        else:
            # A query with RESTORE has windows of one SLIDE, so no views with windows of their own, and WSTREAM none
            # with DISTINCT; the first source of a query with RESTORE is a stream.
            inputs = [t for t in self.tables if self.slide is None or not t.name.startswith("V")]
            bare = [t for t in inputs if t.is_stream or (not self.restored and t.name in "RU")]
            table = self.choices.pick(bare if self.bare else self.tables)
            self.restored = False
            name, columns, is_stream = table.name, table.columns, table.is_stream
        window = self.window(columns) if is_stream else ""
        if is_stream and not name.startswith("(") and self.choices.chance(self.flavour.sample):
            window += f" SAMPLE({self.choices.pick((50, 80))})"
        if is_stream:
            self.stamped[alias] = name in ("S", "T")
        text = f"{name} AS {alias}{window}" if window and self.choices.chance(20) else f"{name}{window} AS {alias}"
        return tuple(RandomColumn(f"{alias}.{c.name}", c.type) for c in columns), text

    def window(self, columns: tuple[RandomColumn, ...]) -> str:
        if self.slide is not None:
            rows = self.choices.chance(self.flavour.rows)
            extent = f"ROWS {self.choices.integer(1, 4)}" if rows else f"RANGE {self.choices.integer(1, 6)} SECOND"
            return f" [{extent}{self.slide}]"
        if self.choices.chance(self.flavour.frequency):
            window = frequency_window(self.choices, [c.name for c in columns])
            if self.choices.chance(self.flavour.window_where):
                extent, comma, rest = window[2:-1].rpartition(", FREQUENCY")
                window = f" [{extent}{comma}{rest} WHERE {self.predicate(columns)}]"
            return window
        counts = self.choices.chance(self.flavour.rows)
        window = row_window(self.choices, [c.name for c in columns]) if counts else time_window(self.choices)
        if window.startswith(" [") and self.choices.chance(self.flavour.window_where):
            window = f"{window[:-1]} WHERE {self.predicate(columns)}]"
        return window

    def internal_source(self) -> tuple[tuple[RandomColumn, ...], str]:
        """Return one FROM item of a SELECT over INTERNAL windows: a stream with such a window, or a static relation."""
        self.names += 1
        alias = f"x{self.names}"
        # The first source of a query with RESTORE is a stream.
        names = ("S", "T") if self.restored else ("S", "T", "R")
        table = self.choices.pick([t for t in self.tables if t.name in names])
        self.restored = False
        window = self.window(table.columns).strip(" []") if table.is_stream else ""
        text = f"{table.name} [{window} INTERNAL] AS {alias}" if window else f"{table.name} AS {alias}"
        return tuple(RandomColumn(f"{alias}.{c.name}", c.type) for c in table.columns), text

    def join_condition(self, left: tuple[RandomColumn, ...], right: tuple[RandomColumn, ...]) -> str | None:
        if self.choices.chance(self.flavour.band):
            return range_condition(self.choices, *([(c.name, c.type) for c in side] for side in (left, right)))
        pairs = [(a, b) for a in left for b in right if a.type == b.type]
        if not pairs or self.choices.chance(5):
            return None
        one, other = self.choices.pick(pairs)
        condition = self.equality(one.name, other.name)
        if self.choices.chance(20):
            one, other = self.choices.pick(pairs)
            condition += f" AND {one.name} {self.choices.pick(('<=', '<>', '=', '<=>'))} {other.name}"
        return condition

    def equality(self, one: str, other: str) -> str:
        """Return a condition that two columns are equal, sometimes NULL like NULL."""
        if not self.choices.chance(25):
            return f"{one} = {other}"
        same = ("{0} <=> {1}", "{1} IS NOT DISTINCT FROM {0}", "({0} = {1} OR ({1} IS NULL AND {0} IS NULL))")
        return self.choices.pick(same).format(one, other)

    def multi_join(self, depth: int) -> tuple[tuple[RandomColumn, ...], str, list[str]]:
        """Return (columns, FROM, WHERE) of three to five inputs joined on one attribute, in a chain or as a star,
        sometimes with a band.
        """
        shape = self.choices.pick(("common", "chain", "star"))
        found = [self.source(depth) for _ in range(self.choices.pick((3, 4, 5)))]
        text, where = found[0][1], []
        for n, (scope, source) in enumerate(found[1:], 1):
            others = found[n - 1][0] if shape == "chain" else found[0][0]
            pairs = [(a, b) for a in others for b in scope if a.type == b.type]
            condition = "1 = 1"
            if pairs:
                one, other = pairs[0] if shape == "common" else self.choices.pick(pairs)
                condition = self.equality(one.name, other.name)
            if band := self.band(tuple(c for columns, _ in found[:n] for c in columns), scope):
                condition += f" AND {band}"
            if self.choices.chance(50):
                text = f"{text} JOIN {source} ON {condition}"
            else:
                text = f"{text} CROSS JOIN {source}"
                where.append(condition)
        return tuple(c for columns, _ in found for c in columns), text, where

    def band(self, left: tuple[RandomColumn, ...], right: tuple[RandomColumn, ...]) -> str | None:
        pairs = [(a, b) for a in left for b in right if a.type == b.type == "INT"]
        if not pairs or not self.choices.chance(25):
            return None
        one, other = self.choices.pick(pairs)
        return f"{one.name} BETWEEN {other.name} - 1 AND {other.name} + {self.choices.integer(0, 2)}"

    def items(
        self, scope: tuple[RandomColumn, ...], like: tuple[RandomColumn, ...] | None
    ) -> tuple[list[str], tuple[RandomColumn, ...]]:
        if like is None:
            count = self.choices.integer(1, 3)
            chosen = [self.expression(scope) for _ in range(count)]
            if self.choices.chance(self.flavour.subquery // 3):
                chosen.append(Matching(self).value(scope))
        else:
            chosen = [self.of_type(scope, column.type) for column in like]
        columns = tuple(RandomColumn(f"c{i}", type_) for i, (_, type_) in enumerate(chosen))
        return [f"{text} AS c{i}" for i, (text, _) in enumerate(chosen)], columns

    def expression(self, scope: tuple[RandomColumn, ...]) -> tuple[str, str]:
        column = self.choices.pick(scope)
        if self.choices.chance(self.flavour.user // 3) and column.type in ("BIGINT", "STRING"):
            return f"{'twice' if column.type == 'BIGINT' else 'shout'}({column.name})", column.type
        if column.type == "INT" and self.choices.chance(25):
            return self.choices.pick((f"{column.name} + 1", f"{column.name} % 2", f"coalesce({column.name}, 7)")), "INT"
        if column.type == "STRING" and self.choices.chance(25):
            return f"upper({column.name})", "STRING"
        return column.name, column.type

    def of_type(self, scope: tuple[RandomColumn, ...], type_: str) -> tuple[str, str]:
        fitting = [c.name for c in scope if c.type == type_]
        return (self.choices.pick(fitting) if fitting else f"CAST(NULL AS {type_})"), type_

    def grouped(self, scope: tuple[RandomColumn, ...], rough: bool) -> tuple[list[str], tuple[RandomColumn, ...], str]:
        keys = [self.expression(scope) for _ in range(self.choices.pick((1, 0, 2)))]
        keys = list(dict(keys).items())
        calls = [self.aggregate(scope, rough) for _ in range(self.choices.integer(1, 3))]
        chosen = keys + calls
        columns = tuple(RandomColumn(f"c{i}", type_) for i, (_, type_) in enumerate(chosen))
        tail = f" GROUP BY {', '.join(text for text, _ in keys)}" if keys else ""
        if self.choices.chance(20):
            tail += f" HAVING COUNT(*) {self.choices.pick(('> 1', '< 2', '= 0'))}"
        elif (plain := tuple(RandomColumn(*key) for key in keys if key in [(c.name, c.type) for c in scope])) and (
            self.choices.chance(self.flavour.subquery // 2)
        ):
            tail += f" HAVING {Matching(self).condition(plain, 1)}"
        return [f"{text} AS c{i}" for i, (text, _) in enumerate(chosen)], columns, tail

    def aggregate(self, scope: tuple[RandomColumn, ...], rough: bool) -> tuple[str, str]:
        loose = ROUGH if rough else None
        # Flavours without these aggregates make no choice here, so that their seeds give the cases that they gave.
        if self.flavour.combined and self.choices.chance(self.flavour.combined):
            call, type_ = combined_aggregate(self.choices, scope, loose, lambda: self.predicate(scope))
        elif self.flavour.approximate and self.choices.chance(self.flavour.approximate):
            call, type_ = approximate_aggregate(self.choices, scope, loose)
        elif self.choices.chance(self.flavour.ordered):
            aliases = {c.name.partition(".")[0] for c in scope}
            timed = {self.stamped[alias] for alias in aliases if alias in self.stamped} == {True}
            call, type_ = ordered_aggregate(self.choices, scope, timed, loose)
        elif self.choices.chance(self.flavour.user):
            call, type_ = user_aggregate(self.choices, [(c.name, c.type) for c in scope])
        else:
            return plain_aggregate(self.choices, scope, loose, lambda: self.predicate(scope))
        call = f"{call} FILTER (WHERE {self.predicate(scope)})" if self.choices.chance(15) else call
        if loose and self.flavour.approximate and self.choices.chance(30) and (bound := bound_of(self.choices, call)):
            return bound, loose
        return call, type_

    def comparable(self, left: tuple[RandomColumn, ...], right: tuple[RandomColumn, ...]) -> list[tuple[str, str]]:
        """Return names of two columns, one of each side, that have one type with an order."""
        return [(a.name, b.name) for a in left for b in right if a.type == b.type and a.type in COMPARED]

    def predicate(self, scope: tuple[RandomColumn, ...]) -> str:
        column = self.choices.pick(scope)
        if self.choices.chance(15):
            return f"{column.name} IS {self.choices.pick(('NOT NULL', 'NULL'))}"
        if column.type == "BOOLEAN":
            return column.name
        return f"{column.name} {self.choices.pick(('>', '=', '<=', '<>'))} {COMPARED[column.type]}"
