"""JSON in texts: what is read and what is not, paths, and what DuckDB and PostgreSQL's operators give."""

from __future__ import annotations

import json
import random
import time
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pytest

from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.calls.functions import build_call
from penstock.expressions.calls.text import to_sql
from penstock.expressions.coercion import INT, STRING
from penstock.expressions.evaluation.evaluate import evaluate, evaluate_all
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.expressions.values import json_text
from penstock.expressions.values.json_text import BAD, DEEPEST, as_json, parse_path, read
from penstock.language.scripts import bind_script

TEXT = Column(STRING, 0, "j")
SCRIPT = (
    "CREATE STREAM S (j STRING, k STRING, n INT, ts INT) FROM MEMORY () TIMESTAMP BY ts;"
    "CREATE QUERY q AS SELECT {} AS x FROM S;"
)


def found(call: Expression, *texts: str | None) -> list[Any]:
    return evaluate(call, (pa.array(texts, STRING),), len(texts)).to_pylist()


def at(path: str, *texts: str | None) -> list[Any]:
    return found(build_call("GET_JSON_OBJECT", [TEXT, Literal(STRING, path)]), *texts)


@pytest.mark.parametrize(
    "text",
    ["", "{", "{a:1}", "{'a':1}", "[1,]", "NaN", "[Infinity]", "01", "1 2", '"\n"', '{"a"}', "\ufeff{}", "nul", '"\\x"',
     "[" * 1000 + "]" * 1000, "[" * 100_000, '{"a":' * 5000],
)  # fmt: skip
def test_what_is_no_json(text: str) -> None:
    assert read(text) is BAD
    assert at("$", text) == [None]


def test_depth_counts_brackets_outside_of_strings() -> None:
    assert read("[" * DEEPEST + "]" * DEEPEST) is not BAD
    assert read("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)) is BAD
    assert read(json.dumps("[" * 1000 + '"\\')) == "[" * 1000 + '"\\'
    started = time.process_time()
    assert read('"' + '\\"' * 100_000 + "[" * 300) is BAD
    assert time.process_time() - started < 2
    assert at("$[300]", "[" + ",".join(["[]"] * 500) + "]") == ["[]"]


def test_numbers_keep_their_digits_and_the_first_of_equal_keys_counts() -> None:
    huge = "1" * 5000
    assert at("$.a", '{"a": 1.10}', '{"a": -0}', '{"a": 1E400}', f'{{"a":{huge}}}', '{"a": 1, "b": 2, "a": 3}') == [
        "1.10",
        "-0",
        "1E400",
        huge,
        "1",
    ]
    assert at("$", ' {"a" : [1.0 , true, null, "x\\"y\\u00e9\\n"]}\n') == ['{"a":[1.0,true,null,"x\\"yé\\n"]}']


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert at("$.a", '{"a": "x\\ud800y"}', '{"a": "\\ud83d\\ude00"}') == ["x\ufffdy", "\U0001f600"]
    assert at("$", '{"\\udc00": 1}') == ['{"\ufffd":1}']


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a[*].b", ["[1,2]", '"x"', None]), ("$.a[0].b", ["1", "x", None]), ("$.a[1]['b']", ["2", None, None]),
        ("$.a[*]", ['[{"b":1},{"b":2}]', '{"b":"x"}', None]), ("$.a[7]", [None, None, None]),
        ("$.a[*].c", [None, None, None]), ("$.A", [None, None, None]),
    ],
)  # fmt: skip
def test_paths(path: str, expected: list[str | None]) -> None:
    assert at(path, '{"a": [{"b": 1}, {"b": 2}]}', '{"a": [{"b": "x"}]}', '{"a": {"b": 1}}') == expected


@pytest.mark.parametrize("path", ["", "a", "$a", "$.", "$..a", "$.a[", "$.a[-1]", "$[*][*]", "$.*", "$['']", "$.a[x]"])
def test_what_is_no_path(path: str) -> None:
    assert parse_path(path) is None
    with pytest.raises(PenstockError, match="is not a path") as caught:
        build_call("GET_JSON_OBJECT", [TEXT, Literal(STRING, path)])
    assert caught.value.code == "P0203"
    call = build_call("GET_JSON_OBJECT", [TEXT, Column(STRING, 1, "p")])
    assert evaluate(call, (pa.array(['{"a": 1}']), pa.array([path])), 1).to_pylist() == [None]


def test_a_value_is_one_value_and_an_arrow_takes_a_key() -> None:
    with pytest.raises(PenstockError, match="several"):
        build_call("JSON_VALUE", [TEXT, Literal(STRING, "$.a[*]")])
    with pytest.raises(PenstockError, match="not a path"):
        build_call("JSON_GET", [TEXT, Literal(STRING, "$.a")])
    with pytest.raises(PenstockError, match="->> does not take INT"):
        build_call("JSON_GET_TEXT", [Column(INT, 0, "n"), Literal(STRING, "a")])


def test_several_paths_read_a_column_once() -> None:
    texts = pa.array(['{"a": 1, "b": "x"}', '{"a": 2}', '{"a": 2}', None, "["], STRING)
    calls = [build_call("GET_JSON_OBJECT", [TEXT, Literal(STRING, path)]) for path in ("$.a", "$.b", "$")]
    with mock.patch.object(json_text, "read", wraps=read) as reads:
        columns = [c.to_pylist() for c in evaluate_all(calls, (texts,), 5)]
    assert reads.call_count == 3  # distinct texts
    assert columns[:2] == [["1", "2", "2", None, None], ["x", None, None, None, None]]
    assert found(calls[0], '{"a": 9}') == ["9"]


def random_value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(7 if depth < 3 else 5)
    if kind == 5:
        return [random_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == 6:
        return {draw.choice("abc"): random_value(draw, depth + 1) for _ in range(draw.randrange(4))}
    return draw.choice((None, True, 7, -1.5, "", "x\n\"y'é", "null", "0"))


@pytest.mark.parametrize("key", ["a", "b", 0, -1, 1])
def test_arrows_give_what_duckdb_gives(key: str | int) -> None:
    draw = random.Random(5)
    texts = [json.dumps(random_value(draw), ensure_ascii=draw.random() < 0.5) for _ in range(400)]
    literal = Literal(STRING, key) if isinstance(key, str) else Literal(INT, key)
    written = f"'{key}'" if isinstance(key, str) else str(key)
    with duckdb.connect() as connection:
        connection.register("given", pa.table({"n": range(len(texts)), "j": texts}))
        answers = connection.execute(
            f"SELECT j::JSON -> {written}, j::JSON ->> {written} FROM given ORDER BY n"
        ).fetchall()
    json_, text = (found(build_call(name, [TEXT, literal]), *texts) for name in ("JSON_GET", "JSON_GET_TEXT"))
    assert [None if j is None else json.loads(j) for j, _ in answers] == [
        None if j is None else json.loads(j) for j in json_
    ]
    assert [j is None for j, _ in answers] == [j is None for j in json_]
    for (_, theirs), ours in zip(answers, text, strict=True):
        same = theirs == ours or json.loads(theirs) == json.loads(ours)
        assert same, (theirs, ours)
    by_row = [literal.value] * len(texts)
    columns = (pa.array(texts), pa.array(by_row, literal.type))
    call = build_call("JSON_GET_TEXT", [TEXT, Column(literal.type, 1, "k")])
    assert evaluate(call, columns, len(texts)).to_pylist() == text


def test_a_text_that_was_read_says_the_same_when_written() -> None:
    draw = random.Random(9)
    for _ in range(300):
        value = random_value(draw)
        assert json.loads(as_json(read(json.dumps(value)))) == value


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("j -> 'a' ->> 'b'", "j -> 'a' ->> 'b'"), ("j->>'a' || 'x'", "j ->> 'a' || 'x'"),
        ("n - (j ->> 'a')", "CAST(n AS DOUBLE) - CAST(j ->> 'a' AS DOUBLE)"), ("j ->> -1", "j ->> (-1)"),
        ("S.j ->> S.k = 'x'", "j ->> k = 'x'"), ("(j -> 'a') -> n", "j -> 'a' -> n"),
        ("j -> (k || 'x')", "j -> (k || 'x')"), ("CAST(j ->> 'a' AS INT) + 1", "CAST(j ->> 'a' AS INT) + 1"),
        ("UPPER(j) -> 'A'", "upper(j) -> 'A'"),
        ("j->>'a' LIKE 'x%' AND j->'b' IS NULL", "j ->> 'a' LIKE 'x%' AND j -> 'b' IS NULL"),
    ],
)  # fmt: skip
def test_how_tightly_arrows_bind(written: str, meant: str) -> None:
    shown = []
    for text in (written, meant):
        (query,) = bind_script(SCRIPT.format(text)).queries
        (project,) = [n for n in [query.root, *query.root.inputs] if hasattr(n, "expressions")]
        shown.append(to_sql(project.expressions[0]))
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", ["JSON_EXTRACT", "FROM_JSON", "JSON_QUERY", "JSON_TUPLE"])
def test_what_others_call_them_is_hinted_at(name: str) -> None:
    with pytest.raises(ScriptErrors, match="GET_JSON_OBJECT"):
        bind_script(SCRIPT.format(f"{name}(j, '$.a')"))
