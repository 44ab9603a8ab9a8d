"""FREQUENT against its definition: random windows, panes, ties and cuts; certain bounds over adversarial inputs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import ScriptErrors
from penstock.language.scripts import bind_script
from penstock.physical.plan.strategies import Strategy
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

STREAM = (
    "CREATE STREAM {0} (ts INT, item STRING, place INT, bytes INT, price DECIMAL(10, 2)) FROM MEMORY () "
    "TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 3 SECONDS;"
)
WINDOWS = (
    "[RANGE {0} SECONDS SLIDE {1} SECONDS]",
    "[RANGE {0} SECONDS SLIDE {1} SECONDS]",
    "[NOW SLIDE {1} SECONDS]",
    "[RANGE UNBOUNDED SLIDE {1} SECONDS]",
    "[RANGE {2} TUPLES, FREQUENCY {1} TUPLES]",
    "[ROWS {2} SLIDE {1} ROWS]",
)
AGGREGATES = ("COUNT(*)", "COUNT(bytes)", "SUM(bytes)", "SUM(price)", "COUNT(*) FILTER (WHERE bytes > 2)")


def query(draw: random.Random) -> str:
    slide = draw.randint(1, 6)
    window = draw.choice(WINDOWS).format(draw.randint(1, 20), slide, slide * draw.randint(1, 4))
    call = draw.choice(AGGREGATES)
    by = "" if call == "COUNT(*)" else f" BY {call}"
    group, per = draw.choice([("item", ""), ("item", ""), ("item, place", ""), ("item, place", " PER (place)")])
    above = draw.choice(["", "", " ABOVE 0.1", " ABOVE 0.333333", " ABOVE 3"])
    possibly = draw.choice(["", " OR POSSIBLY"])
    items = draw.choice(
        [
            f"{call} AS n, UPPER_BOUND({call}) AS u, MISSED_BOUND() AS m",
            f"{call} AS n",
            f"ERROR_BOUND({call}) AS e, LOWER_BOUND({call}) AS l",
            "1 AS one",
        ]
    )
    source = f"s {window}"
    if "ROWS" not in window and "TUPLES" not in window and draw.random() < 0.3:
        other = f"t [RANGE {draw.randint(1, 9)} SECONDS SLIDE {draw.randint(1, 4)} SECONDS]"
        source, on = f"s {window} s, {other} t", "s.place = t.place"
        group = ", ".join(f"s.{name}" for name in group.split(", "))
        per = per.replace("(", "(s.")
        call, by, items = (text.replace("bytes", "s.bytes").replace("price", "s.price") for text in (call, by, items))
        where = f" WHERE {on}"
    else:
        where = draw.choice(["", " WHERE bytes > 1"])
    having = draw.choice(["", "", f" HAVING {call} > 2"])
    return (
        f"SELECT {group}, {items} FROM {source}{where} GROUP BY {group} FREQUENT {draw.randint(1, 4)}"
        f"{by}{per}{above}{possibly}{having}"
    )


def rows(draw: random.Random, count: int) -> pa.Table:
    ts, found = draw.randint(-30, 30), []
    for _ in range(count):
        ts += draw.choice([0, 0, 1, 1, 2, 9])
        item = draw.choice([None, "a", "a", "a", "b", "b", "c", "d", "ä", ""])
        found.append(
            (ts - draw.choice([0, 0, 1]), item, draw.choice([None, 1, 2]), draw.choice([None, -2, 0, 1, 2, 3, 9]))
        )
    columns = list(zip(*found, strict=True)) if found else [(), (), (), ()]
    prices = pa.array([None if b is None else Decimal(b * 7) / 100 for b in columns[3]], pa.decimal128(10, 2))
    return pa.table(
        {
            "ts": pa.array(columns[0], pa.int32()),
            "item": pa.array(columns[1], pa.string()),
            "place": pa.array(columns[2], pa.int32()),
            "bytes": pa.array(columns[3], pa.int32()),
            "price": prices,
        }
    )


def check(seed: int, made: Callable[[random.Random], str] = query) -> int:
    """Return the number of rows of the answer."""
    draw = random.Random(seed)
    thesis = draw.choice(["", "SET frequent_bound = 'thesis';"])
    script = f"{STREAM.format('s')}{STREAM.format('t')}{thesis}CREATE QUERY q AS {made(draw)};"
    bound = bind_script(script)
    inputs = {"s": rows(draw, draw.randint(0, 60)), "t": rows(draw, draw.randint(0, 12))}
    run = CaseRun(
        draw.randint(1, 3), draw.randint(0, 99), None, draw.random() < 0.2, True, None, draw.choice(list(Strategy))
    )
    drain = draw.random() < 0.5
    try:
        result = run.answer(bound.queries, inputs, drain, None)
        (found,) = bound.queries
        assert_same(found, result.tables["q"], run_oracle(found, inputs, drain))
        return int(result.tables["q"].num_rows)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {script} {run} drain={drain}\n{inputs}") from error


def test_local_is_oracle() -> None:
    assert sum(check(seed) for seed in range(60)) > 200, "the cases say little"


def array_query(draw: random.Random) -> str:
    slide = draw.randint(1, 6)
    window = draw.choice((*WINDOWS[:3], WINDOWS[-1])).format(draw.randint(1, 20), slide, slide * draw.randint(1, 3))
    k = draw.randint(1, 3)
    capacity = draw.choice(["", f", {k}", f", {k + 1}"])
    group, item = draw.choice(["", " GROUP BY place"]), draw.choice(["item", "bytes", "price"])
    other = draw.choice(["", ", COUNT(*) AS n, MAX(bytes) AS most", f", APPROX_TOP_K({item}, 1, {k}) AS more"])
    only = draw.choice(["", " FILTER (WHERE bytes > 0)"])
    return f"SELECT APPROX_TOP_K({item}, {k}{capacity}){only} AS top{other} FROM s {window}{group}"


def test_arrays() -> None:
    # In the last two several numbers of elements are one instant, at which a list changes and changes back.
    assert sum(check(seed, array_query) for seed in (*range(40), 930_026, 930_044)) > 200, "the cases say little"


def test_an_array_with_capacity_for_all_is_exact() -> None:
    script = f"""{STREAM.format("s")}
    CREATE QUERY lists AS SELECT APPROX_TOP_K(item, 2, 9) AS top FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS];
    CREATE QUERY exact AS SELECT TOP_K(item, 2) AS top FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS];"""
    found = run_local(bind_script(script).queries, {"s": rows(random.Random(5), 200)}).tables
    key = [("ts", "ascending"), ("op", "ascending")]
    assert found["lists"].sort_by(key).to_pylist() == found["exact"].sort_by(key).to_pylist()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT APPROX_TOP_K(item, 3, 2) AS t FROM s [NOW SLIDE 5 SECONDS]", "P0203"),
        ("SELECT APPROX_TOP_K(item, 0) AS t FROM s [NOW SLIDE 5 SECONDS]", "P0203"),
        ("SELECT APPROX_TOP_K(item, place) AS t FROM s [NOW SLIDE 5 SECONDS]", "P0203"),
        ("SELECT APPROX_TOP_K(item, 3) AS t FROM s [RANGE 5 SECONDS]", "P0353"),
        ("SELECT APPROX_TOP_K(item, 3) AS t FROM s [ROWS 5]", "P0353"),
        ("SELECT APPROX_TOP_K(item, 3) AS t FROM s [ROWS 5 SLIDE 2 ROWS]", "P0352"),
        ("SELECT LOWER_BOUND(APPROX_TOP_K(item, 3)) AS t FROM s [NOW SLIDE 5 SECONDS]", "P0355"),
    ],
)
def test_refused_arrays(text: str, code: str) -> None:
    with pytest.raises(ScriptErrors) as caught:
        bind_script(f"{STREAM.format('s')}CREATE QUERY q AS {text};")
    assert caught.value.code == code


@pytest.mark.slow
def test_local_is_oracle_at_length() -> None:
    for seed in range(100, 2000):
        check(seed)


def adversaries() -> Iterator[tuple[str, list[str]]]:
    """Items that defeat lists of k: bursts that fill one pane, an item that is always number k + 1, all alike."""
    yield "always next", [item for _ in range(40) for item in ("a1", "a1", "b1", "b1", "x")]
    yield "bursts", [f"burst {pane}" for pane in range(40) for _ in range(5)]
    yield "all equal", ["same"] * 200
    yield "all different", [str(number) for number in range(200)]
    yield "changing leaders", [f"{(number // 5) % 3}" if number % 5 < 3 else "x" for number in range(200)]


@pytest.mark.parametrize("bound", ["sharper", "thesis"])
@pytest.mark.parametrize(
    ("name", "items"), list(adversaries()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_bounds_are_certain(name: str, items: list[str], bound: str) -> None:
    script = f"""SET frequent_bound = '{bound}';
    CREATE STREAM s (ts INT, item STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY q AS RSTREAM (SELECT item, COUNT(*) AS n, UPPER_BOUND(COUNT(*)) AS u, MISSED_BOUND() AS m
    FROM s [RANGE 50 SECONDS SLIDE 5 SECONDS] GROUP BY item FREQUENT 2 ABOVE 1 OR POSSIBLY);"""
    table = pa.table({"ts": pa.array(range(1, len(items) + 1), pa.int32()), "item": items})
    answer = run_local(bind_script(script).queries, {"s": table}).tables["q"].to_pylist()
    assert answer
    for row in answer:
        true = Counter(items[max(0, row["ts"] - 50) : row["ts"]])
        assert row["n"] <= true[row["item"]] <= row["u"]
    for tick in {row["ts"] for row in answer}:
        at = [row for row in answer if row["ts"] == tick]
        true = Counter(items[max(0, tick - 50) : tick])
        unlisted = [count for item, count in true.items() if item not in {row["item"] for row in at}]
        assert max(unlisted, default=0) <= max(1, at[0]["m"])
