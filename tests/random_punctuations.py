"""Punctuations in random worlds: as records of the streams, and as lines between their rows."""

from __future__ import annotations

import re

from penstock.testing.choices import Choices
from penstock.testing.random.contract import RandomCase

_STREAM = re.compile(r"CREATE STREAM (\w+) \((.*)\) FROM MEMORY \(\)(.*);")
_COLUMN = re.compile(r"(\w+) (\w+(?:\([^)]*\))?)(?:, |$)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_MALFORMED = ("a <> 1", "nonsense", "ts <= 5 OR ts > 7", "unknown_column = 1", "ts = ")


def add_punctuations(case: RandomCase, choices: Choices, statements: bool = True, records: bool = True) -> None:
    """Add punctuations to the streams of a case: before the first element, twice, contradicting, and after the end.
    statements, records: those of PUNCTUATE and of PUNCTUATED BY."""
    for place, statement in enumerate(case.statements):
        match = _STREAM.fullmatch(statement)
        if match is None:
            continue
        name, columns, tail = match.groups()
        types = dict(_COLUMN.findall(columns))
        by_records = records and (not statements or choices.chance(60))
        if by_records:
            case.statements[place] = (
                f"CREATE STREAM {name} ({columns}, said STRING) FROM MEMORY (){tail} PUNCTUATED BY said;"
            )
            for row in case.inputs[name]:
                row.append("NULL")
        share = 100 if not statements else 50 if by_records else 0
        _add_to(case, name, types, share, choices)


def _add_to(case: RandomCase, name: str, types: dict[str, str], records: int, choices: Choices) -> None:
    rows, came = case.inputs[name], case.arrivals.get(name)
    plain = [row for row in rows if len(row) > 1]
    text = ""
    for _ in range(choices.integer(0, 5) if rows else 0):
        at = choices.integer(0, len(rows))
        if not text or not choices.chance(20):
            text = _condition(plain, types, choices)
        record = choices.chance(records)
        written = choices.pick(_MALFORMED) if record and choices.chance(15) else text
        if not written:
            continue
        if record:
            quoted = written.replace("'", "''")
            near = rows[max(0, at - 1)][0] if rows and len(rows[max(0, at - 1)]) > 1 else "NULL"
            line = [choices.pick((near, "NULL")), *["NULL"] * (len(types) - 1), f"'{quoted}'"]
        else:
            line = [f"punctuate {written}"]
        rows.insert(at, line)
        if came is not None:
            came.insert(at, came[max(0, at - 1)])


def _condition(rows: list[list[str]], types: dict[str, str], choices: Choices) -> str:
    """Return a conjunction over values that rows have; empty where there are none."""
    parts = []
    for _ in range(choices.integer(1, 2)):
        place = choices.integer(0, len(types) - 1)
        name, type_ = list(types.items())[place]
        values = [value for row in rows if (value := _constant(row[place], type_))]
        if choices.chance(10):
            parts.append(f"{name} IS NULL")
        elif values:
            one, other = choices.pick(values), choices.pick(values)
            comparisons = (f"= {one}", f"<= {one}", f"< {one}", f"> {one}", f">= {one}")
            parts.append(f"{name} {choices.pick((*comparisons, f'BETWEEN {one} AND {other}', f'IN ({one}, {other})'))}")
    return " AND ".join(parts)


def _constant(cell: str, type_: str) -> str:
    """Return a cell as a constant; empty for NULL and for a type that is not compared here."""
    text = cell.strip().removeprefix("'").removesuffix("'")
    if cell == "NULL":
        return ""
    if type_ == "TIMESTAMP":
        return f"TIMESTAMP '{text.replace('T', ' ').removesuffix('Z')}'"
    if type_ == "STRING":
        return "'" + text.replace("''", "'").replace("'", "''") + "'"
    if type_ == "BOOLEAN":
        return text.upper()
    return text if type_ in ("INT", "BIGINT", "DOUBLE") and _NUMBER.fullmatch(text) else ""
