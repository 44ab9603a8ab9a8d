"""Records whose declared period has no begin or is empty: ON ERROR decides, in streams and relations."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from inline_run import InlineRun

from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import LocalResult, run_local
from penstock.types import END

QUERY = "CREATE QUERY q AS SELECT n FROM s;"
#: Bounds, and whether they are a period as FROM .. TO, and as FROM .. THROUGH.
BOUNDS = [
    (1, 2, True, True), (2, 2, False, True), (3, 2, False, False), (None, 2, False, False), (1, None, True, True),
    (None, None, False, False), (-(2**63), -(2**63) + 1, True, True), (END - 1, None, True, True),
    (END, None, False, False), (END, 2**63 - 1, False, False), (5, 2**63 - 1, True, True),
]  # fmt: skip


def run(
    declared: str, type_: pa.DataType, bounds: list[tuple[object, object]], *more: tuple[str, pa.Array]
) -> LocalResult:
    bound = bind_script(f"{declared};{QUERY}")
    table = {"n": pa.array(range(len(bounds)), pa.int32())}
    table |= {name: pa.array([b[i] for b in bounds], type_) for i, name in enumerate("ab")}
    return run_local(bound.queries, {"s": pa.table(table | dict(more))})


@pytest.mark.parametrize("word", ["TO", "THROUGH"])
@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (n)"])
def test_a_relation_has_the_rows_with_a_period(word: str, key: str) -> None:
    declared = f"CREATE RELATION s (n INT, a BIGINT, b BIGINT{key}) FROM MEMORY () VALID FROM a {word} b"
    result = run(declared, pa.int64(), [(a, b) for a, b, *_ in BOUNDS])
    kept = [i for i, row in enumerate(BOUNDS) if row[2 if word == "TO" else 3]]
    assert sorted(result.tables["q"]["n"].to_pylist()) == kept
    assert result.unusable == {"s": len(BOUNDS) - len(kept)} and not result.rejected


def test_days() -> None:
    declared = "CREATE RELATION s (n INT, a DATE, b DATE, PERIOD FOR VALID (a, b)) FROM MEMORY ()"
    days = [(date(2000, 1, 1), date(2000, 1, 2)), (date(2000, 1, 1), date(2000, 1, 1)), (date(9999, 12, 31), None)]
    assert run(declared, pa.date32(), list(days)).tables["q"]["n"].to_pylist() == [0, 2]


STREAM = (
    "CREATE STREAM s (n INT, a BIGINT, b BIGINT, t BIGINT) FROM MEMORY () TIMESTAMP BY t UNIT SECOND ON ERROR {} VALID"
    " FROM a TO b"
)
#: The second has no period; its timestamp would make the third late.
ROWS: list[tuple[object, object]] = [(1, 2), (2, 2), (3, 4), (None, 5)]
TIMES = ("t", pa.array([1, 9, 3, 4], pa.int64()))


@pytest.mark.parametrize("policy", ["SKIP", "DEAD LETTER"])
def test_a_stream_has_them_too_and_they_do_not_advance_time(policy: str) -> None:
    result = run(STREAM.format(policy), pa.int64(), ROWS, TIMES)
    assert result.tables["q"]["n"].to_pylist() == [0, 2]
    assert result.unusable == {"s": 2} and result.late == {"s": 0}


def test_fail_ends_the_run_with_the_record() -> None:
    with pytest.raises(PenstockError, match=r'the period is empty; the record: .*"n": 1') as caught:
        run(STREAM.format("FAIL"), pa.int64(), ROWS, TIMES)
    assert caught.value.code == "P0403"
    declared = "CREATE RELATION s (n INT, a BIGINT, b BIGINT) FROM MEMORY () ON ERROR FAIL VALID FROM a TO b"
    with pytest.raises(PenstockError, match="the period has no begin"):
        run(declared, pa.int64(), [(1, 2), (None, 3)])


def test_a_period_that_is_not_declared_is_the_affair_of_its_query() -> None:
    script = "CREATE RELATION s (n INT, a BIGINT, b BIGINT) FROM MEMORY (); CREATE QUERY q AS SELECT n FROM s;"
    bound = bind_script(script + "CREATE QUERY p AS SELECT n, VALID(s) FROM s (n) VALID FROM a TO b;")
    rows = pa.table({
        "n": pa.array([1, 2], pa.int32()), "a": pa.array([1, 5], pa.int64()), "b": pa.array([2, 5], pa.int64())
    })  # fmt: skip
    result = run_local(bound.queries, {"s": rows})
    assert result.tables["q"]["n"].to_pylist() == [1, 2]
    assert result.tables["p"]["n"].to_pylist() == [1]


FILE = """CREATE STREAM S (at TIMESTAMP, n INT, a DATE, b DATE) FROM FILES (path '{0}/in.csv') TIMESTAMP BY at
  ON ERROR {1} VALID FROM a TO b;
CREATE QUERY q INTO FILES (path '{0}/out', format 'csv') AS SELECT n FROM S;"""
#: Of each record (a, b) and why it is malformed; None where it is not.
RECORDS = [
    ("2020-01-01", "2020-01-05", None),
    ("2020-13-01", "2020-01-05", "2020-13-01"),
    ("2020-01-01", "soon", "soon"),
    ("2020-01-05", "2020-01-05", "the period is empty"),
    ("2020-01-05", "2020-01-04", "the period is empty"),
    ("", "2020-01-05", "the period has no begin"),
    ("2020-01-02", "", None),
    ("9999-12-31", "", None),
]


def written(folder: Path, records: list[tuple[str, str, str | None]]) -> None:
    rows = [f"2020-02-0{1 + i} 00:00:00,{i},{a},{b}" for i, (a, b, _) in enumerate(records)]
    (folder / "in.csv").write_text("\n".join(["at,n,a,b", *rows]) + "\n")


def test_records_of_a_file_that_have_no_period_are_dead_letters_with_their_reasons(tmp_path: Path) -> None:
    written(tmp_path, RECORDS)
    run = InlineRun(FILE.format(tmp_path, "DEAD LETTER"), tmp_path / "checkpoint").run()
    letters = [
        json.loads(line)
        for file in Path(run.folder.dead_letters).rglob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    reasons = sorted(reason for *_, reason in RECORDS if reason is not None)
    assert len(letters) == len(reasons)
    for reason in reasons:
        assert any(reason in letter["reason"] or reason in letter["record"] for letter in letters), reason
    table = read_result(tmp_path / "out")
    assert table["n"].to_pylist() == [0, 6, 7]


@pytest.mark.parametrize("bad", [i for i, (*_, reason) in enumerate(RECORDS) if reason is not None])
def test_fail_ends_the_run_at_each_of_them(bad: int, tmp_path: Path) -> None:
    written(tmp_path, [RECORDS[0], RECORDS[bad]])
    with pytest.raises(PenstockError) as caught:
        InlineRun(FILE.format(tmp_path, "FAIL"), tmp_path / "checkpoint").run()
    reason = RECORDS[bad][2]
    assert caught.value.code == "P0403" and reason is not None and reason in str(caught.value)
    assert "in.csv" in str(caught.value)
