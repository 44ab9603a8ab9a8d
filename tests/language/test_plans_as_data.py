"""Plans as data: what is written is read back as the same plan, and nothing else is read."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock import physical  # noqa: F401 - every operator of the algebra is loaded
from penstock.algebra import Algebra, Frequent
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.preferences import WithPreference
from penstock.algebra.nodes.promised import PromisedJoin
from penstock.algebra.nodes.shed import StretchBudget
from penstock.algebra.optimizer.optimizer import optimize
from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.aggregates import AGGREGATES, build_aggregate
from penstock.expressions.aggregates.contract import RowOrder
from penstock.expressions.aggregates.percentile import Percentile
from penstock.expressions.aggregates.sketch import SketchFunction
from penstock.expressions.calls.functions import build_call, build_cast
from penstock.expressions.coercion import cast_to
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.library import TABLE
from penstock.expressions.nodes import AggregateCall, Column, Expression, KeyDirection, Literal
from penstock.language.binder.context import Context
from penstock.language.plan_form import FORMAT, MAX_CHARACTERS, MAX_LEVELS, Part, parsed, printed
from penstock.language.plans.document import exported, logical, read_plan
from penstock.language.plans.fields import DataField, data_fields
from penstock.language.plans.nodes import NODES, REWRITTEN
from penstock.language.plans.scalar_binding import NamedColumns, ScalarReader
from penstock.language.plans.scalar_text import written, written_time
from penstock.language.printer import string_text
from penstock.language.scripts import BoundScript, bind_script
from penstock.language.text import SourceText
from penstock.settings import Settings
from penstock.testing.cases import CaseRun, case_arrivals, case_inputs, parse_case
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.random.worlds import FLAVOURS, Flavour, random_case, seeded_choices
from penstock.tree import walk
from penstock.types import TIMESTAMP, Field, Schema

CASES = 4
SCRIPT = """
CREATE STREAM s (ts INT, k INT, v STRING, x DOUBLE) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM c (at TIMESTAMP, k INT) FROM MEMORY () TIMESTAMP BY at;
CREATE RELATION r (k INT, name STRING) FROM MEMORY ();
CREATE RELATION u (ts INT, k INT, name STRING, op STRING) FROM MEMORY () TIMESTAMP BY ts OPERATION BY op;
CREATE NON RETROACTIVE RELATION n (ts INT, k INT, name STRING, op STRING) FROM MEMORY ()
  TIMESTAMP BY ts OPERATION BY op;
"""


def _kinds(kind: type[Algebra]) -> Iterator[type[Algebra]]:
    for one in kind.__subclasses__():
        yield one
        yield from _kinds(one)


@cache
def _sources() -> BoundScript:
    return bind_script(SCRIPT)


def _context(bound: BoundScript, settings: Settings | None = None) -> Context:
    return Context(SourceText(""), bound.catalog, settings or Settings())


def _text(data: Any) -> str:
    return printed({"format": FORMAT, "logical": data})


# --- the registry


def test_every_operator_of_the_algebra_is_in_the_registry() -> None:
    kinds = {kind for kind in _kinds(Algebra) if not kind.__subclasses__() and kind.__module__.startswith("penstock.")}
    assert kinds == {*NODES, *REWRITTEN}


def test_a_field_is_known_where_it_is_needed() -> None:
    for form in NODES.values():
        assert set(form.needed) <= set(form.fields)


def test_the_page_has_the_fields_of_every_operator() -> None:
    """A row has the names of operators, then their fields: in brackets those that may be missing."""
    page = (Path(__file__).parents[2] / "docs" / "plans.md").read_text(encoding="utf-8")
    budget = {f"[{one.name}]" for one in data_fields(StretchBudget)}
    # These two have tables of their own.
    others = (WithPreference, Frequent)
    forms = {kind.__name__: form for kind, form in NODES.items() if not issubclass(kind, others)}
    found: dict[str, set[str]] = {}
    for line in page.partition("| node | fields | inputs |")[2].partition("\n\n")[0].splitlines()[2:]:
        names, fields, _ = line.strip("|").split("|")
        words = set(re.findall(r"`(\[?[a-z_]+\]?)`", fields)) | (budget if "a budget" in fields else set())
        found |= dict.fromkeys(re.findall(r"`(\w+)`", names), words)
    assert found == {
        name: {one if one in form.needed else f"[{one}]" for one in form.fields} for name, form in forms.items()
    }


# --- the law


@pytest.mark.spread(2)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda one: FLAVOURS.index(one))
def test_random_plans_are_read_as_they_were(flavour: Flavour) -> None:
    for seed in range(CASES):
        case = random_case(seeded_choices(seed), flavour)
        bound = bind_script("\n".join(case.statements))
        for query in bound.queries:
            data = logical(query.root)
            again = read_plan(_text(data), _context(bound))
            assert logical(again) == data, query.text
            assert _properties(again) == _properties(query.root), query.text


def _properties(root: Algebra) -> list[object]:
    """The properties of each operator; equal ones count once, however many objects they are."""
    found: dict[str, object] = {}
    for node in operators(root):
        own = (type(node), node.schema, node.is_stream, node.domain, node.pattern, node.keys, node.needs)
        found[repr(own)] = node.boundedness, node.carries_ends, node.is_windowed, node.results_have_lives
    return [*found.items()]


@pytest.mark.spread(2)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda one: FLAVOURS.index(one))
def test_a_query_made_of_a_random_plan_has_the_answer_of_the_query(flavour: Flavour) -> None:
    """Through statements: the text of the plan stands in a script, and the local runtime answers it."""
    checked = 0
    for seed in range(100, 104):
        case = random_case(seeded_choices(seed), flavour)
        bound = bind_script("\n".join(case.statements))
        query = bound.queries[0]
        plan = string_text(_text(exported(query.root, _context(bound))))
        script = "\n".join([*case.statements, f"CREATE QUERY again FROM PLAN {plan};"])
        (again,) = (one for one in bind_script(script).queries if one.name == "again")
        parsed_case = parse_case(case.render())
        inputs, arrivals = case_inputs(parsed_case, bound), case_arrivals(parsed_case, bound)
        if case.origin:
            continue  # the oracle would go through all ticks from there
        result = CaseRun(2, seed, None).answer([again], inputs, True, arrivals)
        assert_same(again, result.tables["again"], run_oracle(query, inputs, True, arrivals=arrivals))
        checked += 1
    assert checked


def test_equal_operators_are_written_once() -> None:
    views = ["CREATE VIEW v0 AS SELECT k FROM s [RANGE 5 SECONDS] WHERE k > 1;"]
    views += [f"CREATE VIEW v{i} AS SELECT a.k FROM v{i - 1} a JOIN v{i - 1} b ON a.k = b.k;" for i in range(1, 5)]
    bound = bind_script(SCRIPT + "\n".join(views) + "CREATE QUERY q AS SELECT * FROM v4;")
    root = bound.queries[0].root
    data = exported(root, _context(bound))
    assert read_plan(_text(data), _context(bound)) == root
    assert len(_text(data)) < 4_000 and json.dumps(data).count('"same"') == 4


@pytest.mark.parametrize("window", ["[RANGE 2 DAYS SLIDE 1 HOUR]", "VALID FOR 2 MINUTES [RANGE 5 MINUTES]"])
@pytest.mark.parametrize("more", ["", ", compact 'false'", ", shed 'value', buckets '2', cpu '0.5'"])
@pytest.mark.parametrize(
    "length",
    [
        "LENGTH(VALID(p)) >= INTERVAL '1' MINUTE", "CAST(VALID(p) AS INTERVAL HOUR) > 30",
        "CAST(VALID(p) AS INTERVAL DAY) >= 1000000000000", "LENGTH(VALID(p)) > 9223372036854775807",
    ],
)  # fmt: skip
def test_a_budget_and_the_length_that_it_knows_are_read_as_they_were(window: str, more: str, length: str) -> None:
    made = (
        f"CREATE QUERY q WITH (memory '2 TUPLES'{more}) AS SELECT k, VALID(p) FROM c (k) {window} AS p WHERE {length};"
    )
    bound = bind_script(SCRIPT + made)
    root = bound.queries[0].root
    data = exported(root, _context(bound))
    assert data == logical(root) and '"least' in _text(data)
    assert _properties(read_plan(_text(data), _context(bound))) == _properties(root)


@pytest.mark.parametrize("more", ["", ", compact 'false'", ", accuracy_at_least '50%', buckets '2'"])
@pytest.mark.parametrize("window", ["SESSION 2 MINUTES", "SESSION 2 MINUTES AT MOST 1 HOUR OPEN"])
def test_a_budget_of_sessions_is_read_as_it_was(window: str, more: str) -> None:
    made = f"CREATE QUERY q WITH (memory '2 TUPLES'{more}) AS SELECT k, VALID(p) FROM c [PARTITION BY k {window}] AS p;"
    bound = bind_script(SCRIPT + made)
    root = bound.queries[0].root
    data = exported(root, _context(bound))
    assert data == logical(root) and ('"compact"' in _text(data)) == ("compact" in more)
    assert _properties(read_plan(_text(data), _context(bound))) == _properties(root)


def test_a_plan_with_its_defaults_written_is_read_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that were printed when defaults were written, too."""

    def write(self: DataField, owner: Any, inputs: Any) -> dict[str, Any]:
        value = getattr(owner, self.attribute)
        is_left_out = not self.is_needed and (value in (None, ()) or self.name == "align")
        return {} if is_left_out and value == self.default else {self.name: self.codec.write(value, inputs)}

    budget = "WITH (memory '2 TUPLES') AS SELECT k, VALID(p) FROM c (k) [RANGE 2 DAYS SLIDE 1 HOUR] AS p"
    length = "LENGTH(VALID(p)) >= INTERVAL '1' MINUTE"
    queries = [
        "AS SELECT k FROM s [RANGE 5 SECONDS] WHERE k IN (SELECT k FROM r)",
        f"{budget} WHERE {length}",
        "AS SELECT k FROM s [RANGE 1 MINUTE] WITH PREFERENCE ASC k FADE FACTOR 0.9 PER 10 SECONDS BUDGET 2 PER TUPLE",
    ]
    for text in queries:
        bound = bind_script(f"{SCRIPT} CREATE QUERY q {text};")
        root = bound.queries[0].root
        data = logical(root)
        with monkeypatch.context() as patched:
            patched.setattr(DataField, "write", write)
            whole = logical(root)
        assert whole != data
        assert logical(read_plan(_text(whole), _context(bound))) == data


def test_rows_of_constants_are_read_as_they_were() -> None:
    literals = (
        "1, 2147483648, 1.5, 1.0e0, 'it''s', TRUE, DATE '2024-02-29', TIMESTAMP '2024-02-29 12:00:00.000001', X'00ff', "
        "CAST('NaN' AS DOUBLE), -0.0e0, INTERVAL '90' SECOND"
    )
    nulls = ", ".join(["NULL"] * 12)
    bound = bind_script(SCRIPT + f"CREATE QUERY q AS VALUES ({literals}), ({nulls}); CREATE QUERY p AS SELECT 1 AS a;")
    for query in bound.queries:
        again = read_plan(_text(exported(query.root, _context(bound))), _context(bound))
        assert logical(again) == logical(query.root) and _properties(again) == _properties(query.root)
        assert again.fingerprint == query.root.fingerprint


PROMISED = """CREATE STREAM o (ts INT, k INT, w BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIQUE (k) ORDERED BY (w);
CREATE STREAM f (ts INT, k BIGINT, w BIGINT) FROM MEMORY () TIMESTAMP BY ts
  CONSTRAINT whole CLUSTERED BY (k) WITHIN 2 ROWS CLUSTERED BY (w);
CREATE STREAM g (ts INT, k INT REFERENCES o, w BIGINT) FROM MEMORY () TIMESTAMP BY ts CLUSTERED BY (k, w);
CREATE QUERY wider AS SELECT f.k FROM o [RANGE 3 SECONDS SLIDE 2 SECONDS], f WHERE o.k = f.k;
CREATE QUERY two AS SELECT f.w FROM o, f WHERE o.k = f.k AND o.w = f.w AND o.ts < f.ts;
CREATE QUERY three AS SELECT f.w FROM o, f, g [NOW] WHERE o.k = f.k AND f.w = g.w;
CREATE QUERY child AS SELECT g.w FROM o LEFT JOIN g ON o.k = g.k AND o.w = g.w;
CREATE QUERY every AS SELECT f.w FROM o FULL JOIN f ON o.k = f.k;
CREATE QUERY alone AS SELECT o.w, EXISTS (SELECT * FROM f WHERE f.k = o.k AND f.w > 1) AS e FROM o
  WHERE NOT EXISTS (SELECT * FROM f WHERE f.w = o.w) AND o.k IN (SELECT f.k FROM f);
CREATE QUERY itself AS SELECT a.w FROM f AS a, f AS b WHERE a.k = b.k;
"""


def test_joins_by_promises_are_read_as_they_were() -> None:
    bound = bind_script(PROMISED)
    for query in bound.queries:
        assert any(isinstance(node, PromisedJoin) for node in operators(query.root)), query.name
        for root in (query.root, optimize(query.root)):
            again = read_plan(_text(exported(root, _context(bound))), _context(bound))
            assert logical(again) == logical(root) and _properties(again) == _properties(root), query.name
            assert again.fingerprint == root.fingerprint or root is not query.root, query.name


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"whole"', '"other"', "rows of the side left do not leave by other of f here"),
        ('"side": "left"', '"side": "right"', "rows of the side right do not leave by whole of f here"),
    ],
)
def test_a_promise_that_ends_no_rows_of_a_join_is_refused(before: str, after: str, said: str) -> None:
    bound = bind_script(PROMISED)
    text = _text(exported(bound.queries[0].root, _context(bound)))
    assert before in text
    with pytest.raises(PenstockError, match=said) as caught:
        read_plan(text.replace(before, after), _context(bound))
    assert caught.value.code == "P0373"


def test_promises_of_a_join_stand_over_a_join() -> None:
    bound = bind_script(PROMISED)
    data = exported(bound.queries[0].root, _context(bound))
    node = data
    while node["node"] != "PromisedJoin":
        (node,) = node["inputs"]
    node["inputs"] = node["inputs"][0]["inputs"][:1]
    with pytest.raises(PenstockError, match="PromisedJoin stands over a Join, an OuterJoin or a SemiJoin") as caught:
        read_plan(_text(data), _context(bound))
    assert caught.value.code == "P0106"


# --- expressions

_TYPES = (pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), TIMESTAMP, pa.date32(),
          pa.decimal128(9, 2), pa.binary(), pa.duration("us"))  # fmt: skip
_SCHEMA = Schema(tuple(Field(f"c{i}", t) for i, t in enumerate((*_TYPES, pa.int8(), pa.float32()))))
_LITERALS = (
    Literal(pa.string(), "day"),
    Literal(pa.int32(), 2),
    Literal(pa.string(), "$.a"),
    Literal(pa.float64(), 0.5),
)
#: Fractions, sizes and the two sides of a bound.
_SKETCH_CONSTANTS = (
    Literal(pa.float64(), 0.5),
    Literal(pa.float64(), 0.25),
    Literal(pa.int32(), 12),
    Literal(pa.int32(), 1),
    Literal(pa.int32(), -1),
)


def _again(expression: Expression, settings: Settings | None = None) -> Expression:
    columns = NamedColumns.of(_SCHEMA)
    reader = ScalarReader(_context(_sources(), settings))
    return reader.value(Part(written(expression, columns.names)), columns)


def _fitting(
    build: Callable[[tuple[Expression, ...]], Expression], given: Iterable[tuple[Expression, ...]]
) -> list[Expression]:
    """Some calls at random with those of the given arguments that fit."""
    lists = list(given)
    Random(1).shuffle(lists)
    found: list[Expression] = []
    for arguments in lists:
        with contextlib.suppress(PenstockError):
            found.append(build(arguments))
        if len(found) == 12:
            break
    return found


def _columns() -> list[Expression]:
    return [Column(f.type, i, f.name) for i, f in enumerate(_SCHEMA)]


def _argument_lists(least: int, most: int | None) -> Iterator[tuple[Expression, ...]]:
    columns = _columns()
    for count in range(least, max(least, min(most or 3, 3)) + 1):
        if count < 3:
            yield from itertools.product([*columns, *_LITERALS], repeat=count)
        else:
            for first in columns:
                for literal in _LITERALS:
                    yield (first, *[literal] * (count - 1))
                yield (columns[4], first, first)
                yield (first, first, first)


def _sketch_lists(count: int) -> Iterator[tuple[Expression, ...]]:
    """The arguments of a sketch: a value and constants."""
    return itertools.product(_columns(), *[_SKETCH_CONSTANTS] * (count - 1))


def _as_bound(name: str, arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Return arguments as a statement may have them: constants that a function checks are computed before, and the
    letter of ESCAPE is a constant."""
    if name in ("LIKE", "ILIKE"):
        return (*arguments[:2], *(Literal(pa.string(), "!") for _ in arguments[2:]))
    if name in ("TIMESTAMPADD", "TIMESTAMPDIFF"):
        return (Literal(pa.string(), "HOUR"), *arguments[1:])
    if not TABLE[name].checks:
        return arguments
    second = [cast_to(one, pa.string()) if isinstance(one, Literal) else one for one in arguments[1:2]]
    return (*arguments[:1], *(fold(one) for one in (*second, *arguments[2:])))


@pytest.mark.parametrize("name", sorted(name for name, row in TABLE.items() if name == row.name))
def test_calls_of_every_function_are_read_as_they_were(name: str) -> None:
    row = TABLE[name]
    if name == "TRY_CAST":
        calls = [build_cast(Column(pa.string(), 3, "c3"), pa.int32(), try_=True)]
    else:
        calls = _fitting(lambda arguments: build_call(name, _as_bound(name, arguments)), _argument_lists(*row.counts))
    assert calls, "no arguments fit"
    for call in calls:
        again, names = _again(call), NamedColumns.of(_SCHEMA).names
        assert (again.type, written(again, names)) == (call.type, written(call, names))
        assert again == call or any(isinstance(one, Literal) for one in walk(call))


def _aggregated(
    row: Any, arguments: tuple[Expression, ...], distinct: bool, only: Expression | None, order: Expression | None
) -> Expression:
    if isinstance(row, Percentile):
        by = RowOrder(arguments[:1], (KeyDirection(only is not None, False),))
        return build_aggregate(row.name, arguments[1:], False, only, by=by, within=True)
    return build_aggregate(row.name, arguments, distinct, only, order)


@pytest.mark.parametrize("row", AGGREGATES, ids=lambda row: row.name)
def test_calls_of_every_aggregate_are_read_as_they_were(row: Any) -> None:
    columns = NamedColumns.of(_SCHEMA)
    reader = ScalarReader(_context(_sources()))
    condition, time = Column(pa.bool_(), 4, "c4"), Column(TIMESTAMP, 5, "c5")
    tried = set()
    sketch = isinstance(row, SketchFunction)
    most = 2 if isinstance(row, Percentile) else row.arguments
    counts = range(row.least, row.most + 1) if sketch else range(0 if row.of_rows else most, most + 1)
    order = time if row.timed else None
    for count, (distinct, only) in itertools.product(counts, ((False, None), (False, condition), (True, condition))):
        build = partial(_aggregated, row, distinct=distinct, only=only, order=order)
        for call in _fitting(build, _sketch_lists(count) if sketch else _argument_lists(count, count)):
            assert isinstance(call, AggregateCall)
            times = tuple(columns.names.index(name) for name in written_time(call, columns.names))
            again = reader.aggregate(Part(written(call, columns.names)), columns, times)
            assert (again.type, written(again, columns.names)) == (call.type, written(call, columns.names))
            assert again == call or any(isinstance(one, Literal) for one in walk(call))
            tried.add((count, only is None))
    assert tried == {*itertools.product(counts, (False, True))}


@pytest.mark.parametrize(
    "call",
    [
        "array_agg(`c0` ORDER BY `c3` DESC, `c1`)",
        "array_agg(DISTINCT `c3` ORDER BY `c3` DESC NULLS FIRST) FILTER(WHERE `c4`)",
        "string_agg(`c3`, '-' ORDER BY `c1` + 1e0 NULLS LAST)",
        "string_agg(DISTINCT `c3`, '-' ORDER BY `c3` DESC)",
        "first(`c0` ORDER BY `c5` DESC)",
        "last(`c3` ORDER BY `c0`, `c1` DESC) FILTER(WHERE `c4`)",
        "mode() WITHIN GROUP (ORDER BY `c3` DESC)",
        "percentile_disc(5e-1) WITHIN GROUP (ORDER BY `c3`)",
        "percentile_disc(1e0) WITHIN GROUP (ORDER BY `c5` DESC) FILTER(WHERE `c4`)",
    ],
)
def test_calls_with_an_order_are_read_as_they_were(call: str) -> None:
    columns = NamedColumns.of(_SCHEMA)
    read = ScalarReader(_context(_sources())).aggregate(Part(call), columns, ())
    assert isinstance(read, AggregateCall)
    assert written_time(read, columns.names) == []
    again = ScalarReader(_context(_sources())).aggregate(Part(written(read, columns.names)), columns, ())
    assert again == read


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int32(), 0), (pa.int32(), 2**31 - 1), (pa.int64(), 2**31), (pa.int64(), 2**63 - 1),
        (pa.float64(), 0.1), (pa.float64(), 1e300), (pa.float64(), 5e-324), (pa.string(), ""),
        (pa.string(), "it's \\ \"quoted\" `x` \n\t\x00 ü \U0001f600 -- /* ; {{ {% "), (pa.string(), "\\'"),
        (pa.string(), "\\u0041"), (pa.binary(), b"\x00\xff"), (pa.bool_(), True), (pa.null(), None),
        (pa.decimal128(3, 2), Decimal("1.25")),
    ],
)  # fmt: skip
def test_constants_are_read_as_they_were(type_: pa.DataType, value: object) -> None:
    literal = Literal(type_, value)
    assert _again(literal) == literal


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int8(), -3), (pa.int32(), -(2**31)), (pa.int64(), -(2**63)), (pa.float64(), -0.0),
        (pa.float64(), float("inf")), (pa.float64(), float("nan")), (pa.float32(), 1.5), (pa.bool_(), None),
        (pa.duration("us"), dt.timedelta(days=-1, microseconds=5)), (pa.duration("us"), None),
        (pa.decimal128(38, 10), Decimal("-1.5")), (pa.binary(), b""),
        (pa.date32(), dt.date(1, 2, 3)),
        (TIMESTAMP, dt.datetime(2013, 1, 1, 10, 0, 0, 7, dt.UTC)),
    ],
)  # fmt: skip
def test_other_constants_have_the_same_type_and_value(type_: pa.DataType, value: object) -> None:
    from penstock.expressions.evaluation.evaluate import constant

    literal = Literal(type_, value)
    again = _again(literal)
    assert again.type == type_
    assert repr(constant(again).as_py()) == repr(constant(literal).as_py())
    names = NamedColumns.of(_SCHEMA).names
    assert written(again, names) == written(literal, names)


def test_a_setting_of_the_reader_changes_nothing() -> None:
    one, two = Column(pa.int32(), 0, "c0"), Column(pa.int64(), 1, "c1")
    call = build_call("DIV", [one, two])
    assert _again(call, Settings().with_value("integer_division", "true")) == call


def test_columns_of_any_names_are_told_apart() -> None:
    names = ["a", "A", "a#0", "", "", "x`y", "select", "ü 1", "a#1", "\n", "#3"]
    schema = Schema(tuple(Field(name, pa.int32()) for name in names))
    columns = NamedColumns.of(schema)
    assert len({name.lower() for name in columns.names}) == len(names)
    reader = ScalarReader(_context(_sources()))
    for position in range(len(names)):
        column = Column(pa.int32(), position)
        assert reader.value(Part(written(column, columns.names)), columns) == column


# --- what is refused


def _scan(name: str = "s", columns: tuple[str, ...] = ("ts", "k", "v", "x"), node: str = "StreamScan") -> Any:
    return {"node": node, "fields": {"source": name, "columns": list(columns)}}


_U = _scan("u", ("ts", "k", "name", "op"), "RelationScan")
_R = _scan("r", ("k", "name"), "RelationScan")
_N = _scan("n", ("ts", "k", "name", "op"), "RelationScan")


def _over(node: str, *inputs: Any, **fields: Any) -> Any:
    return {"node": node, "fields": fields, "inputs": list(inputs)}


_W = _over("Window", _scan(), kind="RANGE", length=5)
_LINE = _over("FrequencyWindow", _over("Arrivals", place=0), rows=2)
_C = _scan("c", ("at", "k"))


def _period(end: str, *, begin: str = "UNIX_MICROS(at)") -> Any:
    """Return rows of c with their period as a plan."""
    columns = [
        {"expression": "k", "name": "k"}, {"expression": begin, "name": "begin"}, {"expression": end, "name": "end"},
    ]  # fmt: skip
    return _over("Project", _over("Window", _C, kind="UNBOUNDED"), columns=columns)


def _constant(columns: list[Any], rows: list[Any]) -> dict[str, Any]:
    return {"node": "Constant", "fields": {"columns": columns, "rows": rows}}


_FIVE = _period("UNIX_MICROS(at) + 5")
_LATER = _period("UNIX_MICROS(at) + 5", begin="UNIX_MICROS(at) - 5")
_ANY = _period("UNIX_MICROS(at) + k")


@pytest.mark.parametrize(
    ("plan", "code", "pointer"),
    [
        (3, "P0106", "/logical"),
        ({}, "P0106", "/logical"),
        ({"node": "Eval"}, "P0106", "/logical/node"),
        ({"node": "__class__", "fields": {}}, "P0106", "/logical/node"),
        ({"node": "MultiJoin", "inputs": [_W, _W, _W]}, "P0106", "/logical/node"),
        ({"node": "Select", "inputs": []}, "P0106", "/logical/fields"),
        ({"node": "Distinct", "inputs": []}, "P0106", "/logical"),
        ({"node": "Distinct", "inputs": [_W, _W]}, "P0106", "/logical"),
        ({"node": "Distinct", "inputs": _W}, "P0106", "/logical/inputs"),
        ({"node": "Distinct", "fields": {"pattern": "MON"}, "inputs": [_W]}, "P0106", "/logical/fields/pattern"),
        ({"node": "Distinct", "inputs": [_W], "pickle": "x"}, "P0106", "/logical/pickle"),
        ({"same": "/logical"}, "P0106", "/logical/same"),
        (_over("Distinct", {"same": "/logical"}), "P0106", "/logical/inputs/0/same"),
        (_scan("nobody"), "P0201", "/logical/fields/source"),
        (_scan("r"), "P0201", "/logical/fields/source"),
        (_scan("S"), "P0201", "/logical/fields/source"),
        (_scan("penstock.queries"), "P0751", "penstock.queries"),
        (_scan(columns=("ts", "nothing")), "P0202", "/logical/fields/columns/1"),
        (_scan(columns=("k", "k")), "P0206", "/logical/fields/columns/1"),
        (_scan(columns=()), "P0106", "/logical/fields/columns"),
        (_scan("u", ("k", "ts"), "RelationScan"), "P0341", "/logical/fields/columns"),
        (_over("Select", _W, predicate="k"), "P0203", "/logical/fields/predicate"),
        (_over("Select", _W, predicate="k >"), "P0101", "/logical/fields/predicate"),
        (_over("Select", _W, predicate=""), "P0101", "/logical/fields/predicate"),
        (_over("Select", _W, predicate="TRUE; DROP QUERY q"), "P0101", "/logical/fields/predicate"),
        (_over("Select", _W, predicate="kk = 1"), "P0202", "/logical/fields/predicate"),
        (_over("Select", _W, predicate="nope(k)"), "P0204", "/logical/fields/predicate"),
        (_over("Select", _W, predicate="SUM(k) > 1"), "P0304", "/logical/fields/predicate"),
        (_over("Select", _W, predicate="EXISTS (SELECT 1 FROM r)"), "P0312", "/logical/fields/predicate"),
        (_over("Select", _W, predicate="'open"), "P0101", "/logical/fields/predicate"),
        (_over("Select", _W, predicate="(" * 400 + "TRUE" + ")" * 400), "P0105", "/logical/fields/predicate"),
        (_over("Select", _W, predicate=["TRUE"]), "P0106", "/logical/fields/predicate"),
        (_over("Select", _W, predicate="\ud800"), "P0106", "/logical/fields/predicate"),
        (_over("Project", _W, columns=[]), "P0341", "/logical"),
        (_over("Project", _W, columns=[{"expression": "k"}]), "P0106", "/logical/fields/columns/0"),
        (_over("Project", _W, columns=[{"expression": "k", "name": ""}]), "P0106", "/logical/fields/columns/0/name"),
        (_constant([], []), "P0341", "/logical"),
        (_constant([{"name": "a", "type": "INT"}], [["1", "2"]]), "P0305", "/logical/fields/rows/0"),
        (_constant([{"name": "a", "type": "WORD"}], []), "P0207", "/logical/fields/columns/0/type"),
        (_constant([{"name": "a", "type": "INT"}], [["1"], ["'x'"]]), "P0203", "/logical/fields/rows/1/0"),
        (_constant([{"name": "a", "type": "INT"}], [["k"]]), "P0202", "/logical/fields/rows/0/0"),
        (_constant([{"name": "a", "type": "INT"}], [["1"]] * 100_001), "P0105", "/logical"),
        (_over("Window", _W, kind="RANGE", length=5), "P0301", "/logical"),
        (_over("Window", _scan(), kind="RANGE"), "P0102", "/logical"),
        (_over("Window", _scan(), kind="NOW", length=1), "P0102", "/logical"),
        (_over("Window", _scan(), kind="LATER"), "P0106", "/logical/fields/kind"),
        (_over("Window", _scan(), kind="RANGE", length=0), "P0106", "/logical/fields/length"),
        (_over("Window", _scan(), kind="RANGE", length=2**60), "P0106", "/logical/fields/length"),
        (_over("Window", _scan(), kind="RANGE", length=1.5), "P0106", "/logical/fields/length"),
        (_over("Window", _scan(), kind="RANGE", length=True), "P0106", "/logical/fields/length"),
        (_over("Window", _scan(), kind="RANGE", length=5, align=1), "P0102", "/logical/fields/align"),
        (_over("Window", _scan(), kind="RANGE", length=5, slide=2, align=2), "P0106", "/logical/fields/align"),
        (_over("RowWindow", _scan()), "P0102", "/logical"),
        (_over("RowWindow", _scan(), step=2, partition=["k"]), "P0102", "/logical"),
        (_over("RowWindow", _scan(), rows=1, step=2, slide=2), "P0102", "/logical"),
        (_over("RowWindow", _U, rows=1), "P0301", "/logical"),
        (_over("Sample", _W, percent="5", seed=1, name="s"), "P0301", "/logical"),
        (_over("Sample", _scan(), percent="101", seed=1, name="s"), "P0102", "/logical/fields/percent"),
        (_over("Sample", _scan(), percent="1/0", seed=1, name="s"), "P0106", "/logical/fields/percent"),
        (_over("Sample", _scan(), percent="1e999999999", seed=1, name="s"), "P0106", "/logical/fields/percent"),
        (_over("Distinct", _scan()), "P0341", "/logical"),
        (_over("Distinct", _over("Internal", _W)), "P0310", "/logical"),
        (_over("Aggregate", _scan(), aggregates=[{"call": "COUNT(*)", "name": "n"}]), "P0341", "/logical"),
        (_over("Aggregate", _W, aggregates=[]), "P0341", "/logical"),
        (_over("Aggregate", _W, aggregates=[{"call": "k", "name": "n"}]), "P0304",
         "/logical/fields/aggregates/0/call"),
        (_over("Aggregate", _W, aggregates=[{"call": "SUM(v) + 1", "name": "n"}]), "P0304",
         "/logical/fields/aggregates/0/call"),
        (_over("Aggregate", _W, aggregates=[{"call": "LAST(v)", "name": "n"}]), "P0304",
         "/logical/fields/aggregates/0/call"),
        (_over("Aggregate", _W, aggregates=[{"call": "SUM(x > 1)", "name": "n"}]), "P0203",
         "/logical/fields/aggregates/0/call"),
        (_over("Aggregate", _W, group=["k", "k"], aggregates=[]), "P0206", "/logical/fields/group/1"),
        (_over("TopK", _scan(), order=[], limit=1), "P0341", "/logical"),
        (_over("TopK", _W, order=[], limit=-1), "P0106", "/logical/fields/limit"),
        (_over("TopK", _W, order=[{"column": "q"}], limit=1), "P0202", "/logical/fields/order/0/column"),
        (_over("UnionAll", _W, _R), "P0305", "/logical"),
        (_over("UnionAll"), "P0106", "/logical"),
        (_over("Except", _over("Internal", _W), _W, every=True), "P0310", "/logical"),
        (_over("Join", _W, _scan()), "P0341", "/logical"),
        (_over("Join", _W, _R, equal=[["k", "name"]]), "P0203", "/logical/fields/equal/0"),
        (_over("Join", _W, _R, equal=[["k"]]), "P0106", "/logical/fields/equal/0"),
        (_over("Join", _W, _R, equal=[["k", "k"], ["k", "k"]]), "P0206", "/logical/fields/equal/1"),
        (_over("Join", _W, _over("Window", _C, kind="NOW")), "P0302", "/logical"),
        (_over("Join", _W, _N, equal=[["k", "k"]]), "P0340", ""),
        (_over("NRRJoin", _W, _U, equal=[["k", "k"]]), "P0340", "/logical"),
        (_over("NRRJoin", _U, _N, equal=[["k", "k"]]), "P0340", "/logical"),
        (_over("NRRJoin", _W, _N, equal=[["k", "k"]], came=1), "P0106", "/logical/fields/came"),
        (_over("OuterJoin", _W, _R, equal=[["k", "k"]], kind="FULL", single="x"), "P0106", "/logical/fields/single"),
        (_over("SemiJoin", _over("Internal", _W), _R, equal=[["k", "k"]], kind="SEMI"), "P0310", "/logical"),
        (_over("RelationToStream", _scan(), kind="ISTREAM"), "P0307", "/logical"),
        (_over("Restored", _over("RelationToStream", _W, kind="ISTREAM")), "P0319", "/logical"),
        (_over("Restored", _W), "P0319", "/logical"),
        (_over("IndividualResults", _over("Distinct", _W)), "P0318", "/logical"),
        (_over("Internal", _over("Join", _W, _U, equal=[["k", "k"]])), "P0310", "/logical"),
        (_over("Frequency", _scan()), "P0102", "/logical"),
        (_over("Frequency", _scan(), rows=1, slot=1), "P0102", "/logical"),
        (_over("Arrivals", place=0), "P0341", "/logical"),
        (_LINE, "P0341", "/logical/inputs/0"),
        (_over("AtInstants", _W), "P0341", "/logical"),
        (_over("Sequenced", _over("AtInstants", _LINE), _W), "P0301", "/logical"),
        (_over("Sequenced", _LINE, _scan()), "P0341", "/logical"),
        (_over("Sequenced", _over("AtInstants", _LINE), _scan(), _scan(columns=("ts", "k"))), "P0341", "/logical"),
        (_over("Sequenced", _over("AtInstants", _LINE), _scan(), _scan()), "P0106", "/logical"),
        (_over("Sequenced", _over("AtInstants", _W), _scan()), "P0310", "/logical/inputs/0/inputs/0"),
        (_over("Sequenced", _over("AtInstants", _over("Internal", _LINE)), _scan()), "P0310",
         "/logical/inputs/0/inputs/0"),
        (_over("Sequenced", _over("AtInstants", _over("FrequencyWindow", _over("Arrivals", place=1))), _scan()),
         "P0106", "/logical/inputs/0/inputs/0/inputs/0/fields/place"),
        (_over("Project", _U, columns=[{"expression": "RAND() > k", "name": "a"}]), "P0204", "/logical"),
        (_over("ValidWindow", _FIVE, longest=6), "P0341", "/logical"),
        (_over("ValidWindow", _ANY, longest=5), "P0341", "/logical"),
        (_over("ValidWindow", _LATER, longest=5), "P0341", "/logical"),
        (_over("Coalesce", _ANY, begins="FIXED"), "P0341", "/logical"),
        (_over("Coalesce", _FIVE, begins="FIXED", closed=True, longest=4), "P0341", "/logical"),
        (_over("Coalesce", _ANY, begins="TIMESTAMP", closed=True, longest=5), "P0341", "/logical"),
        (_over("Coalesce", _FIVE, begins="GRANULE", closed=True, longest=5), "P0341", "/logical"),
        (_over("Coalesce", _period("UNIX_MICROS(at)", begin="UNIX_MICROS(at) - 5"), begins="FIXED"), "P0341",
         "/logical"),
        (_over("Coalesce", _period("UNIX_MICROS(at) + 5", begin="CAST(k AS BIGINT)"), begins="TIMESTAMP"), "P0341",
         "/logical"),
        (_over("Coalesce", _period("CAST(k AS BIGINT) + 5", begin="CAST(k AS BIGINT)"), begins="GRANULE"), "P0341",
         "/logical"),
        (_over("Coalesce", _FIVE, begins="UNTIL_NEXT"), "P0341", "/logical"),
        (_over("Gaps", _over("Coalesce", _FIVE, begins="FIXED", closed=False, longest=5), longest=6), "P0341",
         "/logical"),
        (_over("Coalesce", _FIVE, begins="FIXED", longest=5), "P0106", "/logical/fields/longest"),
        (_over("SessionWindow", _scan(), cpu=5), "P0106", "/logical/fields/cpu"),
        (_over("Shed", _FIVE, policy="newest", budget=2, buckets=3), "P0106", "/logical/fields/buckets"),
    ],
)  # fmt: skip
def test_a_plan_that_is_wrong_is_refused_with_its_place(plan: Any, code: str, pointer: str) -> None:
    text = json.dumps({"format": FORMAT, "logical": plan})
    with pytest.raises(ScriptErrors) as caught:
        bind_script(SCRIPT + f"CREATE QUERY q FROM PLAN {string_text(text)};")
    (error,) = caught.value.errors
    assert error.code == code, error.message
    assert pointer in error.message and error.position is not None


@pytest.mark.parametrize(
    "plan",
    [
        _over("ValidWindow", _FIVE, longest=5),
        _over("Coalesce", _FIVE, begins="FIXED", closed=True, longest=5),
        _over("Coalesce", _over("Select", _FIVE, predicate="k > 1"), begins="FIXED"),
        _over("Coalesce", _ANY, begins="TIMESTAMP", closed=True),
    ],
)
def test_a_length_that_the_periods_have_is_read(plan: Any) -> None:
    text = json.dumps({"format": FORMAT, "logical": plan})
    assert bind_script(SCRIPT + f"CREATE QUERY q FROM PLAN {string_text(text)};").queries


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", "P0106", "no JSON"),
        ("null", "P0106", "an object is needed"),
        ("[]", "P0106", "an object is needed"),
        ("{", "P0106", "no JSON"),
        ('{"format": "penstock.plan/1"}', "P0106", "logical"),
        ('{"format": "penstock.plan/2", "logical": {}}', "P0106", "/format"),
        ('{"format": "penstock.plan/1", "logical": {}, "logical": {}}', "P0106", "twice"),
        ('{"format": "penstock.plan/1", "logical": NaN}', "P0106", "NaN"),
        ('{"format": "penstock.plan/1", "logical": ' + "1" * 5000 + "}", "P0106", "no JSON"),
        ("[" * (MAX_LEVELS + 1), "P0105", "levels"),
        (" " * (MAX_CHARACTERS + 1), "P0105", "characters"),
    ],
)
def test_a_text_that_is_no_plan_is_refused(text: str, code: str, said: str) -> None:
    with pytest.raises(ScriptErrors) as caught:
        bind_script(SCRIPT + f"CREATE QUERY q FROM PLAN {string_text(text)};")
    (error,) = caught.value.errors
    assert error.code == code and said in error.message


def test_brackets_in_strings_are_no_levels() -> None:
    assert parsed('{"a": "' + "[" * 3000 + '\\""}').value["a"] == "[" * 3000 + '"'


def test_operators_on_top_of_each_other_are_limited() -> None:
    plan = _W
    for _ in range(1_010):
        plan = _over("Distinct", plan)
    with pytest.raises(ScriptErrors) as caught:
        bind_script(SCRIPT + f"CREATE QUERY q FROM PLAN {string_text(printed({'format': FORMAT, 'logical': plan}))};")
    assert [error.code for error in caught.value.errors] == ["P0105"]


def test_a_plan_that_doubles_itself_is_refused_soon() -> None:
    plan = _W
    pointer = "/logical" + "/inputs/0" * 40
    for level in range(39, -1, -1):
        below = "/logical" + "/inputs/0" * (level + 1)
        plan = _over("UnionAll", plan, {"same": below})
    assert pointer
    with pytest.raises(ScriptErrors) as caught:
        bind_script(SCRIPT + f"CREATE QUERY q FROM PLAN {string_text(printed({'format': FORMAT, 'logical': plan}))};")
    assert [error.code for error in caught.value.errors] == ["P0105"]


def test_a_plan_that_cannot_be_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.language.plans import nodes

    bound = bind_script(SCRIPT + "CREATE QUERY q AS SELECT k FROM s;")
    numbers = itertools.count()
    monkeypatch.setattr(nodes, "written", lambda expression, names: str(next(numbers)))
    with pytest.raises(PenstockError, match="P0342") as caught:
        exported(bound.queries[0].root, _context(bound))
    assert caught.value.code == "P0342"


# --- statements


def test_a_plan_that_was_edited_is_another_query() -> None:
    bound = bind_script(SCRIPT + "CREATE QUERY q AS SELECT k FROM s [RANGE 5 SECONDS] WHERE k > 1;")
    text = _text(exported(bound.queries[0].root, _context(bound))).replace("`k` > 1", "`k` > 2")
    (edited,) = bind_script(SCRIPT + f"CREATE QUERY e FROM PLAN {string_text(text)};").queries
    (expected,) = bind_script(SCRIPT + "CREATE QUERY e AS SELECT k FROM s [RANGE 5 SECONDS] WHERE k > 2;").queries
    assert edited.root == expected.root


def test_what_a_plan_reads_cannot_be_dropped() -> None:
    text = string_text(printed({"format": FORMAT, "logical": _W}))
    with pytest.raises(ScriptErrors) as caught:
        bind_script(SCRIPT + f"CREATE QUERY q FROM PLAN {text}; DROP STREAM s;")
    assert [error.code for error in caught.value.errors] == ["P0222"]


def test_a_plan_without_a_name_or_word_is_refused() -> None:
    for statement in (
        "EXPORT q",
        "EXPORT PLAN q",
        "EXPORT PLAN OF",
        "CREATE QUERY q FROM PLAN",
        "CREATE QUERY q FROM s",
    ):
        with pytest.raises(ScriptErrors) as caught:
            bind_script(SCRIPT + statement + ";")
        assert {error.code for error in caught.value.errors} == {"P0101"}, statement
    with pytest.raises(ScriptErrors) as caught:
        bind_script(SCRIPT + "EXPORT PLAN OF nobody;")
    assert [error.code for error in caught.value.errors] == ["P0201"]
