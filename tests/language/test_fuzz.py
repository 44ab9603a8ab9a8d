"""Whatever is typed, the answer is a PenstockError or a result, never another exception."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.language.scripts import Catalog, bind_script, parse_script, print_statement

WORDS = [
    word
    for line in (
        "SELECT FROM WHERE GROUP BY HAVING DISTINCT ISTREAM RSTREAM DSTREAM WSTREAM RESTORE UNION ALL EXCEPT INTERSECT",
        "JOIN LEFT ON USING CREATE STREAM RELATION VIEW QUERY INTO MEMORY FILES TIMESTAMP UNIT SECOND SECONDS MINUTE",
        "ORDER WITHIN LIMIT INSERT VALUES SET EXPLAIN SHOW DROP AS RANGE ROWS NOW UNBOUNDED SLIDE PARTITION ALIGN TO",
        "INTERNAL FREQUENCY TUPLES SAMPLE AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END CAST INT STRING",
        "EXISTS COUNT SUM FILTER OVER INTERVAL WITH s t r a b x ts u n z ( ) [ ] , . ; * + - / % = < > <= <=> || ::",
        "1 2.5 10 'x' \"y\" `q` 5L 1e3 -- /* */ -> ? { } @ # $ \\ ' é",
    )
    for word in line.split()
]

SOUP = st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)
TEXT = st.text(max_size=60)
#: Correct statements, to be damaged in one place: that reaches deeper than soup.
WHOLE = [
    "SELECT b, COUNT(*), SUM(x) FROM s [RANGE 1 MINUTE SLIDE 10 SECONDS] AS w WHERE a > 1 GROUP BY b HAVING SUM(x) > 2",
    "ISTREAM(SELECT s.a, r.name FROM s [NOW] JOIN r ON s.a = r.a, t [RANGE 1 DAY] WHERE t.a = s.a)",
    "CREATE STREAM z (a INT, ts TIMESTAMP) FROM FILES (path 'p.csv', header 'true') TIMESTAMP BY ts ON ERROR SKIP",
    "CREATE VIEW v (p, q) AS SELECT CASE WHEN a = 1 THEN 'x' ELSE b END, x::INT FROM s UNION ALL SELECT b, a FROM s",
    "INSERT INTO r VALUES (1, 'x'), (-2, NULL)",
]  # fmt: skip


def _tolerates(text: str, catalog: Catalog) -> None:
    try:
        for statement in parse_script(text).statements:
            print_statement(statement)
        bind_script(text, catalog)
    except PenstockError as error:
        assert error.render()


@given(SOUP | TEXT)
@settings(max_examples=200)
def test_soup(catalog: Catalog, text: str) -> None:
    _tolerates(text, catalog)


@given(st.sampled_from(WHOLE), st.integers(0, 60), st.integers(0, 3), st.lists(st.sampled_from(WORDS), max_size=3))
@settings(max_examples=300)
def test_damaged_statements(catalog: Catalog, text: str, place: int, lost: int, added: list[str]) -> None:
    words = text.replace("(", " ( ").replace(")", " ) ").split()
    place %= len(words)
    _tolerates(" ".join([*words[:place], *added, *words[place + lost :]]), catalog)


def test_deep_nesting(catalog: Catalog) -> None:
    for text in (
        "SELECT " + "(" * 1500 + "a" + ")" * 1500 + " FROM s",
        "SELECT " + "NOT " * 1500 + "TRUE FROM s",
        "SELECT " + "- " * 1500 + "1 FROM s",
        "SELECT a" + " + 1" * 2000 + " FROM s",
        "SELECT a FROM s WHERE a = 1" + " OR a = 1" * 1500,
        "SELECT * FROM " + "(SELECT * FROM " * 300 + "s" + ")" * 300,
        "SELECT a FROM s" + " UNION ALL SELECT a FROM s" * 600,
    ):
        _tolerates(text, catalog)


def test_a_long_chain_of_ors_is_no_nesting(catalog: Catalog) -> None:
    bound = bind_script(
        "CREATE QUERY q AS SELECT a FROM s WHERE " + " OR ".join(f"a = {i}" for i in range(2000)), catalog
    )
    assert bound.queries[0].root.fingerprint
