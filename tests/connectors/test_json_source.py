"""json lines: what is read, and what is rejected with which line and reason."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from connector_kit import declare, read, told

from penstock.connectors.formats import json as json_format
from penstock.connectors.formats import lines
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError

COLUMNS = "at TIMESTAMP, name STRING, bytes INT"


def rows_of(tmp_path: Path, text: str | bytes, columns: str = COLUMNS) -> tuple[list[list[object]], list]:
    place = tmp_path / "in.json"
    place.write_bytes(text.encode() if isinstance(text, str) else text)
    table, rejected = read(declare(place, columns))
    return [list(row.values()) for row in table.to_pylist()], told(rejected)


def test_whole_numbers_beyond_doubles_may_be_texts(tmp_path: Path) -> None:
    """So results in json have them, also those that a server sends."""
    lines = ['"9223372036854775807"', '"-9223372036854775808"', "9223372036854775807", '"9223372036854775808"', '"1.0"',
             '" 1"', '""', '"1\\n"']  # fmt: skip
    found, rejected = rows_of(tmp_path, "".join(f'{{"n":{line}}}\n' for line in lines), "n BIGINT")
    assert found == [[2**63 - 1], [-(2**63)], [2**63 - 1]]
    assert [line for line, _, _ in rejected] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[{"n":1},{"n":2}]\n', [1, 2]),
        ('[\n  {"n":1},\n  {"n":2}\n]\n', [1, 2]),
        (' [\r\n{\r\n"n":\r\n1\r\n}\r\n]', [1]),
        ('[{"n":1}\n,{"n":2}\n,{"n":3}]', [1, 2, 3]),
        ("[]", []),
        ('[{"t":"],[{\\"\\\\","n":1},{"t":{"a":[1,{"n":5}]},"n":2}]', [1, 2]),
    ],
)
def test_a_file_that_is_an_array_is_read_as_its_elements(tmp_path: Path, text: str, found: list[int]) -> None:
    assert json.loads(text) is not None
    rows, rejected = rows_of(tmp_path, text, "n INT")
    assert ([row[0] for row in rows], rejected) == (found, [])


def test_elements_of_an_array_are_rejected_alone_with_their_lines(tmp_path: Path) -> None:
    text = '[{"n":1},\n  {"n":"x"},\n\n5, {"n":2}, [1],\n {"n":}, {"n":3}, {"t":"a\nb","n":4}, {"n":5}\n]\n'
    rows, rejected = rows_of(tmp_path, text, "n INT, t STRING")
    assert [row[0] for row in rows] == [1, 2, 3, 5]
    assert [(line, reason) for line, _, reason in rejected] == [
        (2, "bad number '\"x\"' in column n"),
        (4, "not a JSON object"),
        (4, "a JSON array, not a JSON object"),
        (5, "broken JSON: Expecting value at column 8"),
        (5, "broken JSON: Invalid control character at at column 9"),
    ]


@pytest.mark.parametrize(("text", "found"), [('[{"n":1},{"n":2},{"n', [1, 2]), ('[{"n":1},{"n":2}', [1, 2])])
def test_an_array_without_its_end_keeps_its_elements(tmp_path: Path, text: str, found: list[int]) -> None:
    rows, rejected = rows_of(tmp_path, text, "n INT")
    assert [row[0] for row in rows] == found
    assert [reason for _, _, reason in rejected] == ["the array has no end"]


@pytest.mark.parametrize("block", [64, 200, 1000])
def test_an_array_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Whatever the pieces, elements are the same, one that is too long is rejected alone, and no more is held."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    monkeypatch.setattr(json_format, "SAMPLE_BYTES", 500)
    texts = [json.dumps({"n": n, "t": "x" * (n % 90) + '"\\]},'}) for n in range(300)]
    texts[150] = json.dumps({"n": 150, "t": "y" * 9_000})
    (tmp_path / "in.json").write_text("[" + ",\n".join(texts) + "]")
    held: list[int] = []
    more = lines.TextFile.more

    def watched(text: lines.TextFile) -> None:
        more(text)
        held.append(len(text.data))

    monkeypatch.setattr(lines.TextFile, "more", watched)
    table, rejected = read(declare(tmp_path / "in.json", "n INT, t STRING", max_record_bytes="500"))
    assert table["n"].to_pylist() == [n for n in range(300) if n != 150]
    assert [(one.line, one.reason) for one in rejected] == [
        (151, "longer than 500 bytes, the max_record_bytes of this source")
    ]
    assert max(held) < 4_000


def test_an_object_on_several_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{\n  "n": 1\n}\n{\n  "n": 2\n}\n')
    with pytest.raises(PenstockError, match="an object stands on several lines") as caught:
        open_source(declare(tmp_path / "in.json", "n INT")).check()
    assert "jq -c ." in (caught.value.hint or "")


def test_an_array_among_objects_is_one_bad_line(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, '[1]\n{"n":1}\n', "n INT")
    assert (rows, rejected) == ([[1]], [(1, "[1]", "a JSON array, not a JSON object")])


def test_missing_keys_are_null_and_other_keys_ignored(tmp_path: Path) -> None:
    text = '{"NAME":"a","z":{"q":[1]}}\n\n{"bytes":2,"NAME":null}\n'
    assert rows_of(tmp_path, text, "name STRING, bytes INT") == ([["a", None], [None, 2]], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"name":"a","bytes":', "broken JSON: Expecting value at column 21"),
        ("[1, 2]", "a JSON array, not a JSON object"),
        ('{"name":"a"}{"name":"b"}', "broken JSON: Extra data at column 13"),
        ('{"bytes":"1"}', "bad number '\"1\"' in column bytes"),
        ('{"bytes":1.5}', "bad number '1.5' in column bytes"),
        ('{"bytes":true}', "bad number 'true' in column bytes"),
        ('{"bytes":99999999999}', "bad number '99999999999' in column bytes"),
        ('{"name":5}', "bad text '5' in column name"),
        ('{"name":"\\ud800"}', "bad text '\"\\ud800\"' in column name"),
        ('{"at":"soon"}', "bad timestamp 'soon' in column at"),
    ],
)
def test_a_bad_line_is_rejected_alone(tmp_path: Path, line: str, reason: str) -> None:
    good = '{"at":"2013-01-01T10:00:00Z","name":"a","bytes":1}'
    rows, rejected = rows_of(tmp_path, f"{good}\n\n{line}\n{good}\n")
    assert [row[1:] for row in rows] == [["a", 1], ["a", 1]]
    assert rejected == [(3, line, reason)]


def test_an_object_over_two_lines_is_two_bad_lines(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, '{"name":"a"\n,"bytes":1}\n{"name":"b"}\n', "name STRING, bytes INT")
    assert rows == [["b", None]]
    assert [line for line, _, _ in rejected] == [1, 2]


def test_bytes_that_are_no_utf8_reject_their_line(tmp_path: Path) -> None:
    rows, rejected = rows_of(tmp_path, b'{"name":"a"}\n{"name":"\xff"}\n', "name STRING, bytes INT")
    assert rows == [["a", None]]
    assert rejected == [(2, '{"name":"\\xff"}', "broken JSON: not UTF-8")]


def test_decimals_stand_as_numbers_or_text(tmp_path: Path) -> None:
    assert rows_of(tmp_path, '{"a":99999}\n', "a DECIMAL(5,2)")[0] == []
    text = '{"a":1.5}\n{"a":"2.25"}\n{"a":1.005}\n{"a":"x"}\n'
    rows, rejected = rows_of(tmp_path, text, "a DECIMAL(5,2)")
    assert [str(row[0]) for row in rows] == ["1.50", "2.25", "1.01"]
    assert [reason for _, _, reason in rejected] == ["bad number 'x' in column a"]


def test_timestamps_with_and_without_zone(tmp_path: Path) -> None:
    text = '{"at":"2013-01-01 10:00:00"}\n{"at":"2013-01-01T12:00:00.5+02:00"}\n{"at":""}\n'
    place = tmp_path / "in.json"
    place.write_text(text)
    table, rejected = read(declare(place, "at TIMESTAMP"))
    assert rejected == []
    assert table.column(0).cast(pa.int64()).to_pylist() == [1_357_034_400_000_000, 1_357_034_400_500_000, None]


VALUES = (
    "1", "0", "-0", "01", "1e2", "1.0", "1.5", "12.345", "99999", "NaN", "Infinity", "-Infinity", "1e400", "128",
    "true", "9223372036854775808", '"1"', '""', '"NaN"', '"true"', '"2013-01-01"', '"2013-1-1"', '"2013-01-01T10:00Z"',
    "null", "[]", "{}", '"\\u00e9"', '"\\ud83d\\ude00"', '"1.5"', "",
)  # fmt: skip


@pytest.mark.parametrize(
    "type_",
    ["BOOLEAN", "TINYINT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5,2)", "DATE", "TIMESTAMP", "STRING", "BINARY"],
)
def test_a_value_means_the_same_beside_a_bad_line(tmp_path: Path, type_: str) -> None:
    place = tmp_path / "in.json"
    source = declare(place, f"a {type_}, b STRING")
    for value in VALUES:
        place.write_text(f'{{"a":{value},"b":"x"}}\n')
        alone, rejected = read(source)
        place.write_text(f'{{"a":{value},"b":"x"}}\n{{"a":\n')
        beside, also = read(source)
        assert str(alone.combine_chunks()) == str(beside.combine_chunks()), value
        assert rejected == also[:-1], value


def test_small_blocks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f'{{"name":"n{i}","bytes":{i if i % 7 else "no"}}}\n' for i in range(300))
    whole = rows_of(tmp_path, text, "name STRING, bytes INT")
    assert len(whole[1]) == 43 and whole[1][1][0] == 8
    monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
    assert rows_of(tmp_path, text, "name STRING, bytes INT") == whole


def test_a_file_without_the_timestamp_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"name":"a"}\n')
    with pytest.raises(PenstockError, match="no object has the key at") as error:
        open_source(declare(tmp_path / "in.json", COLUMNS, timestamp=0)).check()
    assert error.value.code == "P0402"


def test_a_file_with_none_of_the_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"other":"a"}\n')
    with pytest.raises(PenstockError, match="no object has the key") as error:
        open_source(declare(tmp_path / "in.json", COLUMNS)).check()
    assert error.value.code == "P0402"


@pytest.mark.parametrize("block", [8, 4 * 2**20])
def test_keys_match_whatever_their_case_in_each_record_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    monkeypatch.setattr(json_format, "SAMPLE_BYTES", 500)
    good = [
        '{"name":"a"}',
        '{"NAME":"b"}',
        '{"Name":"c","x":{"nAme":1}}',
        '{"x":"NAME","name":"d"}',
        '{"\\u006eame":"e"}',
    ]
    for order in (good, good[::-1]):
        rows, rejected = rows_of(tmp_path, "\n".join(order), "name STRING")
        assert sorted(row[0] for row in rows) == ["a", "b", "c", "d", "e"] and rejected == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"name":"a","NAME":"b"}', "the keys name and NAME are one column"),
        ('{"name":"a","name":"b"}', "the key name occurs twice"),
        ('{"name":"a","n\\u0041me":"b"}', "the keys name and nAme are one column"),
    ],
)
def test_two_keys_for_one_column_are_malformed(tmp_path: Path, line: str, reason: str) -> None:
    for text in (f"{line}\n", f'{{"name":"x"}}\n{line}\n'):
        rows, rejected = rows_of(tmp_path, '{"name":"0"}\n' + text, "name STRING")
        assert len(rows) == text.count("\n") and [r for _, _, r in rejected] == [reason]


def test_keys_of_other_letters(tmp_path: Path) -> None:
    text = '{"größe":1}\n{"GRÖSSE":2}\n{"GRÖßE":3}\n{"gr\\u00d6\\u00dfe":4}\n'
    rows, rejected = rows_of(tmp_path, text, "größe INT")
    assert ([row[0] for row in rows], rejected) == ([1, None, 3, 4], [])


def test_objects_and_arrays_are_text_for_a_column_of_text(tmp_path: Path) -> None:
    text = (
        '{"name":{"x" : [1.50, "a b\\n"] },"bytes":1}\n{"name":[],"bytes":2}\n{"name":"t","bytes":3}\n'
        '{"more":[{}],"bytes":4 , "name" : [1 , {"q":\t1e400,"q":"\\ud800"}]}\n'
        '{"name":true}\n{"name":5}\n{"bytes":[1, 2]}\n'
    )
    rows, rejected = rows_of(tmp_path, text, "name STRING, bytes INT")
    assert rows == [['{"x":[1.50,"a b\\n"]}', 1], ["[]", 2], ["t", 3], ['[1,{"q":1e400,"q":"\\ud800"}]', 4]]
    assert [r for _, _, r in rejected] == [
        "bad text 'true' in column name",
        "bad text '5' in column name",
        "bad number '[1,2]' in column bytes",
    ]


@pytest.mark.parametrize("deep", ["[" * 200_000 + "]" * 200_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_deep_nesting_is_passed_over_where_nobody_reads_it(tmp_path: Path, deep: str) -> None:
    text = f'{{"name":"a","more":{deep}}}\n{{"name":{deep}}}\n'
    rows, rejected = rows_of(tmp_path, text, "name STRING")
    assert rows == [["a"]] and [(line, reason) for line, _, reason in rejected] == [(2, "nested too deeply")]


@pytest.mark.parametrize("block", [64, 4 * 2**20])
def test_a_line_beyond_the_limit_is_one_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    monkeypatch.setattr(json_format, "SAMPLE_BYTES", 500)
    place = tmp_path / "in.json"
    place.write_text('{"name":"a"}\n{"name":"' + "x" * 5_000 + '"}\n\n{"name":"b"}')
    table, rejected = read(declare(place, "name STRING", max_record_bytes="2000"))
    assert table.column(0).to_pylist() == ["a", "b"]
    assert told(rejected) == [
        (2, '{"name":"' + "x" * 991, "longer than 2000 bytes, the max_record_bytes of this source")
    ]


@pytest.mark.parametrize(
    "line",
    [
        "null", " null", '{"name":"b"}\r{"name":"c"}', '{"name":\r"b"}', '{"name":null}null\n', '{"name":null}\rnull',
    ],
)  # fmt: skip
def test_what_arrow_takes_for_a_record_and_is_none(tmp_path: Path, line: str) -> None:
    """Alone and beside a bad line the verdict is the same."""
    good = '{"name":"a"}\n'
    alone = rows_of(tmp_path, f"{good}{line}\n", "name STRING")
    beside = rows_of(tmp_path, f"{good}{line}\n[]\n", "name STRING")
    assert (alone[0], alone[1]) == (beside[0], beside[1][:-1])


@pytest.mark.parametrize("first", ["null", " \tnull", "\n\nnull", "\ufeffnull", "null null", 'null{"name":"b"}'])
@pytest.mark.parametrize("size", [1, 10_000])
def test_null_before_the_objects_of_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, size: int
) -> None:
    """Arrow's parser ends the process there."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", size)
    for before in ("", '{"name":"z"}\n'):
        # A mark of the encoding stands in a file's first line alone.
        text = first.removeprefix("\ufeff") if before else first
        found, rejected = rows_of(tmp_path, f'{before}{text}\n{{"name":"a"}}\n', "name STRING")
        assert found == [["z"]] * bool(before) + [["a"]] and len(rejected) == 1
    assert rows_of(tmp_path, f"{first}\n", "name STRING")[1]


@pytest.mark.parametrize("extra", ["", ',"more":1'])
def test_keys_are_the_same_however_blocks_before_were_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    """Blocks are looked up in another way once keys came that are not declared: what a record comes to does not show
    it."""
    records = [
        '{"a":1,"b":"x"}', '{"A":2,"b":"y"}', '{"a":3,"B":"z","more":[{"a":9}]}', '{"a":4,"A":5}', '{"a":6,"a":7}',
        '{"b":"\\"a\\":1","a":8}', '{"\\u0061":9}', '{"a" :10,"other":{"A":1}}',
    ]  # fmt: skip
    place = tmp_path / "in.json"
    place.write_text("".join(record[:-1] + extra + "}\n" for record in records))
    for size in (1, 20, 40, 10_000):
        monkeypatch.setattr(lines, "BLOCK_BYTES", size)
        table, rejected = read(declare(place, "a INT, b STRING"))
        assert table.column("a").to_pylist() == [1, 2, 3, 8, 9, 10], size
        assert table.column("b").to_pylist() == ["x", "y", "z", '"a":1', None, None]
        assert [r.line for r in rejected] == [4, 5]
