"""Relations with updates: a round writes what it changed, and equal rows go in the order in which they came."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements
from penstock.physical.operators import Moment
from penstock.physical.operators.updates import Updates
from penstock.physical.plan.inputs import UpdateRule, UpdatesSpec
from tests.element_rows import element_rows

TYPES = (pa.int64(), pa.int64(), pa.int64())


def updates(rows: list[tuple[int, int, int, int]]) -> Elements:
    """Of rows (ts, key, value, sign); the columns are these without the sign."""
    ts, key, value, sign = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    return Elements((pa.array(ts), pa.array(key), pa.array(value)), ts, np.full(len(rows), 1 << 62), sign)


def relation(rule: UpdateRule, once: bool = False) -> Updates:
    key = (1, 2) if rule is UpdateRule.BAG else (1,)
    return Updates(UpdatesSpec("R", key, ("ts", "k", "v"), TYPES, rule, once))


def again(operator: Updates, fresh: Updates) -> Updates:
    """`fresh` with the state of `operator`."""
    for name, synopsis in operator.synopses().items():
        fresh.synopses()[name].restore(*synopsis.snapshot())
    return fresh


def test_a_round_writes_what_it_changed_and_no_more() -> None:
    operator = relation(UpdateRule.REPLACE)
    size, written = 20_000, 0
    operator.process(0, updates([(1, k, 0, 1) for k in range(size)]))
    operator.advance(Moment(1, 1))
    rows = operator.synopses()["rows"]
    seen = set(rows.snapshot()[1])
    for tick in range(2, 202):
        operator.process(0, updates([(tick, tick * 97 % size, tick, 1)]))
        (came, went) = operator.advance(Moment(tick, 1))
        assert (len(came), len(went)) == (1, 1)
        chunks = rows.snapshot()[1]
        written += sum(chunk.num_rows for i, chunk in chunks.items() if i not in seen)
        seen |= set(chunks)
    # 400 changes, copied a logarithmic number of times.
    assert 400 <= written < 4 * size
    assert rows.rows < size + 500


def test_of_equal_rows_the_oldest_goes_also_after_a_restart() -> None:
    operator = relation(UpdateRule.BAG)
    gone = []
    for tick, sign in ((1, 1), (2, 1), (2, 1), (4, -1), (5, 1), (6, -1), (7, -1), (8, -1), (9, -1)):
        operator = again(operator, relation(UpdateRule.BAG))
        operator.process(0, updates([(tick, 7, 7, sign)]))
        for part in operator.advance(Moment(tick, 1)):
            gone += [(ts, when) for ts, _, s, when, *_ in element_rows(part) if s < 0]
    assert gone == [(4, 1), (6, 2), (7, 2), (8, 5)]
    (rejected,) = operator.rejections()
    assert (rejected.ts, rejected.reason) == (9, "no such row to delete")


def test_a_key_that_was_deleted_is_known_for_good() -> None:
    operator = relation(UpdateRule.UNIQUE, once=True)
    for tick, sign in ((1, 1), (2, -1), (3, 1), (4, 1), (5, -1)):
        operator = again(operator, relation(UpdateRule.UNIQUE, once=True))
        operator.process(0, updates([(tick, 7, tick, sign), (tick, tick + 100, 0, 1)]))
        operator.advance(Moment(tick, 1))
        reasons = [r.reason for r in operator.rejections()]
        used = "primary key used again after its deletion"
        assert reasons == {3: [used], 4: [used], 5: ["no such row to delete"]}.get(tick, [])
