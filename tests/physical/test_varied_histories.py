"""Whatever changes in a system, and whichever calls fail, every query answers as it does alone, to the bit and in the
same round."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
import pytest

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.scans import Scan
from penstock.language.scripts import bind_script
from penstock.runtime.live import LiveEngine
from penstock.testing.compare import events_of
from penstock.testing.thresholds import lowered, small
from tests.physical.failing_calls import Faults
from tests.physical.test_window_stores import alone
from tests.physical.varied_histories import VariedHistory, sources_text

#: Of these, each has another kind of failure.
SEEDS, MANY_CASES = (0, 1), 300


def faults_of(seed: int) -> Faults:
    """What fails in a history, in those with many joins that are alike within their calls; in two of five nothing."""
    kinds = {"computed": 0.05}, {"settled": 0.05}, {"anywhere": 0.1}, {}, {}
    return Faults(seed, **kinds[seed % len(kinds)])


def compare(seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    faults = faults_of(seed)
    with lowered(small(seed) if seed % 3 else {}):
        shared = VariedHistory(seed, True, faults).run()
    with alone(monkeypatch):
        expected = VariedHistory(seed, False).run()
    assert shared.texts == expected.texts and shared.refusals == expected.refusals
    for name in shared.answers.keys() | expected.answers.keys():
        found, due = (
            {second: sorted(events) for second, events in one.answers.get(name, {}).items()}
            for one in (shared, expected)
        )
        differing = sorted(n for n in found.keys() | due.keys() if found.get(n) != due.get(n))
        if differing:
            at = differing[0]
            extra, missing = (
                [*(Counter(one.get(at, [])) - Counter(other.get(at, []))).elements()]
                for one, other in ((found, due), (due, found))
            )
            raise AssertionError(
                f"seed {seed}, {name} at second {at}, keys of {shared.key}, of {len(due.get(at, []))}:"
                f" too many {extra[:4]}, missing {missing[:4]}: {shared.texts[name]}"
            )
    return shared.kinds + shared.done + faults.counts


def test_any_varied_history_gives_the_answers_of_each_query_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts += compare(seed, monkeypatch)
    assert min(counts["computed"], counts["settled"], counts["swap"], counts["taken over"]) > 0, counts
    assert min(counts["WindowStore"], counts["Join"], counts["Changes"]) > 0, counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({*range(MANY_CASES)} - {*SEEDS}))
def test_many_varied_histories(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(seed, monkeypatch)


def test_zeros_are_one_after_zero_was_added() -> None:
    """Of 0.0 and -0.0, which are equal, any may be shown; so there is a way to have one."""
    (query,) = bind_script(f"{sources_text('INT', 0)} CREATE QUERY q AS SELECT d + 0.0 AS d FROM S [NOW];").queries
    live = LiveEngine()
    (leaf,) = leaves(query.root)
    assert isinstance(leaf, Scan)
    live.declare(leaf.source)
    live.register(query)
    columns = {"ts": [1, 1], "k": [1, 1], "a": [1, 1], "d": [-0.0, 0.0], "m": [None, None], "x": ["", ""]}
    live.insert("S", pa.RecordBatch.from_pydict(columns))
    live.close("S")
    rows = [row for _, op, row in events_of(query, live.round()["q"]) if op == "+"]
    assert [math.copysign(1, *row) for row in rows] == [1, 1]
