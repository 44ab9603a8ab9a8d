"""CONSOLE results on standard output: tables that cut nothing, and formats that programs read back."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from connector_kit import EVERY_TYPE, query_over, with_ts
from rich.cells import cell_len

from penstock.algebra.nodes.query import Query
from penstock.connectors.sinks import open_sink
from penstock.connectors.sinks.console import send_to
from penstock.connectors.sinks.output import Output, OutputFormat, output
from penstock.connectors.sinks.tabular import fitted, folded, rendered
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script

WORDS = pa.table({"word": ["tea", None, "", "a,b", 'q"q', "zwei\nZeilen"], "n": [1, 2, None, 4, 5, 6]})


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    send_to(None)


def console(name: str, table: pa.Table, **options: str) -> Query:
    return query_over(table, "CONSOLE", name=name, **options)


def written(
    form: OutputFormat, batches: list[tuple[Query, pa.Table]], capfdbinary: pytest.CaptureFixture[bytes]
) -> bytes:
    """What stands on standard output when sinks have written `batches` in this order."""
    queries = {query.name: query for query, _ in batches}
    out = output(form, list(queries.values()))
    send_to(out)
    sinks = {name: open_sink(query) for name, query in queries.items()}
    for sink in sinks.values():
        sink.open(resume=False, overwrite=False)
    for number, (query, table) in enumerate(batches):
        sinks[query.name].write(number, with_ts(table))
        sinks[query.name].write(number, with_ts(table))
    out.close()
    sys.stdout.flush()
    return capfdbinary.readouterr().out


def test_csv_of_one_query_is_one_file(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    one = console("one", WORDS)
    text = written(OutputFormat.CSV, [(one, WORDS.slice(0, 2)), (one, WORDS.slice(2))], capfdbinary)
    assert text.count(b"ts,word,n\n") == 1
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    back = pyarrow.csv.read_csv(io.BytesIO(text), parse_options=parse, convert_options=options)
    assert back.drop(["ts"]).to_pydict() == WORDS.to_pydict()


def test_csv_without_rows_has_its_header(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    empty = WORDS.slice(0, 0)
    assert written(OutputFormat.CSV, [(console("one", empty), empty)], capfdbinary) == b"ts,word,n\n"


def test_csv_of_several_queries_says_whose_rows_follow(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    first, second = pa.table({"a": [1]}), pa.table({"b": ["x"]})
    one, two = console("one", first), console("two\nlines", second)
    text = written(OutputFormat.CSV, [(one, first), (one, first), (two, second), (one, first)], capfdbinary)
    row = "1970-01-01T00:00:00Z"
    assert text.decode() == (
        f'# one\nts,a\n{row},1\n{row},1\n\n# "two\\nlines"\nts,b\n{row},x\n\n# one\nts,a\n{row},1\n'
    )


def test_json_lines_name_the_query_where_there_are_several(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    one, two = console("one", WORDS), console("two", WORDS.select(["n"]))
    alone = written(OutputFormat.JSON, [(one, WORDS)], capfdbinary).decode().splitlines()
    assert [list(json.loads(line)) for line in alone] == [["ts", "word", "n"]] * 6
    lines = written(OutputFormat.JSON, [(one, WORDS), (two, WORDS.select(["n"]))], capfdbinary).decode().splitlines()
    found = [json.loads(line) for line in lines]
    assert [f["query"] for f in found] == ["one"] * 6 + ["two"] * 6
    assert [f["word"] for f in found[:6]] == WORDS["word"].to_pylist()
    assert list(found[6]) == ["query", "ts", "n"]


def test_json_lines_of_several_queries_need_their_field() -> None:
    queries = [console("one", WORDS), console("two", pa.table({"QUERY": [1]}))]
    assert output(OutputFormat.JSON, queries[1:])
    with pytest.raises(PenstockError, match="a field query, and so has two") as error:
        output(OutputFormat.JSON, queries)
    assert error.value.code == "P0502"


@pytest.mark.parametrize("rows", [0, 4])
def test_an_arrow_stream_keeps_every_type(rows: int, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    table = EVERY_TYPE.slice(0, rows)
    content = written(OutputFormat.ARROW, [(console("one", table), table), (console("one", table), table)], capfdbinary)
    back = pa.ipc.open_stream(content).read_all()
    expected = with_ts(table)
    assert back.schema.names == expected.schema.names
    assert back.equals(pa.concat_tables([expected, expected]).cast(back.schema))


def test_an_arrow_stream_holds_one_query() -> None:
    with pytest.raises(PenstockError, match="2 have no INTO: one, two") as error:
        output(OutputFormat.ARROW, [console("one", WORDS), console("two", WORDS)])
    assert error.value.code == "P0502" and "INTO FILES" in (error.value.hint or "")


def test_formats_for_programs_hold_all_rows_whatever_people_are_shown(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    few = console("one", WORDS, rows="2")
    assert written(OutputFormat.JSON, [(few, WORDS)], capfdbinary).count(b"\n") == 6
    table = written(OutputFormat.TABLE, [(few, WORDS)], capfdbinary).decode()
    assert "NULL" in table and "a,b" not in table and "4 more rows of one" in table


def test_a_table_shows_all_rows_and_whole_values(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    long = pa.table({"id": list(range(10_001)), "text": ["x" * 300 + "end"] * 10_001})
    shown = written(OutputFormat.TABLE, [(console("long", long), long)], capfdbinary).decode()
    assert shown.count("x" * 300 + "end") == 10_001 and " 10000 " in shown
    assert shown.count("long\n") == 2, "one table for every 10,000 rows"


@pytest.mark.parametrize("width", [20, 60, 80, 200, 1_000])
def test_a_table_folds_and_never_cuts(width: int) -> None:
    values = {f"column_{i}": ["v" * (i * 7 % 90) + f"|{i}"] for i in range(12)}
    (text,) = rendered("t", pa.table(values), width)
    lines = text.splitlines()[1:]
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= max(width, 12 * (12 + 3) + 1)
    cells = [line.strip("│").split("│") for line in lines if line.startswith("│")]
    assert ["".join(part[i].strip() for part in cells) for i in range(12)] == [v[0] for v in values.values()]


def test_widths_are_shared_out() -> None:
    assert fitted([5, 10], 80) == [5, 10]
    assert fitted([5, 100, 200], 85) == [5, 40, 40]
    assert fitted([30, 30], 10) == [12, 12]
    assert fitted([], 10) == []


def test_values_do_not_steer_the_terminal() -> None:
    (text,) = rendered("t\x1b[2J", pa.table({"c\x07": ["\x1b[31mred\x1b[0m\r", "[bold]b[/]", "日本"]}), 80)
    assert "\x1b" not in text and "\x07" not in text and "\r" not in text
    assert r"\x1b[31mred\x1b[0m\x0d" in text and "[bold]b[/]" in text and "日本" in text


@pytest.mark.parametrize("form", list(OutputFormat))
def test_a_reader_that_has_gone_is_noticed(form: OutputFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as pipe:  # noqa: PTH123 - a file descriptor
        monkeypatch.setattr(sys, "stdout", pipe)
        query = console("one", WORDS)
        out: Output | None = None
        with pytest.raises(PenstockError, match="closed by its reader"):
            out = output(form, [query])
            out.write(query, [with_ts(WORDS)], None)
        assert out is None or out.gone
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


def test_a_script_can_say_how_many_rows_people_are_shown() -> None:
    script = "CREATE STREAM s (ts INT) FROM MEMORY () TIMESTAMP BY ts;"
    script += "CREATE QUERY q INTO CONSOLE (rows '{}') AS SELECT ts FROM s;"
    (query,) = bind_script(script.format("5")).queries
    assert query.sink.option("rows") == "5" and open_sink(query)
    with pytest.raises(PenstockError, match="a whole number") as error:
        bind_script(script.format("many"))
    assert error.value.code == "P0208"


def test_standard_output_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no device that is always full")
    with full.open("w", encoding="utf-8", buffering=1) as file:
        monkeypatch.setattr(sys, "stdout", file)
        query = console("one", WORDS)
        out = output(OutputFormat.CSV, [query])
        with pytest.raises(PenstockError, match="standard output cannot be written: No space left") as error:
            out.write(query, [with_ts(WORDS)], None)
        assert error.value.code == "P0502" and out.broken and not out.gone
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def test_no_standard_output_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    query = console("one", WORDS)
    for form in OutputFormat:
        output(form, [query]).write(query, [with_ts(WORDS)], None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_table_is_as_wide_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "44")
    monkeypatch.setenv("NO_COLOR", "1")
    text = pa.table({"text": ["a sentence that is longer than the terminal is wide, and whole", None]})
    query = console("said", text)
    output(OutputFormat.TABLE, [query]).write(query, [with_ts(text)], None)
    lines = terminal.getvalue().splitlines()
    assert lines[0] == "said" and 42 < max(map(len, lines)) <= 44
    cells = [line.split("│")[2].strip() for line in lines if line.startswith("│")]
    assert (
        " ".join(cell for cell in cells if cell)
        == "a sentence that is longer than the terminal is wide, and whole NULL"
    )


@pytest.mark.parametrize("width", [1, 2, 3, 7, 12, 80])
def test_folding_loses_nothing_but_spaces_at_line_ends(width: int) -> None:
    for text in (
        "",
        " ",
        "word",
        "two words",
        "  set in, and   spaced  ",
        "long" * 30,
        "日本語 の テキスト",
        "a\n\nb c",
        "x" * 12 + " y",
    ):
        if width == 1 and not text.isascii():
            continue
        lines = folded(text, width)
        assert all(cell_len(line) <= width for line in lines)
        assert "".join("".join(lines).split()) == "".join(text.split())
    assert folded("two words", 6) == ["two", "words"] and folded("  indented", 20) == ["  indented"]


def test_where_lines_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    words = pa.table({"n": [1], "w": ["Ä"]})
    query = console("said", words)
    output(OutputFormat.TABLE, [query]).write(query, [words], None)
    shown = ascii_only.buffer.getvalue()  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert shown.startswith(b"said\n+---+") and b"\\xc4" in shown


def test_a_value_does_not_turn_the_line_around() -> None:
    """What turns the direction of a line or breaks it is shown as an escape, as it would move other cells."""
    table = pa.table({"word": ["user\u202etxt.exe", "a\u2066b", "c\u2028d", "\u05d0\u05d1"]})
    (text,) = rendered("t", table, 80)
    assert "user\\u202etxt.exe" in text and "a\\u2066b" in text and "c\\u2028d" in text and "\u05d0\u05d1" in text
    assert not set(text) & set("\u202e\u2066\u2028")
