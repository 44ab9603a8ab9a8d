"""Random queries over periods: declared and in FROM, lists of columns, windows that periods decide, CLOSED, sessions.

Ticks and values are few, so that periods touch, bridge, split, and leave gaps of one tick.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.testing.choices import Choices
from penstock.testing.random.contract import RandomCase

_UNIT = "SECOND"
#: Aggregates of sessions: those that combine, with NULLs and selections, and those that need the elements.
_CALLS = (
    "COUNT(*)",
    "SUM(v)",
    "MIN(at)",
    "MAX(a)",
    "AVG(b)",
    "SUM(a + v)",
    "MAX(b) FILTER (WHERE v > 0)",
    "COUNT(b)",
    "MAX(k)",
    "COUNT(DISTINCT v)",
    "SUM(LENGTH(VALID(s)))",
    "MIN(CAST(a AS DOUBLE))",
)


class TemporalMaker:
    """Draws one case: a stream `S (at, k, v, a, b)`, one without periods, `G (at, k, v)`, a relation `P (k, a, b)`, and
    queries."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.result = RandomCase()

    def case(self, names: Sequence[str]) -> RandomCase:
        self._sources()
        for name in names:
            kinds = (
                self.coalesced,
                self.sessions,
                self.valid,
                self.joined,
                self.counted,
                self.granules,
                self.until_next,
                self.gaps,
            )
            kind = self.choices.pick(kinds)
            self.result.statements.append(f"CREATE QUERY {name} AS {kind()};")
        return self.result

    # --- sources

    def _sources(self) -> None:
        choices = self.choices
        self.begins_at_timestamp = choices.chance(30)
        begin = "at" if self.begins_at_timestamp else "a"
        word = "THROUGH" if choices.chance(20) else "TO"
        columns = "at BIGINT, k STRING, v INT, a BIGINT, b BIGINT"
        slack = " ORDER WITHIN 3 SECOND" if choices.chance(25) else ""
        by = f"TIMESTAMP BY at UNIT {_UNIT}{slack} VALID FROM {begin} {word} b"
        self.result.statements.append(f"CREATE STREAM S ({columns}) FROM MEMORY () {by};")
        self.result.inputs["S"] = self._rows(choices.integer(0, 24), bool(slack))
        self.result.statements.append(
            f"CREATE STREAM G (at BIGINT, k STRING, v INT) FROM MEMORY () TIMESTAMP BY at UNIT {_UNIT}{slack};"
        )
        self.result.inputs["G"] = [row[:3] for row in self._rows(choices.integer(0, 24), bool(slack))]
        self.result.statements.append(
            "CREATE RELATION P (k STRING, a BIGINT, b BIGINT) FROM MEMORY () VALID FROM a TO b;"
        )
        self.result.inputs["P"] = [
            [self._key(), *self._period(choices.integer(-2, 20))] for _ in range(choices.integer(0, 6))
        ]

    def _key(self) -> str:
        return self.choices.pick(("x", "y", "NULL"))

    def _period(self, begin: int) -> tuple[str, str]:
        length = self.choices.integer(-1, 6)
        if self.choices.chance(8):
            return (str(begin), "NULL")
        return ("NULL" if self.choices.chance(4) else str(begin), str(begin + length))

    def _rows(self, count: int, disorder: bool) -> list[list[str]]:
        at = self.choices.integer(-3, 3)
        found = []
        for _ in range(count):
            at += self.choices.pick((0, 0, 1, 1, 1, 2, 3, 5))
            shown = at - self.choices.integer(0, 3) if disorder else at
            begin = shown if self.begins_at_timestamp else shown + self.choices.integer(-5, 4)
            a, b = self._period(begin)
            found.append([str(shown), self._key(), str(self.choices.integer(0, 2)), a, b])
        return found

    # --- parts of queries

    def window(self) -> str:
        choices = self.choices
        length = choices.integer(1, 7)
        return choices.pick(
            (
                "",
                f"[RANGE {length} SECOND]",
                f"[RANGE {length} SECOND SLIDE {choices.integer(1, 4)} SECOND]",
                f"[ROWS {choices.integer(1, 4)}]",
                "[NOW]",
                f"[RANGE UNBOUNDED SLIDE {choices.integer(1, 3)} SECOND]",
                f"[RANGE {length} SECOND SLIDE 3 SECOND ALIGN TO {choices.integer(0, 2)}]",
                "[VALID]",
            )
        )

    def valid_clause(self) -> str:
        """Return VALID FOR, or nothing: then the declaration has it."""
        return self.choices.pick(
            ("", f"VALID FOR {self.choices.integer(1, 4)} SECOND", "VALID FOR v SECOND", "VALID FOR (v + 1) SECOND")
        )

    def columns(self) -> str:
        return self.choices.pick(("k", "k, v", "v > 0 AS high", "", "k, v > 1 AS high"))

    def condition(self) -> str:
        return self.choices.pick(
            (
                "LENGTH(VALID(s)) >= 3",
                "VALID(s) CONTAINS 5",
                "VALID(s) OVERLAPS PERIOD(3, 8)",
                "BEGIN(VALID(s)) < 6",
                "END(VALID(s)) IS NULL",
                "CAST(VALID(s) AS INTERVAL SECOND) > 2",
                "VALID(s) BEFORE PERIOD(7, NULL)",
                "(1 = 0 OR LENGTH(VALID(s)) > 1)",
                "NOT VALID(s) MEETS PERIOD(4, 9)",
                "ALLEN(VALID(s), PERIOD(2, 6)) <> 'during'",
            )
        )

    # --- queries

    def coalesced(self) -> str:
        columns, valid, window = self.columns(), self.valid_clause(), self.window()
        names = "".join(f"{part.split(' AS ')[-1].strip()}, " for part in columns.split(",") if part.strip())
        conditions = [self.condition()] if self.choices.chance(30) else []
        if "k" in columns and self.choices.chance(30):
            conditions.append(self.choices.pick(("k = 'x'", "k IS NULL", "s.k <> 'x'")))
        closes = (valid or self.begins_at_timestamp) and window != "[VALID]"
        if closes and self.choices.chance(50):
            conditions.append("CLOSED(VALID(s))")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        query = f"SELECT {names}VALID(s) FROM S ({columns}) {valid} {window} AS s{where}"
        return self.as_stream(query)

    def granules(self) -> str:
        """Return a query over periods that follow SLIDE."""
        choices, columns = self.choices, self.columns()
        names = "".join(f"{part.split(' AS ')[-1].strip()}, " for part in columns.split(",") if part.strip())
        slide = choices.integer(1, 3)
        length = slide * choices.integer(1, 5) if choices.chance(75) else choices.integer(1, 9)
        align = f" ALIGN TO {choices.integer(0, 2)}" if choices.chance(30) else ""
        extent = "UNBOUNDED" if choices.chance(10) else f"{length} SECOND"
        conditions = [self.condition()] if choices.chance(40) else []
        if choices.chance(15):
            conditions.append("CLOSED(VALID(s))")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        selected = " WHERE v > 0" if choices.chance(20) else ""
        window = f"[RANGE {extent} SLIDE {slide} SECOND{align}{selected}]"
        query = f"SELECT {names}VALID(s) FROM G ({columns}) {window} AS s{where}"
        operator = choices.pick(("", "", "ISTREAM", "DSTREAM", "RSTREAM"))
        return f"{operator}({query})" if operator else query

    def as_stream(self, query: str) -> str:
        operator = self.choices.pick(("", "", "", "ISTREAM", "DSTREAM"))
        return f"{operator}({query})" if operator else query

    def sessions(self) -> str:
        choices = self.choices
        partition = choices.pick(("PARTITION BY k ", "", "PARTITION BY k, v "))
        gap = choices.pick((f"{choices.integer(1, 4)} SECOND", "v SECOND", "(v + 1) SECOND"))
        most = f" AT MOST {choices.integer(5, 8)} SECOND" if choices.chance(40) else ""
        is_open = " OPEN" if choices.chance(25) else ""
        where = " WHERE v < 2" if choices.chance(20) else ""
        source = f"S [{partition}SESSION {gap}{most}{is_open}{where}] AS s"
        keys = {"PARTITION BY k ": "k, ", "": "", "PARTITION BY k, v ": "k, v, "}[partition]
        if choices.chance(30):
            return self.as_stream(f"SELECT {keys}v, VALID(s) FROM {source}")
        operator = choices.pick(("", "RSTREAM", "ISTREAM")) if not is_open else ""
        calls = ", ".join(f"{choices.pick(_CALLS)} AS c{i}" for i in range(choices.integer(1, 3)))
        # Also groups that have several sessions at one instant, or more than one in a session, or none.
        groups = (f"{keys}VALID(s)", f"{keys}VALID(s)", keys.removesuffix(", "), "VALID(s)", "v, VALID(s)", "")
        group = choices.pick(groups)
        items = f"{group}, {calls}" if group else calls
        query = f"SELECT {items} FROM {source}{f' GROUP BY {group}' if group else ''}"
        return f"{operator}({query})" if operator else query

    def until_next(self) -> str:
        choices = self.choices
        by = choices.pick(("", "BY k ", "BY k, v ", "BY v "))
        most = f"AT MOST {choices.integer(1, 6)} SECOND" if choices.chance(50) else ""
        length = choices.integer(1, 7)
        window = choices.pick(
            (
                "",
                "",
                "[NOW]",
                f"[RANGE {length} SECOND]",
                "[VALID]",
                f"[RANGE {length} SECOND SLIDE {choices.integer(1, 4)} SECOND ALIGN TO {choices.integer(0, 2)}]",
                f"[RANGE UNBOUNDED SLIDE {choices.integer(1, 3)} SECOND]",
            )
        )
        listed = choices.chance(50)
        columns = self.columns() if listed else "k, v"
        names = "".join(f"{part.split(' AS ')[-1].strip()}, " for part in columns.split(",") if part.strip())
        source = f"S {f'({columns}) ' if listed else ''}VALID UNTIL NEXT {by}{most} {window} AS s"
        conditions = []
        if window != "[VALID]" and choices.chance(40):
            conditions.append("CLOSED(VALID(s))")
            if not listed and choices.chance(20):
                source = source.replace(window, "[ROWS 3]") if window else source
        if choices.chance(40):
            conditions.append(f"LENGTH(VALID(s)) {choices.pick(('>=', '>'))} {choices.integer(0, 5)}")
        if choices.chance(20):
            conditions.append(choices.pick(("END(VALID(s)) IS NULL", "VALID(s) CONTAINS 6", "BEGIN(VALID(s)) > 3")))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        if choices.chance(20):
            return self.as_stream(f"SELECT COUNT(*) AS n, SUM(LENGTH(VALID(s))) AS held FROM {source}{where}")
        operator = choices.pick(("", "", "ISTREAM", "DSTREAM", "RSTREAM"))
        query = f"SELECT {names}VALID(s) FROM {source}{where}"
        return f"{operator}({query})" if operator else query

    def gaps(self) -> str:
        choices = self.choices
        columns, valid, window = self.columns(), self.valid_clause(), self.window()
        if choices.chance(15):
            valid = f"VALID UNTIL NEXT BY k AT MOST {choices.integer(1, 4)} SECOND"
            window = choices.pick(("", f"[RANGE {choices.integer(2, 7)} SECOND]"))
        elif choices.chance(15):
            slide = choices.integer(1, 3)
            valid, window = "", f"[RANGE {slide * choices.integer(1, 5)} SECOND SLIDE {slide} SECOND]"
        elif window == "[VALID]":
            window = ""
        names = "".join(f"{part.split(' AS ')[-1].strip()}, " for part in columns.split(",") if part.strip())
        least = f"AT LEAST {choices.integer(1, 5)} SECOND" if choices.chance(40) else ""
        conditions = [self.choices.pick(("BEGIN(VALID(s)) < 6", "END(VALID(s)) IS NULL"))] if choices.chance(20) else []
        if choices.chance(30):
            conditions.append(f"LENGTH(VALID(s)) {choices.pick(('>=', '>'))} {choices.integer(0, 5)}")
        if (valid or self.begins_at_timestamp) and choices.chance(40):
            conditions.append("CLOSED(VALID(s))")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        operator = choices.pick(("", "", "ISTREAM", "DSTREAM", "RSTREAM"))
        query = f"SELECT {names}VALID(s) FROM GAPS OF S ({columns}) {valid} {window} {least} AS s{where}"
        return f"{operator}({query})" if operator else query

    def valid(self) -> str:
        query = self.choices.pick(("SELECT k, v FROM S [VALID]", "SELECT DISTINCT k FROM S [VALID] AS s"))
        return f"RSTREAM({query})" if self.choices.chance(20) else self.as_stream(query)

    def joined(self) -> str:
        window = self.choices.pick(("[RANGE 4 SECOND]", "[NOW]", "[VALID]", "[ROWS 3]"))
        side = self.choices.pick(("P AS p", "P [VALID] AS p", "P (k) AS p"))
        relation = self.choices.pick(("OVERLAPS", "CONTAINS", "PRECEDES", "MET BY", "STARTS", "="))
        return self.as_stream(
            f"SELECT s.k, s.v, VALID(s, p) AS both FROM S {window} AS s, {side} WHERE s.k = p.k AND VALID(s) {relation}"
            " VALID(p)"
        )

    def counted(self) -> str:
        valid, window = self.valid_clause(), self.window()
        return f"SELECT k, COUNT(*) AS n, SUM(LENGTH(VALID(s))) AS held FROM S (k, v) {valid} {window} AS s GROUP BY k"


def temporal_case(choices: Choices, names: Sequence[str] = ("q",)) -> RandomCase:
    """Return a case over periods, with queries of these `names`."""
    return TemporalMaker(choices).case(names)
