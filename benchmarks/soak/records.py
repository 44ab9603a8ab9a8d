"""The records of the soak: from a seed alone, so that who sends them and who checks the answers make the same ones.

Record n belongs to the moment n / rate. Good ones carry a time up to JITTER before it, late ones one more than LATE
before it, malformed ones cannot be read. Which ones are late must not follow from how partitions and batches happen to
interleave, so: a late record is later than ORDER WITHIN allows in its own partition already (`verify`), and the sender
keeps no record back for more than AHEAD of other records' time, which with JITTER stays well below ORDER WITHIN.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

PARTITIONS = 4
KEYS = 10
BLOCK = 1_000

GOOD, LATE, MALFORMED = 0, 1, 2
#: Of 100 records.
LATE_SHARE, MALFORMED_SHARE = 2, 1

#: Milliseconds. The time of the first record is a round one, so that windows of every query begin with it.
START = 1_700_000_000_000
SLACK = 10_000
JITTER = 3_000
AHEAD = 2_000
TOO_LATE = 60_000
#: How far behind all others the last records are: time comes to the end of every window before them.
BEHIND = 120_000

_NUMBER = re.compile(r"\bn\W+(\d+)")


@dataclass(frozen=True)
class Records:
    """Some records in the order they are sent, as columns. user: one of as many as records come in ten seconds, so that
    a join over these finds about one partner each."""

    number: Int64s
    kind: Int64s
    partition: Int64s
    at: Int64s
    key: Int64s
    user: Int64s
    x: Int64s


def moments(number: Int64s, rate: int) -> Int64s:
    return START + number * 1_000 // rate


def block(seed: int, rate: int, index: int) -> Records:
    """Records index * BLOCK and on."""
    draw = np.random.default_rng([seed, index])
    number = np.arange(index * BLOCK, (index + 1) * BLOCK, dtype=np.int64)
    share = draw.integers(0, 100, BLOCK)
    kind = np.where(share < LATE_SHARE, LATE, np.where(share < LATE_SHARE + MALFORMED_SHARE, MALFORMED, GOOD))
    # Nothing is late before there is something to be late for.
    kind = np.where((kind == LATE) & (number < 5 * rate), GOOD, kind)
    earlier = draw.integers(0, JITTER, BLOCK) + np.where(kind == LATE, TOO_LATE, 0)
    return Records(
        number,
        kind,
        draw.integers(0, PARTITIONS, BLOCK),
        moments(number, rate) - earlier,
        draw.integers(0, KEYS, BLOCK),
        draw.integers(0, 10 * rate, BLOCK),
        draw.integers(0, 1_000, BLOCK),
    )


def first(seed: int, rate: int, count: int) -> Records:
    """The first `count` records."""
    blocks = [block(seed, rate, index) for index in range(-(-count // BLOCK) or 1)]
    names = Records.__dataclass_fields__
    return Records(**{name: np.concatenate([getattr(b, name) for b in blocks])[:count] for name in names})


def sent(seed: int, rate: int) -> Iterator[tuple[int, int, bytes]]:
    """(number, partition, value) without end."""
    index = 0
    while True:
        found = block(seed, rate, index)
        columns = (found.number, found.kind, found.partition, found.at, found.key, found.user, found.x)
        for n, kind, partition, at, key, user, x in zip(*(c.tolist() for c in columns), strict=True):
            row = {"n": n, "k": f"k{key}", "u": user, "x": x, "at": at}
            yield n, partition, spoilt(row) if kind == MALFORMED else json.dumps(row).encode()
        index += 1


def last(rate: int, count: int) -> Iterator[tuple[int, bytes]]:
    """(partition, value) of what comes behind `count` records, so that time goes on past all of them."""
    at = START + count * 1_000 // rate + BEHIND
    for partition in range(PARTITIONS):
        yield partition, json.dumps({"n": -1 - partition, "k": "end", "u": -1, "x": 0, "at": at}).encode()


def spoilt(row: dict[str, object]) -> bytes:
    """A record that cannot be read, in one of several ways; its number can."""
    n = row["n"]
    assert isinstance(n, int)
    way = n % 4
    if way == 0:
        return json.dumps(row).encode()[:-12]
    if way == 1:
        return json.dumps({**row, "x": "many"}).encode()
    if way == 2:
        return json.dumps({k: v for k, v in row.items() if k != "at"}).encode()
    return f"n = {n}, which is no JSON".encode()


def number_of(record: str) -> int:
    """The number of a record as a dead letter shows it. Raises ValueError where it shows none."""
    match = _NUMBER.search(record)
    if match is None:
        raise ValueError(record)
    return int(match[1])


def verify(records: Records, rate: int) -> None:
    """That no interleaving of partitions makes a late record one of the others, or the other way round."""
    base = moments(records.number, rate)
    timed = records.kind != MALFORMED
    for partition in range(PARTITIONS):
        mine = timed & (records.partition == partition)
        seen = np.maximum.accumulate(records.at[mine])
        late = records.kind[mine] == LATE
        assert (records.at[mine][late] < seen[late] - SLACK).all(), "a late record may come in time"
    good = records.kind == GOOD
    assert (records.at[good] >= base[good] + AHEAD - SLACK).all(), "a good record may come late"
