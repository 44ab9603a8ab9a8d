"""parquet and arrow: types that fit and do not, statistics, splits, and files that are damaged."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_kit import EVERY_TYPE, declare, read, schema_of
from pyarrow import feather

from penstock.algebra.nodes.scans import OnError
from penstock.connectors.formats import FORMATS, arrow, parquet
from penstock.connectors.formats.columnar import check_buffers, columns_of
from penstock.connectors.formats.footer import Footer
from penstock.connectors.formats.parquet import RowGroups
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError
from penstock.expressions.evaluation.value_ranges import ValueRange, plain
from penstock.expressions.nodes import Call, Column, Literal
from penstock.language.scripts import bind_script
from penstock.types import parse_type

NOON = dt.datetime(2013, 1, 1, 12)


def ipc(table: pa.Table, path: Path, rows: int = 10) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


@pytest.mark.parametrize(
    ("values", "declared", "expected"),
    [
        (pa.array([1], pa.int32()), "BIGINT", 1),
        (pa.array([1], pa.uint16()), "INT", 1),
        (pa.array([1], pa.int64()), "DOUBLE", 1.0),
        (pa.array([1.5], pa.float32()), "DOUBLE", 1.5),
        (pa.array(["a"]).dictionary_encode(), "STRING", "a"),
        (pa.array(["a"], pa.large_string()), "STRING", "a"),
        (pa.array([b"a"], pa.binary()), "STRING", "a"),
        (pa.array([None], pa.null()), "INT", None),
        (pa.array([NOON], pa.timestamp("ms")), "TIMESTAMP", NOON.replace(tzinfo=dt.UTC)),
        (pa.array([NOON], pa.timestamp("us", "Europe/Berlin")), "TIMESTAMP", NOON.replace(tzinfo=dt.UTC)),
        (pa.array([-1], pa.timestamp("ns")), "TIMESTAMP", dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)),
        (pa.array([NOON.date()]), "TIMESTAMP", dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_compatible_types_are_cast(tmp_path: Path, values: pa.Array, declared: str, expected: object) -> None:
    ipc(pa.table({"a": values}), tmp_path / "in.arrow")
    source = declare(tmp_path / "in.arrow", f"a {declared}")
    open_source(source).check()
    table, rejected = read(source)
    assert (table.to_pylist(), rejected) == ([{"a": expected}], [])


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        (pa.string(), "INT"), (pa.string(), "TIMESTAMP"), (pa.int64(), "INT"), (pa.uint64(), "BIGINT"),
        (pa.float64(), "FLOAT"), (pa.float64(), "BIGINT"), (pa.int64(), "DECIMAL(10,2)"), (pa.int64(), "TIMESTAMP"),
        (pa.timestamp("us"), "DATE"), (pa.timestamp("us"), "BIGINT"), (pa.int32(), "STRING"), (pa.bool_(), "INT"),
        (pa.decimal128(10, 3), "DECIMAL(10,2)"), (pa.int32(), "BINARY"), (pa.date32(), "STRING"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_other_types_are_refused_before_the_start(
    tmp_path: Path, stored: pa.DataType, declared: str, suffix: str
) -> None:
    place = tmp_path / f"in.{suffix}"
    table = pa.table({"a": pa.array([], stored)})
    pq.write_table(table, place) if suffix == "parquet" else ipc(table, place)
    with pytest.raises(PenstockError, match=r"column a is .* in the file and declared") as error:
        open_source(declare(place, f"a {declared}")).check()
    assert error.value.code == "P0402" and str(place) in error.value.message


@pytest.mark.parametrize("values", [[[1], [2, 3]], [{"x": 1}, {"x": 2}]])
def test_the_hint_for_a_list_is_not_to_declare_one(tmp_path: Path, values: list[object]) -> None:
    """No column can be declared as what such a file has."""
    pq.write_table(pa.table({"a": values}), tmp_path / "in.parquet")
    with pytest.raises(PenstockError, match="column a is") as error:
        open_source(declare(tmp_path / "in.parquet", "a STRING")).check()
    assert "leave it out" in (error.value.hint or "")


def test_a_missing_column_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "in.parquet")
    with pytest.raises(PenstockError, match="column b is missing") as error:
        open_source(declare(tmp_path / "in.parquet", "a BIGINT, b INT")).check()
    assert (error.value.code, error.value.hint) == ("P0402", "the file's columns: a")


def test_a_value_that_does_not_fit_rejects_its_row(tmp_path: Path) -> None:
    values = pa.array([b"a", b"\xff", b"c"], pa.binary())
    ipc(pa.table({"n": [1, 2, 3], "a": values}), tmp_path / "in.arrow")
    table, rejected = read(declare(tmp_path / "in.arrow", "a STRING, n BIGINT"))
    assert table.column("n").to_pylist() == [1, 3]
    assert len(rejected) == 1 and "in column a" in rejected[0].reason


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_splits_carry_rows_and_the_range_of_the_timestamp(
    tmp_path: Path, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_SPLIT_ROWS", 200)
    at = pa.array(np.arange(500), pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit))
    pq.write_table(pa.table({"at": at}), tmp_path / "in.parquet", row_group_size=100)
    source = open_source(declare(tmp_path / "in.parquet", "at TIMESTAMP", timestamp=0))
    splits = source.splits(str(tmp_path / "in.parquet"))
    assert [(s.start, s.stop, s.rows) for s in splits] == [(0, 2, 200), (2, 4, 200), (4, 5, 100)]
    assert [(s.low, s.high) for s in splits] == [
        (0, 199_000_000),
        (200_000_000, 399_000_000),
        (400_000_000, 499_000_000),
    ]
    table, _ = read(source)
    assert table.column(0).cast(pa.int64()).to_pylist() == [i * 1_000_000 for i in range(500)]


def test_without_statistics_the_range_is_unknown(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"at": pa.array([1], parse_type("TIMESTAMP"))}), tmp_path / "in.parquet", write_statistics=False
    )
    splits = open_source(declare(tmp_path / "in.parquet", "at TIMESTAMP", timestamp=0)).splits(
        str(tmp_path / "in.parquet")
    )
    assert [(s.low, s.high) for s in splits] == [(None, None)]


def two_files(tmp_path: Path, suffix: str) -> Path:
    """`1.` is damaged, `2.` is sound."""
    table = pa.table({"a": pa.array(range(1000), pa.int64())})
    for name in ("1", "2"):
        place = tmp_path / f"{name}.{suffix}"
        pq.write_table(table, place, row_group_size=100) if suffix == "parquet" else ipc(table, place, 100)
    return tmp_path / f"1.{suffix}"


def test_a_truncated_parquet_file_is_one_dead_letter_and_the_others_go_on(tmp_path: Path) -> None:
    damaged = two_files(tmp_path, "parquet")
    damaged.write_bytes(damaged.read_bytes()[:-200])
    source = open_source(declare(tmp_path, "a BIGINT"))
    source.check()
    table, rejected = read(source)
    assert table.num_rows == 1000
    assert [(r.path, r.line) for r in rejected] == [(str(damaged), None)]
    assert rejected[0].reason.startswith("not a readable parquet file: ")


def test_a_truncated_parquet_file_fails_a_run_that_asked_for_it(tmp_path: Path) -> None:
    damaged = two_files(tmp_path, "parquet")
    damaged.write_bytes(damaged.read_bytes()[:-200])
    with pytest.raises(PenstockError, match=r"1\.parquet: not a readable parquet file") as error:
        open_source(declare(tmp_path, "a BIGINT", on_error=OnError.FAIL)).check()
    assert error.value.code == "P0403"


def test_a_damaged_row_group_costs_only_itself(tmp_path: Path) -> None:
    damaged = two_files(tmp_path, "parquet")
    with pq.ParquetFile(damaged) as file:
        start = file.metadata.row_group(3).column(0).dictionary_page_offset
    data = bytearray(damaged.read_bytes())
    data[start : start + 40] = b"\xff" * 40
    damaged.write_bytes(data)
    table, rejected = read(declare(damaged, "a BIGINT"))
    assert table.column(0).to_pylist() == [i for i in range(1000) if not 300 <= i < 400]
    assert len(rejected) == 1 and rejected[0].reason.startswith("row group 3 cannot be read from its row 0 of 100 on: ")


def test_a_truncated_arrow_file_keeps_what_was_read(tmp_path: Path) -> None:
    damaged = two_files(tmp_path, "arrow")
    damaged.write_bytes(damaged.read_bytes()[:4500])
    table, rejected = read(declare(tmp_path, "a BIGINT"))
    rows = table.num_rows - 1000
    assert rows > 0 and rows % 100 == 0
    assert len(rejected) == 1 and rejected[0].reason.startswith(f"the file ends after row {rows}: ")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_later_file_with_other_columns_is_rejected_whole(tmp_path: Path, suffix: str) -> None:
    two_files(tmp_path, suffix)
    other = pa.table({"b": [1]})
    place = tmp_path / f"3.{suffix}"
    pq.write_table(other, place) if suffix == "parquet" else ipc(other, place)
    table, rejected = read(declare(tmp_path, "a BIGINT"))
    assert table.num_rows == 2000
    assert [(r.path, r.reason) for r in rejected] == [(str(place), "column a is missing")]


def test_statistics_bound_values_as_the_language_orders_them(tmp_path: Path) -> None:
    """Of every type: what bounds a row group bounds its values, and where the order may differ nothing is said."""
    place = tmp_path / "in.parquet"
    pq.write_table(EVERY_TYPE, place, row_group_size=2)
    source = declare(place, schema_of(EVERY_TYPE), 0)
    told: set[str] = set()
    with pq.ParquetFile(place) as file:
        columns = columns_of(FORMATS["parquet"](source), str(place), file.schema_arrow)
        groups = RowGroups(file, Footer(str(place), file, columns.names), source, columns, {})
        for group in range(2):
            for position, column in enumerate(EVERY_TYPE.columns):
                values = groups.of(group, position)
                stored = column.slice(2 * group, 2).to_pylist()
                known = [plain(value, column.type) for value in stored if value is not None]
                assert values.nulls == (None in stored) and values.some == bool(known), EVERY_TYPE.column_names[
                    position
                ]
                if values.low is not None:
                    assert (values.low, values.high) == (min(known), max(known))
                    told.add(EVERY_TYPE.column_names[position])
    assert told == set(EVERY_TYPE.column_names) - {"single", "real", "raw"}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_statistics_of_timestamps_are_in_ticks(tmp_path: Path, unit: str) -> None:
    place = tmp_path / "in.parquet"
    times = pa.array([NOON, None, NOON + dt.timedelta(seconds=1)], pa.timestamp(unit))
    pq.write_table(pa.table({"a": times}), place)
    source = declare(place, "a TIMESTAMP", 0)
    with pq.ParquetFile(place) as file:
        columns = columns_of(FORMATS["parquet"](source), str(place), file.schema_arrow)
        groups = RowGroups(file, Footer(str(place), file, columns.names), source, columns, {})
        first = 1_357_041_600_000_000
        assert groups.of(0, 0) == ValueRange(first, first + 1_000_000, nulls=True)
        # One of them has no timestamp, so not all are bounded.
        assert (groups.ticks(0), groups.all_ticks(0)) == ((first, first + 1_000_000), (None, None))


@pytest.mark.parametrize(
    ("by", "known"),
    [
        ("a UNIT MILLISECOND SINCE EPOCH", True),
        ("TIMESTAMP_SECONDS(a)", True),
        ("DATE_TRUNC('MINUTE', TIMESTAMP_MILLIS(a))", True),
        ("TIMESTAMP_MILLIS(a % 5000)", False),
        ("TIMESTAMP_MILLIS(a + b)", False),
    ],
)
def test_statistics_bound_timestamps_that_rise_with_a_column(tmp_path: Path, by: str, known: bool) -> None:
    place = tmp_path / "in.parquet"
    values = [7_000, 65_000, 66_000, 130_000]
    pq.write_table(pa.table({"a": pa.array(values, pa.int64()), "b": pa.array([0] * 4, pa.int64())}), place, 2)
    script = f"CREATE STREAM S (a BIGINT, b BIGINT) FROM FILES (path '{place}') TIMESTAMP BY {by};"
    source = bind_script(script).catalog.sources["s"]
    stored = pa.array(values, pa.int64())
    stamps = source.timestamps(lambda position: stored, 4)
    with pq.ParquetFile(place) as file:
        columns = columns_of(FORMATS["parquet"](source), str(place), file.schema_arrow)
        groups = RowGroups(file, Footer(str(place), file, columns.names), source, columns, {})
        for group in range(2):
            bounds = tuple(stamps.cast(pa.int64())[2 * group : 2 * group + 2].to_pylist())
            expected = bounds if known else (None, None)
            assert (groups.ticks(group), groups.all_ticks(group)) == (expected, expected)


def test_statistics_of_a_timestamp_that_cannot_be_computed_say_nothing(tmp_path: Path) -> None:
    place = tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": pa.array([1, 2**62], pa.int64())}), place)
    script = f"CREATE STREAM S (a BIGINT) FROM FILES (path '{place}') TIMESTAMP BY TIMESTAMP_SECONDS(a);"
    (split,) = FORMATS["parquet"](bind_script(script).catalog.sources["s"]).ranges(str(place))
    assert (split.low, split.high) == (None, None)


def test_a_file_without_statistics_is_read(tmp_path: Path) -> None:
    place = tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int64())}), place, write_statistics=False)
    source = declare(place, "a BIGINT")
    three = Call(pa.bool_(), "EQ", (Column(pa.int64(), 0), Literal(pa.int64(), 3)))
    assert read(open_source(source, three))[0].num_rows == 2
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int64())}), place)
    assert read(open_source(source, three))[0].num_rows == 0


@pytest.mark.parametrize(("stored", "surely"), [(pa.int32(), True), (pa.large_string(), True), (pa.binary(), False)])
def test_records_that_may_be_malformed_are_never_passed_over(tmp_path: Path, stored: pa.DataType, surely: bool) -> None:
    place = tmp_path / "in.parquet"
    bad = {pa.int32(): 7, pa.large_string(): "q", pa.binary(): b"\xff"}[stored]
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int64()), "b": pa.array([bad, None], stored)}), place)
    source = declare(place, "a BIGINT, b " + ("BIGINT" if stored == pa.int32() else "STRING"))
    three = Call(pa.bool_(), "EQ", (Column(pa.int64(), 0), Literal(pa.int64(), 3)))
    table, rejected = read(open_source(source, three))
    assert (table.num_rows, len(rejected)) == ((0, 0) if surely else (1, 1))
    # A column that nobody reads is not converted, wanted rows or not.
    assert read(open_source(source, three), (0,))[0].num_rows == 0


@pytest.mark.parametrize(("asked", "decoded"), [((1,), ["b"]), ((2, 0), ["a", "c"]), ((), ["a"])])
def test_only_columns_that_are_read_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[int, ...], decoded: list[str]
) -> None:
    feather.write_feather(pa.table({"a": [1, 2], "b": ["x", "y"], "c": [3, 4]}), tmp_path / "in.feather")
    found: list[list[str]] = []
    fit = arrow.fitted
    monkeypatch.setattr(
        arrow, "fitted", lambda f, path, batch, c: found.append(batch.schema.names) or fit(f, path, batch, c)
    )
    table, _ = read(declare(tmp_path / "in.feather", "a BIGINT, b STRING, c BIGINT"), asked)
    assert (found, table.num_rows, table.column_names) == ([decoded], 2, ["abc"[c] for c in asked])


LAST = 2**63 - 1


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize(
    ("unit", "value", "fits"),
    [
        ("s", LAST // 1_000, False), ("s", LAST // 1_000_000 + 1, False), ("s", LAST // 1_000_000, True),
        ("ms", LAST, False), ("ms", -LAST, False), ("ms", LAST // 1_000, True), ("ms", -LAST - 1, False),
        ("us", LAST, True), ("us", -LAST - 1, True),
        ("ns", LAST, True), ("ns", -LAST, True), ("ns", -LAST - 1, True),
    ],
)  # fmt: skip
def test_a_timestamp_at_the_limits_costs_its_record_at_most(
    tmp_path: Path, suffix: str, zone: str | None, unit: str, value: int, fits: bool
) -> None:
    table = pa.table(
        {"a": pa.array([1, 2, 3], pa.int32()), "at": pa.array([1000, value, 3000], pa.timestamp(unit, zone))}
    )
    place = tmp_path / f"x.{suffix}"
    pq.write_table(table, place) if suffix == "parquet" else feather.write_feather(table, place)
    source = declare(place, "a INT, at TIMESTAMP", timestamp=1)
    found, rejected = read(source)
    assert found.column("a").to_pylist() == ([1, 2, 3] if fits else [1, 3])
    day = str(np.datetime64(max(value, -LAST), unit)).split("T")[0]  # NumPy's own calendar; its least number is no time
    assert [day in r.record and "bad timestamp" in r.reason for r in rejected] == [True] * (not fits)
    for split in open_source(source).splits(str(place)):
        assert all(bound is None or -LAST - 1 <= bound <= LAST for bound in (split.low, split.high))
    ticks = found.column("at").cast(pa.int64()).to_pylist()
    scale = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}[unit]
    assert not fits or ticks[1] == value * scale[0] // scale[1]


@pytest.mark.parametrize("days", [2**31 - 1, -(2**31), 106_751_991 + 1])
def test_a_date_that_is_no_timestamp_costs_its_record(tmp_path: Path, days: int) -> None:
    table = pa.table({"a": [1, 2], "at": pa.array([0, days], pa.int32()).cast(pa.date32())})
    pq.write_table(table, tmp_path / "x.parquet")
    found, rejected = read(declare(tmp_path / "x.parquet", "a BIGINT, at TIMESTAMP", timestamp=1))
    assert found.num_rows == 1 and [str(np.datetime64(days, "D")) in r.record for r in rejected] == [True]
    dates, none = read(declare(tmp_path / "x.parquet", "a BIGINT, at DATE"))
    assert (dates.column("at").cast(pa.int32()).to_pylist(), none) == ([0, days], [])


def test_statistics_of_far_dates_are_not_used(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())})
    pq.write_table(table, tmp_path / "x.parquet")
    source = declare(tmp_path / "x.parquet", "at DATE")
    format_ = FORMATS["parquet"](source)
    with pq.ParquetFile(tmp_path / "x.parquet") as file:
        columns = columns_of(format_, str(tmp_path), file.schema_arrow)
        footer = Footer(str(tmp_path / "x.parquet"), file, columns.names)
        assert footer.place(0, "at") == 0
        groups = RowGroups(file, footer, source, columns, {})
        assert groups.of(0, 0).low is None


def test_a_name_of_a_column_that_is_no_text_rejects_its_file(tmp_path: Path) -> None:
    place = tmp_path / "x.arrow"
    ipc(pa.table({"näme": [1]}), place)
    place.write_bytes(place.read_bytes().replace("ä".encode(), b"\xff\xfe"))
    found, rejected = read(declare(place, "a INT"))
    assert found.num_rows == 0 and len(rejected) == 1


def test_a_damaged_footer_ends_no_process(tmp_path: Path) -> None:
    """Arrow raises past Python where bounds are shorter than their type, or another type stands there than the schema
    says: then nothing is known of the values, and the rows are read."""
    place = tmp_path / "x.parquet"
    pq.write_table(pa.table({"at": pa.array([77_000_000, 78_000_000], pa.timestamp("us"))}), place)
    sound = place.read_bytes()
    source = declare(place, "at TIMESTAMP", 0)
    (split,) = FORMATS["parquet"](source).ranges(str(place))
    assert (split.low, split.high) == (77_000_000, 78_000_000)
    low = (77_000_000).to_bytes(8, "little")
    footer = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    at = sound.index(b"\x08" + low, footer)
    # A bound of seven bytes, in a footer that is shorter by one.
    length = (len(sound) - 9 - footer).to_bytes(4, "little")
    place.write_bytes(sound[:at] + b"\x07" + low[1:] + sound[at + 9 : -8] + length + sound[-4:])
    with pq.ParquetFile(tmp_path / "x.parquet") as file:
        assert Footer(str(place), file, ["at"]).place(0, "at") is None
    for position in range(footer, len(sound) - 8):
        place.write_bytes(sound[:position] + bytes([(sound[position] + 1) % 256]) + sound[position + 1 :])
        try:
            FORMATS["parquet"](source).splits(str(place))
        except PenstockError:
            continue


def damaged_arrow(place: Path, type_: pa.DataType, stream: bool) -> None:
    """Write a batch with offsets, or indices into a dictionary, one of which is damaged; Arrow reads such a batch."""
    texts = [f"value {i}" for i in range(50)]
    if pa.types.is_dictionary(type_):
        indices = np.arange(50, dtype=np.int8)
        indices[20] = 117
        column = pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(texts), safe=False)
    else:
        whole = pa.array(texts, type_)
        offsets = np.frombuffer(whole.buffers()[1], np.int64 if pa.types.is_large_string(type_) else np.int32).copy()
        offsets[20] = 2**30
        column = pa.Array.from_buffers(type_, 50, [None, pa.py_buffer(offsets.tobytes()), whole.buffers()[2]])
    batch = pa.record_batch([pa.array(range(50), pa.int64()), column], ["at", "s"])
    write = pa.ipc.new_stream if stream else pa.ipc.new_file
    with write(str(place), batch.schema) as writer:
        writer.write_batch(batch)


def test_an_arrow_batch_whose_values_lie_outside_of_it_ends_no_process(tmp_path: Path) -> None:
    """One process reads a file of each type after the other, and prints a line for each."""
    types = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
    kinds = [(type_, stream) for type_ in types for stream in (False, True)]
    scripts = []
    for number, (type_, stream) in enumerate(kinds):
        place = tmp_path / f"damaged{number}.arrow"
        damaged_arrow(place, type_, stream)
        scripts.append(
            f"""CREATE STREAM S (at BIGINT, s STRING) FROM FILES (path '{place}', format 'arrow') TIMESTAMP BY at;
            CREATE QUERY q INTO MEMORY () AS SELECT at, s FROM S;"""
        )
    code = f"""
from penstock.runtime.local.inprocess import answer_here
from penstock.session import Session
for script in {scripts!r}:
    session = Session()
    session.declare(script)
    answer = answer_here(list(session.catalog.queries.values()))
    print(answer.tables["q"].num_rows, answer.rejected, answer.unusable, flush=True)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = found.stdout.splitlines()
    assert found.returncode == 0, (kinds[len(lines) : len(lines) + 1], found.stderr)
    assert len(lines) == len(kinds)
    for kind, line in zip(kinds, lines, strict=True):
        assert line.startswith("0 ") and "'S'" in line, (kind, line)


def test_texts_of_any_bytes_are_judged_one_by_one(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 3], np.int32).tobytes()), pa.py_buffer(b"a\xff\xfe")]
    )
    check_buffers(pa.record_batch([bad], ["s"]))
