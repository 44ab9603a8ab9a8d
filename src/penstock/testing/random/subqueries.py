"""Random subqueries that read enclosing rows, at any depth and position, as text.

All values are whole numbers, so that any column may be compared with any other. The text is SQL; with `plain`,
constructs that DuckDB reads differently (rows of values under IN) are written out. `lateral`: queries in FROM read the
sources before them also inside of subqueries, where DuckDB has NULL for a COUNT of no rows, and may be set operations;
set operations have aggregates of all rows, for which DuckDB returns no row where there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.testing.choices import Choices

#: Names of whole-number columns.
Names = tuple[str, ...]
_COMPARISONS = ("=", "<", "<>", ">=", "=", ">", "<=")
_JOINED = {"ANY": " OR ", "ALL": " AND "}


def rows_compared(sign: str, ones: Sequence[str], others: Sequence[str]) -> str:
    """Return a comparison of two rows of values, written out with comparisons of values."""
    (a, b), (c, d) = ones, others
    if sign in ("=", "<>"):
        return f"({'NOT ' if sign == '<>' else ''}({a} = {c} AND {b} = {d}))"
    return f"({a} {sign[0]} {c} OR ({a} = {c} AND {b} {sign} {d}))"


@dataclass(frozen=True)
class RandomSubqueries:
    """A generator of subqueries. `source` returns the columns and the text of one FROM item, each time under a new
    alias.
    """

    choices: Choices
    source: Callable[[], tuple[Names, str]]
    plain: bool = False
    lateral: bool = True

    def predicate(self, scopes: Sequence[Names], depth: int) -> str:
        """Return a condition over the innermost of `scopes` that contains a subquery."""
        form = self.choices.pick(
            (self._exists, self._member, self._compared, self._quantified, self._listed, self._row, self._one)
        )
        text = form(scopes, depth)
        shape = self.choices.pick(("{}", "NOT {}", "({} OR {other})", "({} IS NULL)", "NOT ({} AND {other})"))
        return shape.format(text, other=self._comparison(scopes))

    def value(self, scopes: Sequence[Names], depth: int) -> tuple[str, str]:
        """Return a subquery as a value, and its type."""
        if self.choices.chance(30):
            return f"({self.predicate(scopes, depth)})", "BOOLEAN"
        text, type_ = self._scalar(scopes, depth)
        if type_ == "INT" and self.choices.chance(25):
            return f"CASE WHEN {self.predicate(scopes, 1)} THEN {text} ELSE {self._operand(scopes)} END", type_
        return text, type_

    # --- predicates

    def _exists(self, scopes: Sequence[Names], depth: int) -> str:
        return f"EXISTS ({self.query(scopes, depth)})"

    def _member(self, scopes: Sequence[Names], depth: int) -> str:
        return f"{self._operand(scopes)} {self.choices.pick(('IN', 'NOT IN'))} ({self.query(scopes, depth)})"

    def _compared(self, scopes: Sequence[Names], depth: int) -> str:
        return f"{self._operand(scopes)} {self.choices.pick(_COMPARISONS)} {self._scalar(scopes, depth)[0]}"

    def _quantified(self, scopes: Sequence[Names], depth: int) -> str:
        sign, word = self.choices.pick(_COMPARISONS), self.choices.pick(("ANY", "ALL"))
        return f"{self._operand(scopes)} {sign} {word} ({self.query(scopes, depth)})"

    def _listed(self, scopes: Sequence[Names], depth: int) -> str:
        """Return a comparison with ANY or ALL of a list."""
        sign, word = self.choices.pick(_COMPARISONS), self.choices.pick(("ANY", "ALL"))
        one, others = self._operand(scopes), [self._operand(scopes) for _ in range(1 + self.choices.integer(0, 2))]
        if not self.plain:
            return f"{one} {sign} {word} ({', '.join(others)})"
        return f"({_JOINED[word].join(f'{one} {sign} {other}' for other in others)})"

    def _row(self, scopes: Sequence[Names], depth: int) -> str:
        """Return a row of values under IN, ANY or ALL."""
        columns, text = self.source()
        where = self._where([columns, *scopes], depth)
        ones = (self._operand(scopes), self._operand(scopes))
        others = (self.choices.pick(columns), self.choices.pick(columns))
        sign, word = self.choices.pick(_COMPARISONS), self.choices.pick(("IN", "ANY", "ALL"))
        if not self.plain:
            compared = word if word == "IN" else f"{sign} {word}"
            return f"({ones[0]}, {ones[1]}) {compared} (SELECT {others[0]}, {others[1]} FROM {text} WHERE {where})"
        test = rows_compared("=" if word == "IN" else sign, ones, others)
        test, found, missed = (f"NOT {test}", "FALSE", "TRUE") if word == "ALL" else (test, "TRUE", "FALSE")
        rows = f"EXISTS (SELECT 1 FROM {text} WHERE {where} AND ({test})"
        return f"(CASE WHEN {rows}) THEN {found} WHEN {rows} IS NULL) THEN NULL ELSE {missed} END)"

    def _one(self, scopes: Sequence[Names], depth: int) -> str:
        """Return a row of values compared with the one row of an aggregate."""
        columns, text = self.source()
        rest = f"FROM {text} WHERE {self._where([columns, *scopes], depth)}"
        ones = (self._operand(scopes), self._operand(scopes))
        calls = (self._aggregate([columns, *scopes])[0], self._aggregate([columns, *scopes])[0])
        sign = self.choices.pick(_COMPARISONS)
        if not self.plain:
            return f"({ones[0]}, {ones[1]}) {sign} (SELECT {calls[0]}, {calls[1]} {rest})"
        return rows_compared(sign, ones, (f"(SELECT {calls[0]} {rest})", f"(SELECT {calls[1]} {rest})"))

    # --- queries

    def _scalar(self, scopes: Sequence[Names], depth: int) -> tuple[str, str]:
        """Return a subquery of at most one row, and its type."""
        columns, text = self._from(scopes, depth)
        where = self._where([columns, *scopes], depth)
        column = self.choices.pick(columns)
        if self.choices.chance(30):
            order = self.choices.pick((f"{column} NULLS FIRST", f"{column} DESC NULLS LAST"))
            skip = " OFFSET 1" if self.choices.chance(20) else ""
            return f"(SELECT {column} FROM {text} WHERE {where} ORDER BY {order} LIMIT 1{skip})", "INT"
        call, type_ = self._aggregate([columns, *scopes])
        having = f" HAVING {self._having([columns, *scopes])}" if self.choices.chance(20) else ""
        return f"(SELECT {call} FROM {text} WHERE {where}{having})", type_

    def query(self, scopes: Sequence[Names], depth: int) -> str:
        """Return a query of one column."""
        if self.choices.chance(15):
            operator = self.choices.pick(("UNION", "EXCEPT", "INTERSECT", "UNION ALL", "EXCEPT ALL", "INTERSECT ALL"))
            # DuckDB loses the one row of an aggregate of no rows under a set operation.
            left = self._select(scopes, depth, whole=self.lateral and operator not in ("EXCEPT", "EXCEPT ALL"))
            return f"{left} {operator} {self._select(scopes, depth, whole=self.lateral)}"
        if self.choices.chance(12):
            return (
                f"SELECT g.c FROM ({self._select(scopes, depth)}) AS g(c) WHERE {self._comparison([('g.c',), *scopes])}"
            )
        return self._select(scopes, depth)

    def _select(self, scopes: Sequence[Names], depth: int, whole: bool = True) -> str:
        columns, text = self._from(scopes, depth)
        inside = [columns, *scopes]
        where = self._where(inside, depth)
        column = self.choices.pick(columns)
        item = self.choices.pick((column, column, f"{column} + {self._operand(inside)}"))
        form = self.choices.pick(("plain", "distinct", "grouped", "whole" if whole else "plain", "first"))
        if form == "distinct":
            return f"SELECT DISTINCT {item} FROM {text} WHERE {where}"
        if form == "grouped":
            call = self.choices.pick((column, self._aggregate(inside)[0]))
            having = f" HAVING {self._having(inside)}" if self.choices.chance(40) else ""
            return f"SELECT {call} FROM {text} WHERE {where} GROUP BY {column}{having}"
        if form == "whole":
            return f"SELECT {self._aggregate(inside)[0]} FROM {text} WHERE {where}"
        if form == "first":
            order = self.choices.pick((f"{column} NULLS FIRST", f"{column} DESC NULLS LAST"))
            limit = f"LIMIT {self.choices.integer(1, 2)}" + (" OFFSET 1" if self.choices.chance(25) else "")
            return f"(SELECT {column} FROM {text} WHERE {where} ORDER BY {order} {limit})"
        return f"SELECT {item} FROM {text} WHERE {where}"

    def _from(self, scopes: Sequence[Names], depth: int) -> tuple[Names, str]:
        columns, text = self.source()
        if self.choices.chance(20):
            more, other = self.source()
            kind = self.choices.pick(("JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN"))
            on = f"{self.choices.pick(columns)} = {self.choices.pick(more)}"
            # DuckDB does not support references to enclosing rows in the ON of an outer join.
            if kind == "JOIN" and self.choices.chance(40):
                on += f" AND {self._comparison([columns + more, *scopes])}"
            columns, text = columns + more, f"{text} {kind} {other} ON {on}"
        if self.lateral and depth > 0 and self.choices.chance(15):
            columns, text = self.beside(columns, text, scopes, depth - 1)
        return columns, text

    def beside(self, columns: Names, text: str, scopes: Sequence[Names], depth: int) -> tuple[Names, str]:
        """Return FROM with one more query, which reads the columns before it."""
        alias = f"d{len(scopes)}"
        word = "LATERAL " if self.choices.chance(60) or self.plain else ""
        body = (self.query if self.lateral else self._select)([columns, *scopes], depth)
        query = f"{word}({body}) AS {alias}(c)"
        form = self.choices.pick(
            (", {query}", " CROSS JOIN {query}", " JOIN {query} ON {on}", " LEFT JOIN {query} ON {on}")
        )
        names = (*columns, f"{alias}.c")
        on = "TRUE" if self.choices.chance(50) else self._comparison([names])
        return names, text + form.format(query=query, on=on)

    def _where(self, scopes: Sequence[Names], depth: int) -> str:
        parts = [self._comparison(scopes) for _ in range(self.choices.pick((1, 1, 2)))]
        if depth > 1 and self.choices.chance(50):
            parts.append(self.predicate(scopes, depth - 1))
        if len(parts) > 1 and self.choices.chance(15):
            return f"({' OR '.join(parts)})"
        return " AND ".join(parts)

    # --- values

    def _comparison(self, scopes: Sequence[Names]) -> str:
        """Return a column of the innermost scope compared with any visible value, most often one of an enclosing
        row.
        """
        column = self.choices.pick(scopes[0])
        if self.choices.chance(8):
            return f"{column} IS {self.choices.pick(('NOT NULL', 'NULL'))}"
        around = [name for names in scopes[1:] for name in names]
        other = self.choices.pick(around) if around and self.choices.chance(75) else self._operand(scopes)
        sum_ = f" + {self.choices.integer(0, 1)}" if self.choices.chance(15) else ""
        return f"{column} {self.choices.pick(_COMPARISONS)} {other}{sum_}"

    def _operand(self, scopes: Sequence[Names]) -> str:
        if self.choices.chance(10):
            return str(self.choices.integer(0, 3))
        names = scopes[0] if self.choices.chance(70) else [name for names in scopes for name in names]
        return self.choices.pick(names)

    def _aggregate(self, scopes: Sequence[Names]) -> tuple[str, str]:
        column = self.choices.pick(scopes[0])
        around = self.choices.pick(scopes[-1])
        options = (
            ("COUNT(*)", "BIGINT"),
            (f"MAX({column})", "INT"),
            (f"MIN({column} + {around})", "INT"),
            (f"COUNT({column})", "BIGINT"),
            (f"SUM({column})", "BIGINT"),
            (f"COUNT(DISTINCT {column})", "BIGINT"),
        )
        return self.choices.pick(options)

    def _having(self, scopes: Sequence[Names]) -> str:
        around = [name for names in scopes[1:] for name in names] or ["1"]
        return f"COUNT(*) {self.choices.pick(_COMPARISONS)} {self.choices.pick(around)}"
