"""Every query that the papers print: read as it is printed, with the meaning that the oracle gives it, or refused with
a reason. Those of CSQL are in `test_csql.py` and `tests/csql_paper.cqltest`.

Where a paper leaves something open it is filled in: quotes are straight, `[RANGE ...]` has a length, words that stand
for a value (`protocol = ftp`) are texts. `[cidr]`: Query processing, resource management, and approximation in a "
"data stream
management system; `[golab]`: Sliding window query processing over data streams; `[tls]`: temporal load shedding;
`[ops]`: continuous query semantics and operators.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import ScriptErrors
from penstock.language.scripts import BoundScript, bind_query, bind_script, print_statement
from penstock.language.scripts.parse import parse_query
from penstock.language.text import SourceText
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

_DECLARED = """
CREATE STREAM Requests (client_id INT, domain STRING, URL STRING, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION Domains (domain STRING, type STRING) FROM MEMORY ();
CREATE STREAM S (a INT, b INT, length INT, protocol STRING, user STRING, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (b INT, c INT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM S1 (a INT, attr INT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM S2 (a INT, attr INT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM S3 (a INT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM Stream1 (a INT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM Stream2 (a INT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM Link1 (source_IP_address STRING, protocol STRING, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM Link2 (source_IP_address STRING, protocol STRING, ts INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM Stream (humidity INT, timestamp INT) FROM MEMORY () TIMESTAMP BY timestamp;
CREATE STREAM Rooms (s STRING, floor INT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
"""


@dataclass(frozen=True)
class Printed:
    """A query of a paper that is read. same_as: what it means, written otherwise; the oracle answers both alike."""

    place: str
    text: str
    pattern: Pattern
    is_stream: bool = False
    same_as: str | None = None


_MON, _WKS, _STR = Pattern.MONOTONIC, Pattern.WEAKEST, Pattern.STRICT

READ = (
    Printed("cidr 2.1, first",
        "Select Count(*) From Requests S [Range 1 Day Preceding] Where S.domain = 'stanford.edu'", _STR),
    Printed(
        "cidr 2.1, second",
        "Select Count(*) From Requests S [Partition By S.client_id Rows 10 Preceding Where S.domain = 'stanford.edu'] "
        "Where S.URL Like 'http://cs.stanford.edu/%'", _STR,
    ),
    Printed(
        "cidr 2.1, third",
        "Select T.URL From (Select client_id, URL From Requests S, Domains R Where S.domain = R.domain "
        "And R.type = 'commerce') T Sample(10) Where T.client_id Between 1 And 1000", _MON, True,
    ),
    Printed("cidr 2.2", "Select * From S", _MON, True),
    Printed("golab 1.2, Q1", "SELECT MAX(a) FROM S", _STR),
    Printed("golab 1.2, Q2", "SELECT MAX(a) FROM S [RANGE 1 min]", _STR),
    Printed("golab 1.2, Q3", "SELECT MAX(a) FROM S [RANGE 1 min], T [RANGE 1 min] WHERE S.b = T.b", _STR),
    Printed("golab 2.1.3", "SELECT Rstream(*) FROM S1 [RANGE 1 min], S2 [RANGE 1 min] WHERE S1.a = S2.a", _MON, True),
    Printed(
        "golab 3.4, WSTREAM, with the names of its condition",
        "SELECT Wstream(*)[ROWS 10] FROM Stream1 S1[RANGE 1 min], "
        "Stream2 S2[RANGE 1 min] WHERE S1.a = S2.a", _STR,
    ),
    Printed(
        "golab 3.5.1 without RSTREAM in the subquery", "SELECT Rstream(*) FROM S1, S2 WHERE S1.a = S2.a "
        "AND NOT EXISTS (SELECT * FROM S3 WHERE S3.a = S1.a)", _MON, True,
    ),
    Printed(
        "golab 3.6, Query 3 without RSTREAM in the subquery", "SELECT Rstream(*) FROM Link1 [RANGE 20 sec] WHERE NOT "
        "EXISTS (SELECT * FROM Link2 [RANGE 20 sec] WHERE Link2.source_IP_address = Link1.source_IP_address)", _MON,
        True,
    ),
    Printed(
        "golab 3.4, INTERNAL, with a name for the inner sum",
        "SELECT SUM(x) FROM (SELECT SUM(a) AS x FROM Stream1[RANGE 6 sec SLIDE 6 sec INTERNAL]) [ROWS 10]",
        _STR,
    ),
    Printed(
        "golab 3.4, WSTREAM of an aggregate",
        "SELECT SUM(Wstream(SUM(a))[ROWS 10]) FROM Stream1[RANGE 6 sec SLIDE 6 sec]",
        _STR,
        same_as="SELECT SUM(x) FROM (SELECT SUM(a) AS x FROM Stream1[RANGE 6 sec SLIDE 6 sec INTERNAL]) [ROWS 10]",
    ),
    Printed(
        "golab 3.4, restore",
        "SELECT Rstream-restore(*) FROM Stream1[RANGE 1 min SLIDE 10 sec], Stream2[RANGE 1 min SLIDE 10 sec] "
        "WHERE Stream1.a = Stream2.a", _MON, True,
    ),
    Printed(
        "golab 3.6, Query 1",
        "SELECT Rstream(*) FROM Link1 [RANGE 200 sec], Link2 [RANGE 200 sec] "
        "WHERE Link1.source_IP_address = Link2.source_IP_address AND Link1.protocol = 'ftp' AND Link2.protocol = 'ftp'",
        _MON, True,
    ),
    Printed(
        "golab 3.6, Query 2", "SELECT Rstream(DISTINCT source_IP_address) FROM Link1 [RANGE 20 sec]", _MON, True,
        same_as="RSTREAM(SELECT DISTINCT source_IP_address FROM Link1 [RANGE 20 SECONDS])",
    ),
    Printed("golab 8.1, Q1", "SELECT MEDIAN(length) FROM S [WINDOW 10 min SLIDE 2 min]", _STR),
    Printed("golab 8.1, Q2", "SELECT MEDIAN(length) FROM S [WINDOW 14 min SLIDE 3 min]", _STR),
    Printed("golab 8.3.3, Q1", "SELECT SUM(length) FROM S WHERE protocol='TCP'", _STR),
    Printed("golab 8.3.3, Q2", "SELECT SUM(length) FROM S WHERE protocol='UDP'", _STR),
    Printed("golab 8.3.3, Q3", "SELECT SUM(length) FROM S WHERE protocol='TCP' OR protocol='UDP'", _STR),
    Printed("golab 8.3.3, Q4", "SELECT MAX(length) FROM S WHERE protocol='TCP'", _STR),
    Printed("golab 8.3.3, Q5", "SELECT MAX(length) FROM S WHERE user='U'", _STR),
    Printed("golab 8.3.3, Q6", "SELECT MAX(length) FROM S WHERE protocol='TCP' OR user='U'", _STR),
    Printed(
        "tls, example 1",
        "SELECT S.humidity, S.timestamp FROM Stream S RANGE 15 MINUTE SLIDES 1 MINUTE WHERE S.humidity > 75", _WKS,
    ),
    Printed(
        "tls, example 3",
        "SELECT S.humidity, VALID (S) FROM Stream (humidity) as S RANGE 15 MINUTE SLIDES 1 MINUTE "
        "WHERE CAST (VALID (S) AS INTERVAL MINUTE) >= 3", _STR,
    ),
    Printed("ops, Q3", "SELECT * FROM S1 [RANGE 60 SECONDS], S2 [RANGE 60 SECONDS] WHERE S1.attr = S2.attr",
        Pattern.WEAK),
)  # fmt: skip

#: (place, text, code, a part of the message or of the hint).
REFUSED = (
    # The windows bear no names, and the conditions use other ones.
    ("golab 3.4, WSTREAM",
     "SELECT Wstream(*)[ROWS 10] FROM Stream1[RANGE 1 min], Stream2[RANGE 1 min] WHERE S1.a = S2.a",
     "P0201", "S1 is not a source of this query"),
    # The inner sum has no name: `a` is not among the columns of the nested query.
    ("golab 3.4, nested sums",
     "SELECT SUM(a) FROM (SELECT SUM(a) FROM Stream1[RANGE 6 sec SLIDE 6 sec INTERNAL]) [ROWS 10]",
     "P0202", "give it a name there, sum(a) AS a"),
    # A subquery is a relation at every instant, which RSTREAM would turn into all that it ever was.
    ("golab 3.5.1", "SELECT Rstream(*) FROM S1, S2 WHERE S1.a = S2.a "
     "AND NOT EXISTS (SELECT Rstream(*) FROM S3 WHERE S3.a = S1.a)", "P0312",
     "leave it out: the subquery is a relation"),
    ("golab 3.6, Query 3", "SELECT Rstream(*) FROM Link1 [RANGE 20 sec] WHERE NOT EXISTS (SELECT Rstream(*) "
     "FROM Link2 [RANGE 20 sec] WHERE Link2.source_IP_address = Link1.source_IP_address)", "P0312", "leave it out"),
    # The thesis calls the join weakest non-monotonic. Its results would expire as the rows of S2 do, out of the
    # order in which they came: pattern WK.
    ("golab 3.3.2", "SELECT S1.a FROM S1 [RANGE 1 min INTERNAL], S2 [RANGE 2 min] WHERE S1.a = S2.a",
     "P0310", "an input beside an INTERNAL window loses tuples"),
    ("golab 2.1.3, StreaQuel", "SELECT MAX(a) FROM S for(t=ST; t<ST+50; t++) WindowIs(S, t-4, t)", "P0101",
     "unexpected 'for'"),
    ("golab 2.1.3, COUGAR", "SELECT R.s.getTemperature() FROM Rooms R WHERE R.floor = 3 AND $every(60)", "P0101",
     "found '$'"),
    ("tls, example 2", "SELECT E.NAME, VALID (E) FROM Employee E (Name, Department) as E "
     "WHERE CAST (VALID (E) AS INTERVAL YEAR) > 6", "P0201", "unknown stream, relation or view Employee"),
    ("ops, Q2", "SELECT COUNT(*) FROM S1, S2 WHERE S1.attr = S2.attr GROUP BY S1.ts/60 AS minute", "P0101",
     "unexpected 'AS'"),
    ("ops, Q3 by conditions", "SELECT COUNT(*) FROM S1, S2 WHERE S1.attr = S2.attr GROUP BY |S1.ts - S2.ts| <= 5",
     "P0101",
     "found '|'"),
)  # fmt: skip


def _bound(text: str) -> BoundScript:
    return bind_script(f"{_DECLARED} CREATE QUERY q AS {text};")


def _inputs(seed: int) -> dict[str, pa.Table]:
    draw = random.Random(seed)
    domains = ["stanford.edu", "shop.com", "x.org"]
    ip, protocols = ["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["ftp", "telnet", "TCP", "UDP"]
    urls = ["http://cs.stanford.edu/a", "http://shop.com/b", "http://cs.stanford.edu/c"]
    small = range(4)
    columns: dict[str, dict[str, Sequence[object]]] = {
        "Requests": {"client_id": small, "domain": domains, "URL": urls},
        "S": {"a": small, "b": small, "length": range(50), "protocol": protocols, "user": ["U", "V"]},
        "T": {"b": small, "c": small}, "S1": {"a": small, "attr": small}, "S2": {"a": small, "attr": small},
        "S3": {"a": range(3)}, "Stream1": {"a": small}, "Stream2": {"a": small}, "Rooms": {"s": ["x"], "floor": small},
        "Link1": {"source_IP_address": ip, "protocol": protocols}, "Link2": {"source_IP_address": ip,
        "protocol": protocols},
        "Stream": {"humidity": range(60, 100, 10)},
    }  # fmt: skip
    declared = _bound("SELECT * FROM S").catalog.sources
    found: dict[str, pa.Table] = {"Domains": pa.table({"domain": domains, "type": ["edu", "commerce", "commerce"]})}
    for name, drawn in columns.items():
        stamps = sorted(draw.randrange(200) * draw.choice([1, 7]) for _ in range(40))
        rows = {column: [draw.choice(values) for _ in stamps] for column, values in drawn.items()}
        source = declared[name.lower()]
        last = source.columns.names[-1]
        arrays = [pa.array({**rows, last: stamps}[f.name], f.type) for f in source.columns]
        found[name] = pa.table(dict(zip(source.columns.names, arrays, strict=True)))
    return found


@pytest.mark.parametrize("printed", READ, ids=lambda printed: printed.place)
def test_a_query_is_read_as_it_is_printed(printed: Printed) -> None:
    (query,) = _bound(printed.text).queries
    assert (query.root.pattern, query.root.is_stream) == (printed.pattern, printed.is_stream)
    for seed in range(3):
        inputs = _inputs(seed)
        law = run_oracle(query, inputs, drain=True)
        assert law.events or "Sample" in printed.text
        for cut in range(3):
            assert_same(query, run_local([query], inputs, shards=2, seed=cut, drain=True).tables["q"], law)
        if printed.same_as is not None:
            (other,) = _bound(printed.same_as).queries
            assert run_oracle(other, inputs, drain=True).events == law.events


def test_a_sample_of_computed_rows_warns_of_equal_ones() -> None:
    """The third of `[cidr 2.1]` leaves the columns out that would tell requests apart."""
    third = next(printed for printed in READ if printed.place == "cidr 2.1, third")
    (warning,) = _bound(third.text).warnings
    assert "rows of T that are equal at one instant are sampled together" in warning.message
    assert not _bound("SELECT a FROM S SAMPLE(10)").warnings
    assert not _bound("SELECT a FROM (SELECT a FROM S) q SAMPLE(10 BY a)").warnings


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT SUM(Wstream(a)[ROWS 10]), 2 FROM S", "stands alone, without GROUP BY"),
        ("SELECT SUM(Wstream(a)[ROWS 10]) FROM S GROUP BY b", "stands alone, without GROUP BY"),
        ("SELECT SUM(Wstream(*)[ROWS 10]) FROM S", "takes one value, not *"),
        ("SELECT SUM(Wstream(a)) FROM S", "WSTREAM needs a window after it"),
        ("SELECT a FROM (SELECT a FROM S [RANGE 1 MINUTE]) q SAMPLE(10)", "q is a relation"),
        (
            "SELECT COUNT(*) FROM S, LATERAL (SELECT T.c FROM T [NOW] WHERE T.b = S.a) q SAMPLE(10)",
            "SAMPLE over a query that reads the sources beside it",
        ),
    ],
)
def test_what_is_not_meant_by_them_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ScriptErrors) as caught:
        _bound(text)
    assert reason in caught.value.errors[0].message


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(Wstream(SUM(a) AS x)[RANGE 1 MINUTE]) + 1 AS y FROM S WHERE b > 1",
        "SELECT COUNT(*) FROM (SELECT a FROM S) q [RANGE 1 MINUTE] SAMPLE(10 ROWS)",
        "SELECT * FROM (SELECT a FROM S) AS q r SAMPLE(10)",
        "SELECT Rstream(DISTINCT a, b) FROM S [RANGE 1 MINUTE]",
    ],
)
def test_they_are_printed_as_they_are_read(text: str) -> None:
    catalog = _bound("SELECT * FROM S").catalog
    printed = print_statement(parse_query(SourceText(text)))
    assert bind_query(printed, catalog).root == bind_query(text, catalog).root


def test_sums_over_text_warn() -> None:
    warned = [
        warning.message for warning in _bound("SELECT SUM(protocol), AVG(user), MIN(user), SUM(a) FROM S").warnings
    ]
    assert [message.partition(":")[0] for message in warned] == ["SUM over a text", "AVG over a text"]


@pytest.mark.parametrize(("written", "origin"), [("-7", 3), ("-7 SECONDS", 3), ("- INTERVAL '7' SECOND", 3), ("7", 2)])
def test_boundaries_are_aligned_to_a_tick_before_0(written: str, origin: int) -> None:
    text = "SELECT SUM(a) FROM S [RANGE 10 SECONDS SLIDE 5 SECONDS ALIGN TO {}]"
    (found,) = _bound(text.format(written)).queries
    (same,) = _bound(text.format(origin)).queries
    assert found.root == same.root
    inputs = _inputs(1)
    assert_same(found, run_local([found], inputs, shards=2, seed=1).tables["q"], run_oracle(found, inputs))


@pytest.mark.parametrize(("place", "text", "code", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_query_is_refused_with_its_reason(place: str, text: str, code: str, reason: str) -> None:
    with pytest.raises(ScriptErrors) as caught:
        _bound(text)
    first = caught.value.errors[0]
    assert first.code == code and reason in f"{first.message} {first.hint}", first.render()
