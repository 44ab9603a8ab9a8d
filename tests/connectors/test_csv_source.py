"""csv: what is read, and what is rejected with which line and reason, without losing any other row."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from connector_kit import declare, read, told
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algebra.nodes.scans import OnError
from penstock.connectors.formats import lines, packed, quoting
from penstock.connectors.formats.csv import CsvFormat, FileLayout
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError
from penstock.expressions.values.text_casts import string_to_timestamp
from penstock.language.scripts import bind_script
from penstock.types import TIMESTAMP

COLUMNS = "at TIMESTAMP, name STRING, bytes INT"


def rows_of(
    tmp_path: Path, text: str | bytes, columns: str = COLUMNS, **options: str
) -> tuple[list[list[object]], list]:
    place = tmp_path / "in.csv"
    place.write_bytes(text.encode() if isinstance(text, str) else text)
    table, rejected = read(declare(place, columns, **options))
    return [list(row.values()) for row in table.to_pylist()], told(rejected)


def test_a_bad_number_rejects_its_record_alone(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, "name,bytes\na,1\nb,abc\nc,3\n", "name STRING, bytes INT")
    assert rows == [["a", 1], ["c", 3]]
    assert rejected == [(3, "b,abc", "bad number 'abc' in column bytes")]


def test_a_bad_cell_rejects_its_record_also_when_nobody_reads_the_column(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("name,bytes\na,1\nb,abc\n")
    table, rejected = read(declare(tmp_path / "in.csv", "name STRING, bytes INT"), (0,))
    assert (table.to_pylist(), len(rejected)) == ([{"name": "a"}], 1)


SPELLED = (
    "2024-03-01 09:00:00", "2024-03-01T09", "2024-3-1 9:5", "2024-03-01 9:05:06.7", "2024-03", "2024",
    "2024-03-01T09:00:00.123456789", "2024-03-01 09:00:00 UTC", "2024-03-01 09:00:00 +01:00", "2024-03-01 09:00:00UT",
    "2024-03-01 09:00:00-0530", "12024-03-01", "-0044-03-15 12:00", "2024-02-30", "2024-03-01 25:00",
    "2024-03-01 09:00:00 CET", "noon", "1709283600",
)  # fmt: skip


def test_timestamps_are_those_that_cast_reads(tmp_path: Path) -> None:
    """Each alone, and among others in one block: what CAST reads has its value, and other texts are malformed."""
    cast = string_to_timestamp(pa.array(SPELLED), TIMESTAMP)
    expected = cast.cast(pa.int64()).to_pylist()
    assert None in expected and len(set(expected)) > 10
    for texts, values in [
        (SPELLED, expected),
        *(((one,), [value]) for one, value in zip(SPELLED, expected, strict=True)),
    ]:
        place = tmp_path / "in.csv"
        place.write_text("at\n" + "".join(f"{text}\n" for text in texts))
        table, rejected = read(declare(place, "at TIMESTAMP"))
        assert table["at"].cast(pa.int64()).to_pylist() == [value for value in values if value is not None]
        assert [one.reason for one in rejected] == [
            f"bad timestamp '{text}' in column at" for text, value in zip(texts, values, strict=True) if value is None
        ]


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_timestamps_have_the_format_that_is_declared(tmp_path: Path, ending: str) -> None:
    texts = ["01.03.2024 09:05", "2024-03-01 09:06", "31.02.2024 09:07", "", "01.03.2024 09:08"]
    place = tmp_path / f"in.{ending}"
    lines = ["at,n", *(f"{text},1" for text in texts)]
    if ending == "json":
        lines = [json.dumps({"at": text, "n": 1}) for text in texts]
    place.write_text("\n".join(lines))
    table, rejected = read(declare(place, "at TIMESTAMP, n INT", timestamp_format="dd.MM.yyyy HH:mm"))
    shown = [None if at is None else f"{at:%Y-%m-%d %H:%M}" for at in table["at"].to_pylist()]
    assert shown == ["2024-03-01 09:05", None, "2024-03-01 09:08"]
    assert [one.reason for one in rejected] == [f"bad timestamp '{text}' in column at" for text in texts[1:3]]


def test_a_format_of_timestamps_that_is_none_is_refused(tmp_path: Path) -> None:
    script = "CREATE STREAM S (at TIMESTAMP) FROM FILES (path 'x.{}', timestamp_format '{}') TIMESTAMP BY at;"
    with pytest.raises(PenstockError, match="it is a pattern as 'yyyy/MM/dd HH:mm:ss', and this has the letter n"):
        bind_script(script.format("csv", "yyyy-nn"))
    (tmp_path / "in.parquet").touch()
    with pytest.raises(PenstockError, match="timestamp_format is for csv and json, the format is parquet"):
        read(declare(tmp_path / "in.parquet", "at TIMESTAMP", timestamp_format="yyyy"))


@pytest.mark.parametrize("block", [1, 7, 4 * 2**20])
def test_quotes_behind_an_escape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    texts = [
        (r'"say \"hi\", \"no\""', 'say "hi", "no"'),
        (r'"C:\dir\new"', r"C:\dir\new"),
        (r"C:\\dir", r"C:\\dir"),
        (r'"a\\"', "a\\"),
        ('"a""b"', 'a"b'),
        ('"two\nlines\\",x"', 'two\nlines",x'),
    ]
    (tmp_path / "in.csv").write_text("t,n\n" + "".join(f"{written},{n}\n" for n, (written, _) in enumerate(texts)))
    table, rejected = read(declare(tmp_path / "in.csv", "t STRING, n INT", escape="\\"))
    assert (table["t"].to_pylist(), rejected) == ([value for _, value in texts], [])
    assert table["n"].to_pylist() == list(range(len(texts)))


def test_csv_that_spark_writes_is_read(tmp_path: Path) -> None:
    """As Spark 4.3 writes these texts without options, and reads them again."""
    texts = [
        'a"b',
        "c:\\dir",
        "x\\",
        '\\"',
        "\\\\",
        '\\\\"q',
        "\\n,",
        "plain\\\\x",
        'say "hi", \\"no\\"',
    ]
    written = [
        "v,i",
        '"a\\"b",0',
        "c:\\dir,1",
        "x\\,2",
        '"\\\\\\"",3',
        "\\\\,4",
        '"\\\\\\\\\\"q",5',
        '"\\\\n,",6',
        "plain\\\\x,7",
        '"say \\"hi\\", \\\\\\"no\\\\\\"",8',
    ]
    (tmp_path / "in.csv").write_text("\n".join(written) + "\n")
    table, rejected = read(declare(tmp_path / "in.csv", "v STRING, i INT", escape="\\"))
    assert (table["v"].to_pylist(), rejected) == (texts, [])


def test_a_quote_that_is_never_closed_behind_an_escape(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, 't,n\n"a\\",1\nb,2\n', "t STRING, n INT", escape="\\")
    assert (rows, [(line, reason) for line, _, reason in rejected]) == (
        [["b", 2]],
        [(2, "a quoted cell that is not closed")],
    )


def test_ragged_lines(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, "name,bytes\na,1\nb\n\nc,3,4\nd,4", "name STRING, bytes INT")
    assert rows == [["a", 1], ["d", 4]]
    assert rejected == [(3, "b", "1 cells, 2 expected"), (5, "c,3,4", "3 cells, 2 expected")]


def test_lines_count_through_quoted_line_ends_blank_lines_and_ragged_records(tmp_path: Path) -> None:
    text = '\r\nname,bytes\r\n"two\r\nlines",1\r\n\r\nragged\r\n"three\n\nlines",x\r\n"a ""q""",y\r\nlast,2'
    rows, rejected = rows_of(tmp_path, text, "name STRING, bytes INT")
    assert rows == [["two\r\nlines", 1], ["last", 2]]
    assert [(line, reason) for line, _, reason in rejected] == [
        (6, "1 cells, 2 expected"),
        (7, "bad number 'x' in column bytes"),
        (10, "bad number 'y' in column bytes"),
    ]


def test_an_unclosed_quote_costs_only_its_own_line(tmp_path: Path) -> None:
    text = 'name,bytes\na,1\n"b,2\nc,3\n"d",4\ne,5\n"f'
    rows, rejected = rows_of(tmp_path, text, "name STRING, bytes INT")
    assert rows == [["a", 1], ["c", 3], ["d", 4], ["e", 5]]
    assert [(line, record) for line, record, _ in rejected] == [(3, '"b,2'), (7, '"f')]


def test_a_quote_inside_a_plain_cell_is_text(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, 'name,bytes\n5\'10",1\nb"c,x\n"d",2\n', "name STRING, bytes INT")
    assert rows == [["5'10\"", 1], ["d", 2]]
    assert rejected == [(3, 'b"c,x', "bad number 'x' in column bytes")]


def test_an_empty_timestamp_is_null(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, "at,name,bytes\n,a,1\n2013-01-01T10:00:00Z,b,2\n")
    assert [row[0] is None for row in rows] == [True, False]
    assert rejected == []


def test_null_and_the_empty_text_differ(tmp_path: Path) -> None:
    rows, _ = rows_of(tmp_path, 'name,bytes\n,""\n"",\nNA,NA\n"NA", NA \n', "name STRING, bytes INT", null="NA")
    assert rows == [[None, None], ["", None], [None, None], ["NA", None]]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2013-01-01T10:00:00Z", 0),
        ("2013-01-01 10:00:00", 0),
        ("2013-01-01 10:00", 0),
        ("2013-1-1 10:00:00", 0),
        ("2013-01-01T12:00:00+02:00", 0),
        ("2013-01-01 05:30:00.25-0430", 250_000),
        ("2013-01-01T10:00:00.123456789Z", 123_456),
        ("2013-01-01T10:00:00.5", 500_000),
        (" 2013-01-01T10:00:00 ", 0),
        ("2013-01-01 10:00:00 UTC", 0),
    ],
)
def test_spellings_of_a_timestamp(tmp_path: Path, text: str, micros: int) -> None:
    # The first row makes the column mixed: zones beside no zones.
    place = tmp_path / "in.csv"
    for first in ("2013-01-01", "2013-01-01T00:00:00+00:00"):
        place.write_text(f"at\n{first}\n{text}\n")
        table, rejected = read(declare(place, "at TIMESTAMP"))
        assert rejected == []
        ticks = table.column(0).cast(pa.int64()).to_pylist()
        assert ticks == [1_356_998_400_000_000, 1_357_034_400_000_000 + micros]


@pytest.mark.parametrize(
    ("type_", "good", "bad", "kind"),
    [
        ("TIMESTAMP", "2013-02-28", "2013-02-30", "timestamp"),
        ("DATE", "2013-2-1", "tomorrow", "date"),
        ("BOOLEAN", "Yes", "maybe", "boolean"),
        ("DECIMAL(5,2)", "1.005", "12345.6", "number"),
        ("TINYINT", "+127", "128", "number"),
        ("BIGINT", " 7 ", "9223372036854775808", "number"),
        ("DOUBLE", "-1e3", "1,0", "number"),
    ],
)
def test_types_and_what_they_refuse(tmp_path: Path, type_: str, good: str, bad: str, kind: str) -> None:
    rows, rejected = rows_of(tmp_path, f"a;b\n{good};1\n{bad};2\n;3\n", f"a {type_}, b INT", delimiter=";")
    assert [row[1] for row in rows] == [1, 3]
    assert rows[0][0] is not None and rows[1][0] is None
    assert rejected == [(3, f"{bad};2", f"bad {kind} '{bad}' in column a")]


def test_decimals_are_rounded_half_up(tmp_path: Path) -> None:
    rows, _ = rows_of(tmp_path, "a\n1.005\n-1.005\n2\n", "a DECIMAL(5,2)")
    assert [str(row[0]) for row in rows] == ["1.01", "-1.01", "2.00"]


def test_bytes_that_are_no_utf8_reject_their_record(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, b"name,bytes\na,1\n\xff\xfe,2\n", "name STRING, bytes INT")
    assert rows == [["a", 1]]
    assert rejected == [(3, "\\xff\\xfe,2", "bad text '\\xff\\xfe' in column name")]


def test_a_long_record_is_cut(tmp_path: Path) -> None:
    _, rejected = rows_of(tmp_path, "name,bytes\n" + "x" * 5000 + ",y\n", "name STRING, bytes INT")
    assert len(rejected[0][1]) == 1000


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("name,bytes", 0), ("name,bytes\n", 0), ("name,bytes\n\n\n", 0), ("\ufeffname,bytes\na,1", 1)],
)
def test_files_with_little_in_them(tmp_path: Path, text: str, count: int) -> None:
    open_source(declare(tmp_path / "in.csv", "name STRING, bytes INT"))
    rows, rejected = rows_of(tmp_path, text, "name STRING, bytes INT")
    assert (len(rows), rejected) == (count, [])


def test_columns_are_matched_by_name_whatever_case_and_order(tmp_path: Path) -> None:
    rows, _ = rows_of(tmp_path, "more,BYTES, Name\n9,1,a\n", "name STRING, bytes INT")
    assert rows == [["a", 1]]


def test_without_a_header_columns_are_matched_by_position(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, "a\t1\nb\n", "name STRING, bytes INT", header="false", delimiter="\\t")
    assert (rows, rejected) == ([["a", 1]], [(2, "b", "1 cells, 2 expected")])


def test_without_quoting_a_quote_is_text(tmp_path: Path) -> None:
    rows, _ = rows_of(tmp_path, 'name,bytes\n"a,1\n', "name STRING, bytes INT", quote="")
    assert rows == [['"a', 1]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("name,size\na,1\n", {}, "column bytes is missing"),
        ("name,bytes,Bytes\na,1,2\n", {}, "column bytes stands 2 times"),
        ("a,1,2\nb,2,3\n", {"header": "false"}, "the file has 3 columns, 2 are declared"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_the_start(
    tmp_path: Path, text: str, options: dict[str, str], message: str
) -> None:
    place = tmp_path / "in.csv"
    place.write_text(text)
    source = declare(place, "name STRING, bytes INT", **options)
    with pytest.raises(PenstockError, match=message) as error:
        open_source(source).check()
    assert error.value.code == "P0402" and str(place) in error.value.message and error.value.hint
    table, rejected = read(source)
    assert table.num_rows == 0
    assert [(r.line, message in r.reason) for r in rejected] == [(1, True)]


def test_a_compressed_file_that_breaks_off_gives_no_row(tmp_path: Path) -> None:
    whole = "n\n" + "".join(f"{i}\n" for i in range(300_000))
    packed = gzip.compress(whole.encode())
    (tmp_path / "in.csv.gz").write_bytes(packed[: len(packed) // 2])
    table, rejected = read(declare(tmp_path / "in.csv.gz", "n INT"))
    assert table.num_rows == 0
    assert [(r.line, r.reason.split(":")[0]) for r in rejected] == [
        (None, "the compressed file is damaged, nothing of it is read")
    ]


@pytest.mark.parametrize("data", [b"not packed at all", gzip.compress(b"n\n1\n")[:12]], ids=["no gzip", "broken off"])
def test_a_packed_file_that_cannot_be_unpacked_at_all(tmp_path: Path, data: bytes) -> None:
    """It is one rejected record, and hinders no start unless that is asked for."""
    (tmp_path / "in.csv.gz").write_bytes(data)
    table, rejected = read(declare(tmp_path / "in.csv.gz", "n INT"))
    assert table.num_rows == 0 and ["is damaged, nothing of it is read" in r.reason for r in rejected] == [True]
    open_source(declare(tmp_path / "in.csv.gz", "n INT")).check()
    with pytest.raises(PenstockError, match="is damaged, nothing of it is read") as error:
        open_source(declare(tmp_path / "in.csv.gz", "n INT", on_error=OnError.FAIL)).check()
    assert error.value.code == "P0403"


def test_small_blocks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "name,bytes\n" + "".join(f'"n{i}\nx",{i if i % 7 else "bad"}\n' for i in range(500))
    whole = rows_of(tmp_path, text, "name STRING, bytes INT")
    assert len(whole[1]) == 72 and whole[1][1][0] == 16
    monkeypatch.setattr(lines, "BLOCK_BYTES", 50)
    assert rows_of(tmp_path, text, "name STRING, bytes INT") == whole


def test_a_quote_never_closed_in_a_big_file_does_not_swallow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 100)
    text = "name,bytes\n" + "".join(f"{chr(34) if i == 10 else ''}n{i},{i}\n" for i in range(500))
    rows, rejected = rows_of(tmp_path, text, "name STRING, bytes INT", max_record_bytes="400")
    assert len(rows) == 499 and rejected == [(12, '"n10,10', "a quoted cell that is not closed")]


def test_batches_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("n\n" + "1\n" * 600_000)
    source = open_source(declare(tmp_path / "in.csv", "n INT"))
    split = source.splits(str(tmp_path / "in.csv"))[0]
    sizes = [parsed.batch.num_rows for parsed in source.read(split, (0,))]
    assert sum(sizes) == 600_000 and max(sizes) <= 256 * 1024


SPELLINGS = (
    "1", "0", "-0", "+1", "007", "1e2", "1E-2", ".5", "5.", "0x1F", "-0x1", "nan", "NaN", "-inf", "Infinity", "true",
    "True", "yes", "n", "12.345", "99999", "1_000", "١", "2013-01-01", "2013-1-1", "2013-01-01T10",
    "2013-01-01T10:00Z", "2013-01-01T10:00:00.1234567+01", "1969-12-31T23:59", "10000-01-01", "0000-01-01",
    "2013-02-29", "20130101", "NULL", "null", "1e400", "128", "-129", "9223372036854775808", " 1 ", '"1"',
    '" 1"', '""', " ",
)  # fmt: skip


@pytest.mark.parametrize(
    "type_", ["BOOLEAN", "TINYINT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5,2)", "DATE", "TIMESTAMP"]
)
def test_a_cell_means_the_same_beside_a_bad_record(tmp_path: Path, type_: str) -> None:
    place = tmp_path / "in.csv"
    source = declare(place, f"a {type_}, b STRING")
    for text in SPELLINGS:
        # Alone the record takes the fast path if any path does; beside a ragged record it takes the careful one.
        place.write_text(f"a,b\n{text},x\n")
        alone, rejected = read(source)
        place.write_text(f"a,b\n{text},x\nragged\n")
        beside, also = read(source)
        assert str(alone.combine_chunks()) == str(beside.combine_chunks()), text
        assert rejected == also[:-1], text


CELLS = st.lists(st.sampled_from(["a", "1", '"', ",", "\n", "\r\n", '""', "x y", "é", '"a\n"', "7,"]), max_size=40)


@settings(max_examples=150)
@given(CELLS)
def test_the_careful_path_agrees_with_the_fast_one(pieces: list[str]) -> None:
    """Whatever the text: where the fast path takes a block the careful one gives the same, and no record is lost."""
    data = "".join(pieces).encode()
    format_ = CsvFormat(declare("x.csv", "name STRING, bytes STRING"))
    shape = FileLayout(2, {0: 0, 1: 1})
    if not data.strip(b"\r\n"):
        return
    end = format_.quoting.end(data, ended=True)
    assert end in (0, len(data))
    fast = format_._parse_block(data, shape) if end else None
    records = format_.quoting.records(data, 2, 10_000, ended=True)
    careful = format_._parse_by_record("x.csv", 1, records, shape)
    assert records.taken == len(data) and careful.rows + len(careful.rejected) == len(records)
    if fast is not None:
        assert careful.rejected == ()
        assert {p: v.to_pylist() for p, v in fast.columns.items()} == {
            p: v.to_pylist() for p, v in careful.columns.items()
        }
    cut = format_.quoting.end(data)
    assert 0 <= cut <= len(data) and (cut == 0 or data[cut - 1 : cut] in (b"\n", b"\r"))


def test_a_ragged_record_that_is_no_utf8_costs_only_itself(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, b"a,s,at\n1,x,1\n\xff\n2,y,2\n", "a INT, s STRING, at BIGINT")
    assert rows == [[1, "x", 1], [2, "y", 2]]
    assert rejected == [(3, "\\xff", "1 cells, 3 expected")]


def test_a_byte_order_mark_within_a_file_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a block begins with it."""
    for block in (1, 2**20):
        monkeypatch.setattr(lines, "BLOCK_BYTES", block)
        rows, _ = rows_of(tmp_path, "\ufeffname,bytes\na,1\n\ufeffb,2\n\n\ufeffc,3\n", "name STRING, bytes INT")
        assert [row[0] for row in rows] == ["a", "\ufeffb", "\ufeffc"]


def test_a_record_of_many_blocks_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1000)
    rows, rejected = rows_of(tmp_path, "name,bytes\n" + "x" * 99_999 + ",1\nb,2\n", "name STRING, bytes INT")
    assert rows == [["x" * 99_999, 1], ["b", 2]] and rejected == []


@pytest.mark.parametrize("record", ["x" * 5_000 + ",1", '"' + "x" * 5_000 + '",1', '"' + "x\n" * 2_500 + '",1'])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_record_beyond_the_limit_is_one_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str, end: str
) -> None:
    """A quoted cell over several lines that is too long is a quote that nobody closed: its lines are records."""
    text = end.join(["name,bytes", "a,1", record, "b,2", ""])
    for block in (50, 4_000, 2**20):
        monkeypatch.setattr(lines, "BLOCK_BYTES", block)
        rows, rejected = rows_of(tmp_path, text, "name STRING, bytes INT", max_record_bytes="2000")
        assert rows == [["a", 1], ["b", 2]]
        if "\n" in record:
            assert len(rejected) == 2_501 and rejected[0] == (3, '"x', "a quoted cell that is not closed")
        else:
            assert rejected == [(3, record[:1_000], "longer than 2000 bytes, the max_record_bytes of this source")]
        again, _ = rows_of(tmp_path, text, "name STRING, bytes INT", max_record_bytes="5100")
        assert len(again) == 3


@pytest.mark.parametrize("line", ['1,"b,1', 'x",y,"z', 'a"b,"c', '"', '"x""', '1,"b",1'])
def test_quotes_on_every_line_cost_time_in_proportion_to_the_lines(tmp_path: Path, line: str) -> None:
    """Counted in lines that are looked at, which a clock would not show as surely."""
    looked = Counter[str]()
    step = quoting._Scan._read_quoted_line

    def counting(scan: quoting._Scan, opened: quoting._Open, number: int) -> None:
        looked["lines"] += 1
        step(scan, opened, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quoting._Scan, "_read_quoted_line", counting)
        _, rejected = rows_of(tmp_path, "a,s,at\n" + f"{line}\n" * 5_001, "a INT, s STRING, at INT")
    assert looked["lines"] <= 2 * 5_001
    assert line == '1,"b",1' or len(rejected) == 5_001


def test_whole_numbers_out_of_range_are_told_from_others_at_once(tmp_path: Path) -> None:
    texts = [
        "127",
        "128",
        "-128",
        "-129",
        "+0127",
        "000",
        "-0",
        "00128",
        "99999999999999999999999",
        "-1e3",
        "0x1F",
        "x",
    ]
    rows, rejected = rows_of(tmp_path, "n\n" + "\n".join(texts) + "\n", "n TINYINT")
    assert [row[0] for row in rows] == [127, -128, 127, 0, 0]
    assert [record for _, record, _ in rejected] == ["128", "-129", "00128", "9" * 23, "-1e3", "0x1F", "x"]


@pytest.mark.parametrize("type_", ["INT", "BIGINT", "DOUBLE", "DECIMAL(9,2)"])
def test_numbers_that_sql_has_no_literal_for_are_bad(tmp_path: Path, type_: str) -> None:
    """Hexadecimal ones, digits of other scripts and grouping marks, as in json; a text beside them keeps them."""
    texts = [
        "0x1F",
        "-0x1",
        "0X1f",
        "0b1",
        "0o7",
        "0x1p3",
        "\u0661",
        "\uff11\uff12",
        "1_000",
        "1,000",
        "1'000",
        "1 000",
    ]
    lines = "".join(f'{row},"{text}","0xff"\n' for row, text in enumerate(texts))
    for more in ("", "30,x\n"):  # beside a ragged record, cells are read one by one
        rows, rejected = rows_of(tmp_path, f"i,n,t\n{lines}20,7,0xAB\n{more}", f"i INT, n {type_}, t STRING")
        assert [(row[0], float(row[1]), row[2]) for row in rows] == [(20, 7.0, "0xAB")]
        assert [reason.startswith("bad number") for _, _, reason in rejected[: len(texts)]] == [True] * len(texts)


def test_years_before_christ_are_read_as_postgresql_writes_them(tmp_path: Path) -> None:
    text = (
        "d,t\n0044-03-15 BC,0044-03-15 12:30:00 BC\n-0043-03-15,-0043-03-15T12:30:00\n"
        "0001-12-31 BC,0001-01-01 01:00:00.5+01 BC\n0000-01-01 BC,\n-0044-01-01 BC,\n0044-02-30 BC,\n"
    )
    (tmp_path / "in.csv").write_text(text)
    table, rejected = read(declare(tmp_path / "in.csv", "d DATE, t TIMESTAMP"))
    assert table["d"].cast(pa.int32()).to_pylist() == [-735_160, -735_160, -719_163]
    noon = -735_160 * 86_400 + 45_000
    assert table["t"].cast(pa.int64()).to_pylist() == [noon * 10**6, noon * 10**6, -719_528 * 86_400 * 10**6 + 500_000]
    assert [reason.partition(" in ")[0] for _, _, reason in told(rejected)] == [
        f"bad date '{d}'" for d in ("0000-01-01 BC", "-0044-01-01 BC", "0044-02-30 BC")
    ]


@pytest.mark.parametrize(
    ("text", "options", "hint"),
    [
        ("name;bytes\na;1\n", {}, "write delimiter ';'"),
        ("name\tbytes\na\t1\n", {}, "write delimiter 'tab'"),
        ("anna,1\nb,2\n", {}, "write header 'false'"),
        ("a;1\nb;2\n", {"header": "false"}, "with delimiter ';'"),
        ("name,size\na,1\n", {}, "the file's columns: name, size"),
    ],
)
def test_a_wrong_delimiter_and_a_missing_header_are_told(
    tmp_path: Path, text: str, options: dict[str, str], hint: str
) -> None:
    (tmp_path / "in.csv").write_text(text)
    with pytest.raises(PenstockError) as error:
        open_source(declare(tmp_path / "in.csv", "name STRING, bytes INT", **options)).check()
    assert error.value.code == "P0402" and hint in (error.value.hint or "")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16le", "utf-16be", "utf-32"])
@pytest.mark.parametrize("name", ["in.csv", "in.json"])
def test_text_that_is_not_utf8_is_named(tmp_path: Path, encoding: str, name: str) -> None:
    text = "name,bytes\na,1\n" if name == "in.csv" else '{"name":"a","bytes":1}\n'
    (tmp_path / name).write_bytes(text.encode(encoding))
    source = declare(tmp_path / name, "name STRING, bytes INT")
    with pytest.raises(PenstockError, match=f"the file is {encoding.upper()}") as error:
        open_source(source).check()
    assert error.value.code == "P0402" and "iconv" in (error.value.hint or "")
    table, rejected = read(source)
    assert table.num_rows == 0 and len(rejected) == 1


@pytest.mark.parametrize("limit", ["0", "-1", "many", "99999999999"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: str) -> None:
    with pytest.raises(PenstockError) as error:
        open_source(declare(tmp_path / "in.csv", "n INT", max_record_bytes=limit))
    assert error.value.code == "P0208"


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".GZ": gzip.compress}


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("held", [0, 2**24])
def test_a_compressed_file_is_read_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, held: int
) -> None:
    monkeypatch.setattr(packed, "HELD_BYTES", held)
    pack = PACKERS[suffix]
    text = b"".join(b"%d,abc%d\n" % (i, i * 7919 % 100_003) for i in range(20_000))
    place = tmp_path / f"in.csv{suffix}"
    sound = pack(b"at,s\n") + pack(text)
    place.write_bytes(sound)
    whole, rejected = read(declare(place, "at BIGINT, s STRING"))
    assert (whole.num_rows, rejected) == (20_000, [])
    for damage in (sound[:-1], sound[: len(sound) // 2], sound + b"more", flipped(sound, 2), flipped(sound, 3)):
        place.write_bytes(damage)
        table, rejected = read(declare(place, "at BIGINT, s STRING"))
        assert table.num_rows == 0
        assert [r.reason.partition(":")[0] for r in rejected] == [
            "the compressed file is damaged, nothing of it is read"
        ]


def flipped(data: bytes, part: int) -> bytes:
    place = len(data) // part
    return data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("head", "message", "hint"),
    [
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "is compressed by gzip", "end with .gz"),
        (b"PK\x03\x04 a workbook", "is a zip archive", "save it as csv"),
        (b"PAR1 columns", "is parquet", "format 'parquet'"),
    ],
)
def test_a_file_that_is_no_text_is_named(tmp_path: Path, head: bytes, message: str, hint: str) -> None:
    (tmp_path / "in.csv").write_bytes(head)
    with pytest.raises(PenstockError, match=message) as caught:
        open_source(declare(tmp_path / "in.csv", "a INT, b INT")).check()
    assert caught.value.code == "P0402" and hint in (caught.value.hint or "")


@pytest.mark.parametrize("address", ["s3://bucket/in.csv", "http://example.com/in.csv"])
def test_an_address_is_no_file_of_this_machine(address: str) -> None:
    with pytest.raises(PenstockError, match="P0404") as caught:
        open_source(declare(address, "a INT, b INT")).check()
    assert "files of this machine" in (caught.value.hint or "")
