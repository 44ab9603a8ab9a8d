"""Heartbeats in random worlds: as records of the streams, as lines between their rows, and by the clock."""

from __future__ import annotations

import datetime as dt
import re

from penstock.testing.choices import Choices
from penstock.testing.random.contract import RandomCase

_STREAM = re.compile(r"CREATE STREAM (\w+) \(ts (.*?)\) FROM MEMORY \(\)( TIMESTAMP BY ts.*);")
_IDLE = re.compile(r"( IDLE TIMEOUT \d+ SECONDS?)(?! ADVANCE)")


def add_heartbeats(case: RandomCase, choices: Choices, statements: bool = True) -> None:
    """Add heartbeats to the streams of a case that have timestamps of their own. statements: those of ADVANCE, too."""
    for place, statement in enumerate(case.statements):
        match = _STREAM.fullmatch(statement)
        if match is None:
            continue
        name, columns, tail = match.groups()
        by_records = not statements or choices.chance(50)
        if by_records:
            columns, tail = f"{columns}, h BOOLEAN", f"{tail} HEARTBEAT BY h"
            for row in case.inputs[name]:
                row.append(choices.pick(("NULL", "false")))
        if choices.chance(60):
            tail = _IDLE.sub(r"\1 ADVANCE", tail)
        case.statements[place] = f"CREATE STREAM {name} (ts {columns}) FROM MEMORY (){tail};"
        records = 100 if not statements else 50 if by_records else 0
        _add_to(case, name, columns.count(","), records, choices)


def _add_to(case: RandomCase, name: str, width: int, records: int, choices: Choices) -> None:
    """Add heartbeats between the rows of a stream.

    Args:
        width: the number of its columns beside the first.
        records: how many of a hundred are records.
    """
    rows, came = case.inputs[name], case.arrivals.get(name)
    for _ in range(choices.integer(0, 4)):
        at = choices.integer(0, len(rows))
        near = [row[0].removeprefix("heartbeat ") for row in rows[: max(1, at)] if row[0] != "NULL"]
        if not near:
            continue
        tick = _moved(near[-1], choices.pick((0, -1, 1, 2, -3, 6)))
        record = choices.chance(records)
        cells = [choices.pick((tick, "NULL") if choices.chance(10) else (tick,)), *["NULL"] * width]
        rows.insert(at, [*cells[:-1], "true"] if record else [f"heartbeat {tick}"])
        if came is not None:
            came.insert(at, came[max(0, at - 1)])


def _moved(tick: str, seconds: int) -> str:
    """Return a tick as text, moved."""
    if "T" not in tick:
        return str(int(tick) + seconds)
    moved = dt.datetime.fromisoformat(tick) + dt.timedelta(seconds=seconds)
    return moved.isoformat().replace("+00:00", "Z")
