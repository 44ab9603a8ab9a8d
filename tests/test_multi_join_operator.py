"""The pipelined join in pieces: whatever is cut for size, every result is there once."""

from __future__ import annotations

import pytest

from penstock.language.scripts import bind_script
from penstock.physical.operators.joins import multi_join
from penstock.physical.synopses.join_indexes import sorted_runs as runs
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

CASE = """
statement
CREATE STREAM A (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM B (ts INT, k INT, l INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q AS SELECT x.k, y.l, z.l AS m
  FROM A [RANGE 9 SECOND] AS x, B [RANGE 5 SECOND] AS y, B [RANGE 7 SECOND] AS z
  WHERE x.k = y.k AND y.k = z.k AND y.l <= z.l;

input A
{a}

input B
{b}
"""


@pytest.mark.parametrize("limit", [1, 3, 10, 1000])
def test_pieces_of_any_size_give_the_same(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_join, "PAIRS_AT_ONCE", limit)
    text = CASE.format(
        a="\n".join(f"{tick}, {tick % 2}" for tick in range(12)),
        b="\n".join(f"{tick}, {tick % 2}, {tick % 3}" for tick in range(12)),
    )
    case = parse_case(text)
    bound = bind_script(case.script)
    inputs = case_inputs(case, bound)
    answer = run_oracle(bound.queries[0], inputs)
    assert len(answer.events) > 50
    for rows in (None, 1, 5):
        assert_same(bound.queries[0], run_local(bound.queries, inputs, batch_rows=rows).tables["q"], answer)


def test_pieces_keep_to_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def watched(*arguments: object) -> object:
        for probe, found in runs.probe_pieces(*arguments):  # type: ignore[arg-type]
            sizes.append(len(probe))
            yield probe, found

    monkeypatch.setattr(multi_join, "PAIRS_AT_ONCE", 20)
    monkeypatch.setattr(multi_join, "probe_pieces", watched)
    text = CASE.format(
        a="\n".join(f"{tick}, 0" for tick in range(9)), b="\n".join(f"{tick}, 0, 0" for tick in range(9))
    )
    case = parse_case(text)
    bound = bind_script(case.script)
    run_local(bound.queries, case_inputs(case, bound))
    assert sum(sizes) > 100
    assert max(sizes) <= 20
