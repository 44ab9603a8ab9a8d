"""Outer joins and subqueries for the random queries of `worlds.py`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.testing.random.contract import QueryMaker, RandomColumn
from penstock.testing.random.subqueries import Names, RandomSubqueries


@dataclass(frozen=True)
class Matching:
    """Joins and conditions that test for partners; `maker` draws their parts."""

    maker: QueryMaker

    def outer_join(
        self, left: tuple[RandomColumn, ...], right: tuple[RandomColumn, ...], text: str, condition: str | None
    ) -> str:
        """Return `LEFT JOIN text ON ...`, also without an equality and with conditions on one side."""
        kind = self.maker.choices.pick(("LEFT", "FULL", "RIGHT"))
        parts = [condition] if condition else []
        if self.maker.choices.chance(25):
            parts.append(self.maker.predicate(self.maker.choices.pick((right, left))))
        if self.maker.choices.chance(15):
            parts = [self.inequality(left, right) or self.maker.predicate(right)]
        return f"{kind} JOIN {text} ON {' AND '.join(parts) or 'TRUE'}"

    def inequality(self, left: tuple[RandomColumn, ...], right: tuple[RandomColumn, ...]) -> str | None:
        pairs = self.maker.comparable(left, right)
        one, other = self.maker.choices.pick(pairs) if pairs else ("", "")
        return f"{one} {self.maker.choices.pick(('<', '<>', '>='))} {other}" if pairs else None

    def condition(self, scope: tuple[RandomColumn, ...], depth: int) -> str:
        """Return a condition that contains a subquery at any position."""
        if (names := self.whole_numbers(scope)) and self.maker.choices.chance(12):
            return self.correlated().predicate([names], 1)
        text = self.maker.choices.pick((self.exists, self.membership, self.compared))(scope, depth)
        shape = self.maker.choices.pick(("{}", "NOT {}", "({} OR {other})", "({} IS NULL)", "NOT ({} AND {other})"))
        return shape.format(text, other=self.maker.predicate(scope))

    def value(self, scope: tuple[RandomColumn, ...]) -> tuple[str, str]:
        """Return a subquery in the select list (a scalar one, or a condition as a value) and its type."""
        if (names := self.whole_numbers(scope)) and self.maker.choices.chance(10):
            return self.correlated().value([names], 1)
        if self.maker.choices.chance(40):
            return self.maker.choices.pick((self.exists, self.membership))(scope, 1), "BOOLEAN"
        columns, text, where = self.inner(scope, 70)
        tail = f" WHERE {' AND '.join(where)}" if where else ""
        column = self.maker.choices.pick(columns)
        call, type_ = self.maker.choices.pick((("COUNT(*)", "BIGINT"), (f"MAX({column.name})", column.type)))
        return f"(SELECT {call} FROM {text}{tail})", type_

    def lateral(self, scope: tuple[RandomColumn, ...], text: str) -> tuple[tuple[RandomColumn, ...], str]:
        """Return FROM with one more query, which reads the columns before it."""
        names, text = self.correlated().beside(self.whole_numbers(scope), text, [], 1)
        return (*scope, RandomColumn(names[-1], "INT")), text

    def whole_numbers(self, scope: tuple[RandomColumn, ...]) -> Names:
        return tuple(c.name for c in scope if c.type == "INT")

    def correlated(self) -> RandomSubqueries:
        """Return a maker of subqueries that read enclosing rows anywhere; their FROM items have whole numbers."""

        def source() -> tuple[Names, str]:
            columns, text = self.maker.source(1)
            names = self.whole_numbers(columns)
            if names:
                return names, text
            self.maker.names += 1
            alias = f"x{self.maker.names}"
            return (f"{alias}.n",), f"(SELECT COUNT(*) AS n FROM {text}) AS {alias}"

        return RandomSubqueries(self.maker.choices, source)

    def inner(
        self, scope: tuple[RandomColumn, ...], correlated: int
    ) -> tuple[tuple[RandomColumn, ...], str, list[str]]:
        """Return the columns, FROM and correlation of a subquery."""
        columns, text = self.maker.source(1)
        where: list[str] = []
        if self.maker.choices.chance(correlated):
            pairs = [(a.name, b.name) for a in columns for b in scope if a.type == b.type]
            if pairs:
                one, other = self.maker.choices.pick(pairs)
                where.append(self.maker.equality(one, other))
        return columns, text, where

    def exists(self, scope: tuple[RandomColumn, ...], depth: int) -> str:
        columns, text, where = self.inner(scope, 85)
        if self.maker.choices.chance(30) and (band := self.inequality(scope, columns)):
            where.append(band)
        if self.maker.choices.chance(25):
            where.append(self.maker.predicate(columns))
        if depth > 1 and self.maker.choices.chance(15):
            where.append(self.condition(columns, 1))
        tail = f" WHERE {' AND '.join(where)}" if where else ""
        return f"EXISTS (SELECT {self.maker.choices.pick(('*', '1'))} FROM {text}{tail})"

    def membership(self, scope: tuple[RandomColumn, ...], depth: int) -> str:
        columns, text, where = self.inner(scope, 35)
        pairs = [(a.name, b.name) for a in scope for b in columns if a.type == b.type]
        operand, item = self.maker.choices.pick(pairs) if pairs else ("1", "NULL")
        if pairs and self.maker.choices.chance(40):
            more = [self.maker.choices.pick(pairs) for _ in range(self.maker.choices.pick((1, 2, 3)))]
            operand = f"({', '.join((operand, *(one for one, _ in more)))})"
            item = ", ".join((item, *(other for _, other in more)))
        if self.maker.choices.chance(25):
            where.append(self.maker.predicate(columns))
        tail = f" WHERE {' AND '.join(where)}" if where else ""
        return f"{operand} {self.maker.choices.pick(('IN', 'NOT IN'))} (SELECT {item} FROM {text}{tail})"

    def compared(self, scope: tuple[RandomColumn, ...], depth: int) -> str:
        columns, text, where = self.inner(scope, 60)
        one = self.maker.choices.pick(scope)
        call = self.maker.choices.pick(("COUNT(*)", f"COUNT({columns[0].name})", "MAX", "MIN"))
        if call in ("MAX", "MIN"):
            fitting = [c.name for c in columns if c.type == one.type]
            call = f"{call}({self.maker.choices.pick(fitting)})" if fitting else "COUNT(*)"
        left = "1" if call.startswith("COUNT") else one.name
        having = " HAVING COUNT(*) <> 1" if self.maker.choices.chance(15) else ""
        tail = f" WHERE {' AND '.join(where)}" if where else ""
        return f"{left} {self.maker.choices.pick(('<=', '=', '<>'))} (SELECT {call} FROM {text}{tail}{having})"
