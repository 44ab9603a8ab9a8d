"""ADVANCE AT MOST in a run: the verdict on a record follows from the input alone, however it is read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold

from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.formats import parquet
from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.execution.ingest import TOO_FAR_AHEAD
from penstock.runtime.local.runtime import run_local
from penstock.testing.oracle import run_oracle

MOST = 5


def random_ticks(draw: random.Random, count: int) -> list[int]:
    """Ticks that go forward by a little, with some that lie far ahead, just allowed, just not, or back."""
    tick, found = draw.choice([-50, 0, 10**9]), []
    for _ in range(count):
        ahead = draw.random() < 0.15
        found.append(tick + (draw.choice([MOST, MOST + 1, 10**6, 2**40, -1]) if ahead else 0))
        tick += draw.choice([0, 1, 1, 3, MOST])
    return found


def write(folder: Path, rows: pa.Table, suffix: str, draw: random.Random) -> None:
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, rows.num_rows, 10)):
        part, place = rows.slice(start, 10), folder / f"{number:03d}.{suffix}"
        if suffix == "parquet":
            pq.write_table(part, place, row_group_size=draw.choice([2, 5, 10]))
        else:
            lines = ["ts,k", *(",".join(map(str, row.values())) for row in part.to_pylist())]
            place.write_text("\n".join(lines) + "\n")


def script(folder: Path, suffix: str, out: Path, tail: str = "", most: int = 10**6) -> str:
    header = ", header 'true'" if suffix == "csv" else ""
    return f"""SET max_batch_bytes = {most}; SET shards = 2;
    CREATE STREAM S (ts BIGINT, k INT) FROM FILES (path '{folder}', format '{suffix}'{header})
      TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 2 SECONDS ADVANCE AT MOST {MOST} SECONDS {tail};
    CREATE QUERY q INTO FILES (path '{out}', format 'parquet') AS SELECT ts AS at, k FROM S WHERE k > 2;"""


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_verdict_follows_from_the_input_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    far = 0
    for seed in range(4):
        draw = random.Random(seed)
        ticks = random_ticks(draw, 60)
        rows = pa.table({"ts": pa.array(ticks, pa.int64()), "k": pa.array([t % 7 for t in ticks], pa.int32())})
        write(tmp_path / f"{seed}" / "data", rows, suffix, draw)
        answers = set()
        monkeypatch.setattr(parquet, "_SPLIT_ROWS", draw.choice([2, 5, 10**6]))
        for number, (most, parallelism) in enumerate([(1, 1), (10**6, 1), (10**6, 3), (150, 2)]):
            cold()
            out = tmp_path / f"{seed}" / f"out{number}"
            text = script(tmp_path / f"{seed}" / "data", suffix, out, most=most)
            run = InlineRun(text, tmp_path / f"{seed}" / f"checkpoint{number}", parallelism=parallelism).run()
            letters = [letter.reason for letter in DeadLetters(run.folder.dead_letters).read("S")]
            answers.add((letters.count(TOO_FAR_AHEAD), str(sorted(map(repr, read_result(str(out)).to_pylist())))))
        (query,) = bind_script(text).queries
        expected = run_oracle(query, {"S": rows})
        ((count, shown),) = answers
        assert count == expected.rejected["S"].get(TOO_FAR_AHEAD, 0), seed
        assert shown.count("'at'") == len(expected.events), seed
        far += count
    assert far > 10


@pytest.fixture
def one_far(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("ts,k\n1,3\n4000000000,4\n2,5\n")
    return tmp_path


def test_it_ends_a_run_that_is_to_fail(one_far: Path) -> None:
    run = InlineRun(script(one_far / "data", "csv", one_far / "out", "ON ERROR FAIL"), one_far / "checkpoint")
    with pytest.raises(PenstockError, match="too far ahead") as caught:
        run.run()
    assert caught.value.code == "P0403"


def test_it_is_counted_where_it_is_skipped(one_far: Path) -> None:
    run = InlineRun(script(one_far / "data", "csv", one_far / "out", "ON ERROR SKIP"), one_far / "checkpoint").run()
    assert read_result(str(one_far / "out")).column("k").to_pylist() == [3, 5]
    assert list(DeadLetters(run.folder.dead_letters).read("S")) == []
    assert run.folder.read_seen(run.folder.rounds()[0])["S"].malformed == {TOO_FAR_AHEAD: 1}


@pytest.mark.parametrize("policy", ["FAIL", "SKIP", "DEAD LETTER"])
def test_the_local_runtime_obeys_on_error(policy: str) -> None:
    bound = bind_script(
        "CREATE STREAM S (ts BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND ADVANCE AT MOST 5 SECONDS "
        f"ON ERROR {policy}; CREATE QUERY q AS SELECT ts AS at FROM S;"
    )
    inputs: dict[str, Any] = {"S": pa.table({"ts": [2**61 - 1, 2**61, 1, 2]})}
    bound_inputs = {"S": pa.table({"ts": [1, 2**60, 2]})}
    if policy == "FAIL":
        for given in (inputs, bound_inputs):
            with pytest.raises(PenstockError, match="P0403"):
                run_local(bound.queries, given)
        return
    result = run_local(bound.queries, bound_inputs)
    assert result.tables["q"].column("at").to_pylist() == [1, 2]
    assert result.rejected == {"S": {TOO_FAR_AHEAD: 1}} and result.unusable == {"S": 0}
    # What is out of range is no first element; the largest tick of all may be one.
    result = run_local(bound.queries, inputs)
    assert result.unusable == {"S": 1} and result.late == {"S": 2}
