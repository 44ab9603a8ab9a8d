"""Hints for text that cannot be parsed: a misspelled keyword, another system's clause."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.language.elsewhere import CLAUSES

WINDOW = "a window is written after its stream, in brackets, as in clicks [RANGE 10 MINUTES SLIDE 1 MINUTE]"
#: What other systems write as functions, in FROM or in GROUP BY, and CQL writes as windows.
WINDOW_FUNCTIONS = frozenset(
    ("TABLE", "TUMBLE", "HOP", "CUMULATE", "SESSION", "WINDOW", "TUMBLE_START", "TUMBLE_END", "HOP_START", "HOP_END")
)
_CONNECTOR = "a connector and its options follow FROM or INTO, as in FROM FILES (path 'data.csv', format 'csv')"
_COLUMN = "a column has a name and a type; WHERE v IS NOT NULL drops rows, a relation may have a PRIMARY KEY (k)"
_VIEW = "a view is kept up to date as long as something reads it: CREATE VIEW name AS ..."
_OUT = "answers are emitted when they are final; ISTREAM(...) emits new rows, RSTREAM(...) all at every boundary"
#: Words of Flink SQL, Spark SQL, ksqlDB and other SQLs in a declaration, before its query -> what to write instead.
_IN_DECLARATION = {
    "WATERMARK": "accepted lateness is declared after TIMESTAMP BY: ORDER WITHIN 5 SECONDS",
    "TABLE": "events are a STREAM, a table is a RELATION: CREATE RELATION name (...) FROM ...",
    **dict.fromkeys(("WITH", "USING"), _CONNECTOR),
    **dict.fromkeys(("MATERIALIZED", "TEMPORARY", "TEMP"), _VIEW),
    **dict.fromkeys(("NOT", "NULL", "DEFAULT", "UNIQUE", "COMMENT", "GENERATED"), _COLUMN),
}
#: The same in a query.
_IN_QUERY = {
    "EMIT": _OUT,
    "INTO": "an answer is written to a sink by CREATE QUERY name INTO connector (...) AS SELECT ...",
    "ASOF": CLAUSES["ASOF JOIN"],
    "MATCH_RECOGNIZE": CLAUSES["MATCH_RECOGNIZE"],
    "TOP": "the first rows are ORDER BY column LIMIT 10",
    **dict.fromkeys(
        ("TUMBLE", "TUMBLING", "SLIDING", "HOP", "HOPPING", "ADVANCE", "SIZE", "SESSION", "WINDOW"), WINDOW
    ),
}
_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "JOIN",
    "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "LATERAL", "USING", "DISTINCT", "BETWEEN", "RANGE", "ROWS",
    "SLIDE", "UNBOUNDED", "PARTITION", "PRECEDING", "INTERNAL", "FREQUENCY", "FREQUENT", "SAMPLE", "TIMESTAMP",
    "OPERATION",
    "WITHIN", "TIMEOUT", "SYSTEM", "PRIMARY", "RELATION", "RETROACTIVE", "VALUES", "INTO", "CREATE", "INSERT",
    "ISTREAM", "DSTREAM", "RSTREAM", "WSTREAM", "RESTORE", "INTERVAL", "REPLACE", "EXISTS", "CASCADE", "START",
    "RETAIN", "RESET", "SNAPSHOT", "PROGRESS", "STATE", "OVERLAPS", "CONTAINS", "EQUALS", "PRECEDES", "SUCCEEDS",
    "IMMEDIATELY", "STARTED", "DURING", "FINISHES", "FINISHED",
)  # fmt: skip
_BEGINNINGS = (
    "CREATE", "INSERT", "EXPLAIN", "EXPORT", "SHOW", "DROP", "SET", "ALTER", "UPDATE", "DELETE", "SUBSCRIBE",
    "DESCRIBE",
)  # fmt: skip
_BEHIND_ITEMS = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", ")")
_AT_MOST = (
    "AT MOST bounds a session, in its brackets, or VALID UNTIL NEXT: [SESSION 5 MINUTES AT MOST 1 HOUR], "
    "VALID UNTIL NEXT BY k AT MOST 1 HOUR"
)
_AT_LEAST = (
    "AT LEAST belongs to gaps: GAPS OF s (k) VALID FOR 1 MINUTE AT LEAST 5 MINUTES; of other periods write "
    "WHERE LENGTH(VALID(s)) >= INTERVAL '5' MINUTES"
)
_GAPS_OF = "GAPS OF stands in FROM, before the name of a stream or view: FROM GAPS OF s (k) VALID FOR 1 MINUTE"
#: Clauses of periods at a place where they mean nothing, by their two words.
_PAIRS = {
    ("AT", "MOST"): _AT_MOST,
    ("AT", "LEAST"): _AT_LEAST,
    ("GAPS", "OF"): _GAPS_OF,
    ("UNTIL", "NEXT"): "say VALID UNTIL NEXT BY k, behind a stream or in its declaration",
}
#: Single words of theirs, which are names elsewhere.
_STATES = {
    "OPEN": "OPEN stands in the brackets of a session window: [PARTITION BY k SESSION 5 MINUTES OPEN]",
    "CLOSED": "CLOSED(VALID(s)) is a condition of WHERE over s (k); a session window emits sessions when they end",
}
#: Number of words before the unexpected one that may be the cause, having been parsed as names.
_BACK = 2


def hint_at(tokens: Sequence[Token], index: int) -> str | None:
    """Return the hint for a statement that cannot be parsed at `index`, by the word there or those just before it."""
    here = tokens[index].text.upper() if index < len(tokens) else ""
    if index and tokens[index - 1].token_type is TokenType.COMMA and here in _BEHIND_ITEMS:
        return "leave out the comma, or complete the list"
    if here == "FROM" and index + 1 < len(tokens) and tokens[index + 1].token_type in (TokenType.COMMA, TokenType.FROM):
        return f"`{tokens[index].text}` in backticks is a column of that name"
    if index and here in _BEGINNINGS:
        return "a statement ends with a semicolon"
    asked = any(token.token_type is TokenType.SELECT for token in tokens[:index])
    foreign = _IN_QUERY if asked or tokens[0].text.upper() != "CREATE" else _IN_DECLARATION
    for token in reversed(tokens[max(0, index - _BACK) : index + 1]):
        word = token.text.upper()
        if token.token_type is TokenType.STRING or len(word) < 2:
            continue
        if word in foreign:
            return foreign[word]
        if len(word) > 3 and not any(part in _KEYWORDS for part in word.split()):  # PRIMARY KEY is one token
            meant = difflib.get_close_matches(word, _KEYWORDS, n=1, cutoff=0.75)
            if meant:
                return f"did you mean {meant[0]} in place of {token.text}?"
    return None


def misplaced(tokens: Sequence[Token], index: int) -> str | None:
    """Return the hint for a clause of periods that is unexpected at `index`, or just before."""
    words = [token.text.upper() for token in tokens]
    for first in (index, index - 1, index - 2):
        if 0 <= first < len(words) - 1 and (words[first], words[first + 1]) in _PAIRS:
            return _PAIRS[words[first], words[first + 1]]
    before = words[:index]
    if before[-3:] == ["GAPS", "OF", "("]:
        return _GAPS_OF
    if index and before[-1] == "VALID" and index < len(words):
        meant = difflib.get_close_matches(words[index], ("FOR", "FROM", "UNTIL"), n=1)
        return f"did you mean VALID {meant[0]}?" if meant else None
    bracketed = before.count("[") > before.count("]")
    if index < len(words) and (bracketed or "SESSION" in before or "VALID" in before):
        return _STATES.get(words[index])
    return None
