"""Sessions of hours and days over TIMESTAMPs, bounded by AT MOST, against a loop over the rows of each key; many rows
meet a gap or a bound exactly, or miss it by a microsecond."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
#: The gap and the bound as they are written, and what they are.
LENGTHS = (
    ("20 MINUTES", timedelta(minutes=20), "1 HOUR", HOUR),
    ("INTERVAL '1' HOUR", HOUR, "INTERVAL '1' DAY", DAY),
    ("90 MINUTES", timedelta(minutes=90), "2 HOURS", 2 * HOUR),
    ("1 HOUR", HOUR, None, None),
    ("6 HOURS", 6 * HOUR, "24 HOURS", DAY),
    ("1 DAY", DAY, "3 DAYS", 3 * DAY),
    ("2 DAYS", 2 * DAY, "1 WEEK", 7 * DAY),
)


def sessions(times: list[datetime], gap: timedelta, most: timedelta | None) -> list[tuple[datetime, datetime, int]]:
    """Return (begin, end, count) of the sessions of one key, times in order."""
    found: list[list[datetime]] = []
    for at in times:
        if found and at <= found[-1][-1] + gap and (most is None or at < found[-1][0] + most):
            found[-1].append(at)
        else:
            found.append([at])
    latest = datetime.max.replace(tzinfo=UTC)
    ends = [min(s[-1] + gap, s[0] + most if most else latest) for s in found]
    return [(s[0], end, len(s)) for s, end in zip(found, ends, strict=True)]


@pytest.mark.spread(2)
@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda one: f"{one[0]} at most {one[2]}")
def test_bounded_sessions_are_those_of_a_loop(lengths: tuple[str, timedelta, str | None, timedelta | None]) -> None:
    written, gap, bound, most = lengths
    window = f"[PARTITION BY k SESSION {written}{f' AT MOST {bound}' if bound else ''}]"
    script = f"""CREATE STREAM s (at TIMESTAMP, k STRING) FROM MEMORY () TIMESTAMP BY at;
    CREATE QUERY summed AS RSTREAM(SELECT k, VALID(c), COUNT(*) AS n FROM s {window} AS c GROUP BY k, VALID(c));
    CREATE QUERY kept AS RSTREAM(SELECT k, VALID(c), COUNT(DISTINCT at) AS d, COUNT(*) AS n
      FROM s {window} AS c GROUP BY k, VALID(c));"""
    for seed in range(6):
        draw = random.Random(seed)
        at = datetime(draw.choice([1969, 1999, 2024]), 2, 27, tzinfo=UTC)
        rows: list[tuple[datetime, str]] = []
        for _ in range(60):
            step = draw.choice([gap, gap, gap / 2, timedelta(0), most or gap, 2 * gap])
            at += max(timedelta(0), step + draw.choice([-1, 0, 0, 1]) * timedelta(microseconds=1))
            rows.append((at, draw.choice("uv")))
        times, keys = pa.array([t for t, _ in rows], pa.timestamp("us", "UTC")), pa.array([k for _, k in rows])
        expected = sorted((k, *one) for k in "uv" for one in sessions([t for t, key in rows if key == k], gap, most))
        inputs = {"s": pa.table({"at": times, "k": keys})}
        for query, answer in run_local(bind_script(script).queries, inputs, drain=True).tables.items():
            found = [(row["k"], row["valid_from"], row["valid_to"], row["n"]) for row in answer.to_pylist()]
            assert sorted(found) == expected, (query, seed)
