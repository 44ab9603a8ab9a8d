"""A column whose type does not exist: it is reported, what reads it is not, and everything else is checked."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.language.scripts import bind_script

DECLARED = """CREATE STREAM s (ts BIGINT, a INT, b STRINGG, c STRING) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM t (ts BIGINT, a INT, b STRING) FROM MEMORY () TIMESTAMP BY ts;
"""
#: A script over both streams, and the mistakes in it besides the type.
SCRIPTS = [
    ("CREATE QUERY q AS SELECT aa, b, c FROM s;", ["unknown column aa"]),
    ("CREATE QUERY q AS SELECT b + 1, UPPER(b), c FROM s;", []),
    ("CREATE QUERY q AS SELECT * FROM s WHERE cc = 1;", ["unknown column cc"]),
    ("CREATE QUERY q AS SELECT s.a FROM s [ROWS 2] JOIN t [ROWS 2] USING (b) WHERE x = 1;", ["unknown column x"]),
    ("CREATE QUERY q AS SELECT s.a FROM s [ROWS 2], t [ROWS 2] WHERE s.b = t.bb;", ["unknown column t.bb"]),
    ("CREATE VIEW v AS SELECT a, b FROM s; CREATE QUERY q AS SELECT zz FROM v;", []),
    ("CREATE VIEW v AS SELECT a, c FROM s; CREATE QUERY q AS SELECT zz FROM v;", ["unknown column zz"]),
    ("CREATE QUERY q AS SELECT 1 FROM s [PARTITION BY b ROWS 2 WHERE b > 1] GROUP BY b, d;", ["unknown column d"]),
    ("CREATE QUERY q AS SELECT a FROM t [ROWS 2] WHERE b IN (SELECT b FROM s [ROWS 2]) AND e;", ["unknown column e"]),
    ("CREATE QUERY q AS SELECT a, b FROM t UNION ALL SELECT a, b FROM s;", []),
    ("INSERT INTO s VALUES (1, 2, 3, 'x'), (1, 2, 3);", ["3 values for the 4 columns of s"]),
    ("INSERT INTO s VALUES (1, 'two', 3, 'x');", ["'two' is not INT, the type of a"]),
    ("EXPLAIN SELECT d FROM s; CREATE STREAM s (k INTT) FROM MEMORY () SYSTEM TIME;",
     ["unknown column d", "s is declared already", "unknown type INTT"]),
]  # fmt: skip


@pytest.mark.parametrize(("script", "others"), SCRIPTS)
def test_the_other_mistakes_are_reported_beside_it(script: str, others: list[str]) -> None:
    with pytest.raises(PenstockError) as caught:
        bind_script(DECLARED + script)
    assert [e.message for e in caught.value.errors] == ["unknown type STRINGG", *others]


@pytest.mark.parametrize("clauses", ["TIMESTAMP BY at", "TIMESTAMP BY k OPERATION BY at", "TIMESTAMP BY k UNIT SECOND"])
def test_clauses_that_need_its_type_add_no_error(clauses: str) -> None:
    columns = "at TIMESTAP, k BIGINT, PRIMARY KEY (kk)"
    with pytest.raises(PenstockError) as caught:
        bind_script(f"CREATE RELATION r ({columns}) FROM MEMORY () {clauses};")
    assert [e.message for e in caught.value.errors] == ["unknown type TIMESTAP", "unknown column kk"]
