"""Hints for text that cannot be parsed: a misspelled keyword, another system's clause."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import close_names
from penstock.language.elsewhere import CLAUSES, FIRST_WORDS, FUNCTIONS, STATEMENTS
from penstock.language.keywords import KEYWORDS
from penstock.language.places import WINDOW, hint_of_place
from penstock.types import Unit

SESSION = (
    "sessions are a window behind a stream, in brackets: clicks [PARTITION BY usr SESSION 5 MINUTES], with AT MOST 1"
    " HOUR or OPEN behind the gap"
)
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
    **dict.fromkeys(
        ("NOT", "NULL", "DEFAULT", "UNIQUE", "COMMENT", "GENERATED", "AUTO_INCREMENT", "IDENTITY", "CHECK"), _COLUMN
    ),
}
#: The same in a query.
_IN_QUERY = {
    "EMIT": _OUT,
    "INTO": "an answer is written to a sink by CREATE QUERY name INTO connector (...) AS SELECT ...",
    "ASOF": CLAUSES["ASOF JOIN"],
    "MATCH_RECOGNIZE": CLAUSES["MATCH_RECOGNIZE"],
    "TOP": "the first rows are ORDER BY column LIMIT 10",
    **dict.fromkeys(("TUMBLE", "TUMBLING", "SLIDING", "HOP", "HOPPING", "ADVANCE", "SIZE", "WINDOW", "#"), WINDOW),
    "SESSION": SESSION,
}
_BEGINNINGS = (
    "CREATE",
    "INSERT",
    "EXPLAIN",
    "EXPORT",
    "SHOW",
    "DROP",
    "SET",
    "ALTER",
    "UPDATE",
    "DELETE",
    "SUBSCRIBE",
    "DESCRIBE",
)
_ON_CONFLICT = (
    "leave it out: in a relation with PRIMARY KEY and TIMESTAMP BY a row replaces the one of its key; with PRIMARY KEY"
    " alone one whose key is there is rejected"
)
_ALTER_TABLE = "say ALTER RELATION name SET (...) or ALTER STREAM name SET (...); columns change with DROP and CREATE"
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
_VALID = "say VALID FROM a TO b, VALID FOR 5 MINUTES or VALID UNTIL NEXT BY k"
_FROM_TO = (
    "as in VALID FROM a TO b, two columns; THROUGH b where the instant b belongs to the period; an end that is NULL"
    " does not come"
)
_FROM_FOR = "VALID FOR 5 MINUTES begins at the timestamp; other ends are columns: name a query that has them by WITH"
_NEXT = "as in VALID UNTIL NEXT BY k, l AT MOST 1 HOUR: columns follow BY, without brackets, the longest period AT MOST"
_UNTIL = "VALID UNTIL NEXT BY k ends where the next row of k begins; an end that is a column is VALID FROM a TO b"
_PREDICATE = (
    "both sides are periods: VALID(s) OVERLAPS PERIOD(b, e), of VALID(s), PERIOD(b, e), INTERSECTION(p, q), SPAN(p, q);"
    " also VALID(s) CONTAINS instant"
)
_NOT = "NOT stands before the first period: NOT VALID(s) OVERLAPS PERIOD(b, e)"
_PERIOD = "PERIOD(b, e) has its begin, and not its end"
_AS_OF = "rows that hold at an instant are WHERE VALID(s) CONTAINS instant, those of the moment s [VALID]"
_INSTANT = "an instant is a constant: AS OF '2020-01-01 10:00:00', or AS OF 5 where time is in ticks"
_PORTION = "rows change as a whole: DELETE the row and INSERT what of it still holds"
_COALESCED = "a list of columns coalesces: FROM s (k) VALID FOR 5 MINUTES"
_VALIDTIME = "VALID(s) is the period of the rows of s, as in SELECT k, VALID(s) FROM s (k) VALID FOR 5 MINUTES"
_PERIOD_FOR = "the period among the columns is PERIOD FOR VALID (a, b); behind the connector say VALID FROM a TO b"
_GAP_ALONE = "SESSION takes a stream with PARTITION BY, DESCRIPTOR of its timestamp and the gap, in this order"
_VALID_WINDOW = (
    "[VALID] has nothing else in its brackets; rows that hold at an instant are WHERE VALID(s) CONTAINS instant"
)
_ADJACENT = "adjacent periods are VALID(s) MEETS VALID(t), or VALID(s) MET BY VALID(t)"
_CHECKED = "a key has columns, as in PRIMARY KEY (k, a); whether periods of a key overlap is not checked"
_WHEN = "conditions on periods stand in WHERE"
_PREDICATES = (
    "OVERLAPS",
    "CONTAINS",
    "EQUALS",
    "PRECEDES",
    "SUCCEEDS",
    "MEETS",
    "MET",
    "BEFORE",
    "AFTER",
    "STARTS",
    "STARTED",
    "DURING",
    "FINISHES",
    "FINISHED",
    "IMMEDIATELY",
)
#: Keywords of four letters that a misspelt word is like; many names are like the others.
_SHORT = ("FROM", "INTO", "JOIN", "LEFT", "FULL", "ROWS")
#: What a misspelt word may have been: keywords of the grammar, and those of expressions. A unit may have an S.
_MEANT = (
    *(word for word in KEYWORDS if (len(word) > 4 and word not in Unit.__members__) or word in _SHORT),
    "BETWEEN",
    *(word for word in _PREDICATES if len(word) > 4),
)
#: Clauses of periods at a place where they mean nothing, by their two words.
_PAIRS = {
    ("AS", "OF"): _INSTANT,
    ("AT", "MOST"): _AT_MOST,
    ("AT", "LEAST"): _AT_LEAST,
    ("GAPS", "OF"): _GAPS_OF,
    ("UNTIL", "NEXT"): "say VALID UNTIL NEXT BY k, behind a stream or in its declaration",
    ("FOR", "PORTION"): _PORTION,
    ("FOR", "VALID"): _AS_OF,
    ("FOR", "VALID_TIME"): _AS_OF,
    ("FOR", "VALIDITY"): _PERIOD_FOR,
    ("FOR", "SYSTEM_TIME"): _PERIOD_FOR,
    ("COALESCED", "ON"): _COALESCED,
    ("COALESCED", "BY"): _COALESCED,
    ("WITHOUT", "OVERLAPS"): _CHECKED,
    ("PERIOD", "FOR"): _PERIOD_FOR,
    ("PERIOD", "VALID"): _PERIOD_FOR,
    ("PERIOD", "["): _PERIOD,
}
#: Single words of theirs, which are names elsewhere.
_STATES = {
    "OPEN": "OPEN stands in the brackets of a session window: [PARTITION BY k SESSION 5 MINUTES OPEN]",
    "CLOSED": "CLOSED(VALID(s)) is a condition of WHERE over s (k); a session window emits sessions when they end",
}
#: What follows START.
_STARTS = frozenset(("NOW", "WARM", "BEGINNING", "AT"))
_WHERE_IT_BEGINS = "say where it begins: START NOW, WARM, WARM WAIT, BEGINNING or AT '2024-01-01 10:00:00'"
_AS_BEFORE_QUERY = "AS stands before the query, as in CREATE QUERY name START WARM AS SELECT ..."
_RETAIN = "RETAIN has a length of time, and behind it columns if not all are kept: RETAIN 1 HOUR (k, v)"
_PAUSE = "a query that goes on without showing it is paused by PAUSE WITH STATE"
_SUBSCRIBE = "behind the query stand WITH (SNAPSHOT, PROGRESS), AS OF instant and UP TO instant, in this order"
#: Where words of the life of queries and streams stand, by the word before, with these.
_OF_LIVES = {
    "WARM": ("WAIT",),
    "PAUSE": ("WITH",),
    "RESUME": ("START", "RESET"),
    "EXPLAIN": ("START", "SHARING", "ANALYZE"),
}
#: What a query or a source can be altered by.
_ALTERATIONS = frozenset(("PAUSE", "RESUME", "SET", "RENAME", "INTO", "AS", "FROM", "SWAP"))
#: Statements of TSQL2, by their first word.
_TSQL2 = frozenset(("VALIDTIME", "SEQUENCED", "NONSEQUENCED", "VALID"))
#: Statements in which a name has one part.
_WITH_NAMES = frozenset(("INSERT", "UPDATE", "DELETE", "DROP", "ALTER", "DESCRIBE", "SUBSCRIBE"))
#: Number of words before the unexpected one that may be the cause, having been parsed as names.
_BACK = 2
#: Number of words from VALID to a word that does not fit into its clause.
_BACK_TO_VALID = 6


def hint_at(tokens: Sequence[Token], index: int) -> str | None:
    """Return the hint for a statement that cannot be parsed at `index`, by the word there or those just before it."""
    here = tokens[index].text.upper() if index < len(tokens) else ""
    if index and tokens[index - 1].token_type is TokenType.COMMA and here in _BEHIND_ITEMS:
        return "leave out the comma, or complete the list"
    if here == "FROM" and index + 1 < len(tokens) and tokens[index + 1].token_type in (TokenType.COMMA, TokenType.FROM):
        return f"`{tokens[index].text}` in backticks is a column of that name"
    if index == 0 and tokens:
        return _of_a_text(tokens)
    asked_for = _of_a_name(tokens, index) or _without_words(tokens, index)
    if asked_for is not None:
        return asked_for
    if index and (here in _BEGINNINGS or (here == "SELECT" and _is_whole(tokens, index))):
        return "a statement ends with a semicolon"
    if here == "[" and index and tokens[index - 1].text == ")":
        return FUNCTIONS.get(_called(tokens[:index]))
    if (
        here in ("RANGE", "SLIDE", "SLIDES")
        and sum({"[": 1, "]": -1}.get(token.text, 0) for token in tokens[:index]) < 1
    ):
        return WINDOW
    if here == "." and index + 1 < len(tokens) and tokens[0].text.upper() in _WITH_NAMES:
        return f"names stand alone, without a schema: {tokens[index + 1].text}"
    is_query = any(token.token_type is TokenType.SELECT for token in tokens[:index])
    foreign = _IN_QUERY if is_query or tokens[0].text.upper() != "CREATE" else _IN_DECLARATION
    for token in reversed(tokens[max(0, index - _BACK) : index + 1]):
        word = token.text.upper()
        if token.token_type is TokenType.STRING or (len(word) < 2 and word not in foreign):
            continue
        if word in foreign:
            return foreign[word]
        # PRIMARY KEY is one token; what the statement has several times is a name.
        repeated = sum(other.text.upper() == word for other in tokens) > 1
        known = any(part in _MEANT or part in KEYWORDS for part in word.split())
        if len(word) > 3 and not repeated and not known:
            meant = close_names(word, _MEANT, least=0.75)
            if meant:
                return f"did you mean {meant[0]} in place of {token.text}?"
    return None


def _is_whole(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a query ends before `index`: it has a FROM, and no parenthesis is open."""
    words = [token.text.upper() for token in tokens[:index]]
    return "FROM" in words and words.count("(") == words.count(")")


def of_other_systems(tokens: Sequence[Token], index: int) -> str | None:
    """Return the hint for what other databases write at `index`, and CQL writes differently or lacks."""
    words = [token.text.upper() for token in tokens]
    here, following = words[index] if index < len(words) else "", words[index + 1 : index + 2]
    placed = hint_of_place(tokens, index)
    if placed is not None:
        return placed
    if here == "TABLE" and index == 0:
        return "the rows of a relation are SELECT * FROM name"
    if here == "RETURNING" and words[0] in ("INSERT", "UPDATE", "DELETE"):
        return f"{words[0]} returns no rows: a SELECT behind it reads what there is then"
    if here == "ON" and (following == ["CONFLICT"] or words[index + 1 : index + 3] == ["DUPLICATE", "KEY"]):
        return _ON_CONFLICT
    if here in ("ADD", "DROP", "MODIFY") and words[:1] == ["ALTER"] and words[1:2] in (["STREAM"], ["RELATION"]):
        return f"ALTER {words[1]} name SET (...) changes attributes; columns change with DROP and CREATE {words[1]}"
    if index == 1 and words[0] == "ALTER" and here in ("TABLE", "VIEW"):
        return (
            _ALTER_TABLE if here == "TABLE" else "a view has another text by CREATE OR REPLACE VIEW name AS SELECT ..."
        )
    return _of_a_statement(tokens, words, index) or _of_a_clause(tokens, words, index)


def _of_a_statement(tokens: Sequence[Token], words: Sequence[str], index: int) -> str | None:
    """Return the hint for the head of a statement that CQL writes in other words."""
    here = words[index] if index < len(words) else ""
    first, name = words[0], tokens[-1].text
    if index == 0 and (first == "#" or words[:2] == ["/", "/"]):
        return "a comment is -- to the end of the line, or /* ... */"
    if index == 0 and first in FIRST_WORDS:
        return FIRST_WORDS[first]
    if index == 0 and first == "TRUNCATE":
        return f"rows are removed by DELETE FROM {name}, at a server, of a relation with OPERATION BY and SYSTEM TIME"
    if index == 0 and first == "MERGE":
        return "in a relation with PRIMARY KEY and TIMESTAMP BY an INSERT replaces the row of its key"
    if index == 1 and (first, here) in STATEMENTS and here not in ("TABLE", "MATERIALIZED"):
        return STATEMENTS[first, here]
    if index == 1 and first == "DROP" and here == "TABLE":
        return f"a table is a RELATION, events are a STREAM: DROP RELATION {name}"
    if first == "SHOW" and here == "CREATE":
        return f"DESCRIBE {name} shows the columns of a declaration, EXPLAIN QUERY {name} the plan of a query"
    if first == "SHOW" and here == "LIKE":
        return f"SHOW {words[1]} lists all of them; at a server SELECT .. FROM penstock.queries WHERE chooses"
    if first == "EXPLAIN" and words[1:3] == ["(", "ANALYZE"]:
        return "without brackets: EXPLAIN ANALYZE SELECT ..."
    if first == "INSERT" and here == "SET":
        return "as in INSERT INTO name (a, b) VALUES (1, 2)"
    if first == "UPDATE" and here == "FROM":
        return "values of other relations come from a subquery: SET a = (SELECT b FROM r WHERE r.k = name.k)"
    if first == "UPDATE" and index == 2 and here != "FOR" and "SET" in words[index:]:
        return "the name stands without an alias: UPDATE name SET a = 1 WHERE ..."
    return _of_a_declaration(tokens, words, index)


def _of_a_declaration(tokens: Sequence[Token], words: Sequence[str], index: int) -> str | None:
    """Return the hint for a declaration with a name that is none, or a clause of other systems."""
    here = words[index] if index < len(words) else ""
    kind = next((word for word in words[1:4] if word in ("STREAM", "RELATION", "VIEW", "QUERY")), None)
    if words[0] != "CREATE":
        return None
    if "FUNCTION" in words[:4] and here in ("LANGUAGE", "BEGIN", "RETURN"):
        return "a function is a Python function that is named: CREATE FUNCTION f (INT) RETURNS INT AS 'module:name'"
    if kind is None or "SELECT" in words[:index]:
        return None
    behind = words.index(kind) + 1
    if index == behind and here.isidentifier() and index + 1 < len(words) and words[index + 1] in ("(", "AS"):
        return f"{tokens[index].text} is a keyword; in backticks it is a name: `{tokens[index].text}`"
    if index == behind + 1 and here == ".":
        return f"a name has one part, and no schema; with a point in it: {_one_name(tokens, behind)}"
    if index == behind + 1 and here == "-":
        return "a name with other characters stands in backticks, as in `a-b`"
    if index == behind + 1 and kind == "QUERY" and here == "(":
        return "columns are named by AS in the select list: SELECT a AS b"
    if kind in ("STREAM", "RELATION") and here == "ORDER BY":
        return "the column of the timestamp follows TIMESTAMP BY; rows that come late are waited for by ORDER WITHIN"
    return None


def _one_name(tokens: Sequence[Token], at: int) -> str:
    return f"`{''.join(token.text for token in tokens[at : at + 3])}`"


#: Operators that other languages write the other way round.
_TURNED = {("=", "<"): "<=", ("=", ">"): ">=", (">", "<"): "<>"}


#: The clauses behind FROM.
_ORDER = ("WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT")

#: What a parameter stands behind.
_OPERATORS = ("=", "<", ">", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "LIKE", "IN")


def _of_a_clause(tokens: Sequence[Token], words: Sequence[str], index: int) -> str | None:
    """Return the hint for a part of a query that CQL writes in other words."""
    here = words[index] if index < len(words) else ""
    before = words[index - 1] if 0 < index <= len(words) else ""
    turned = ">=" if here == "=>" else next((_TURNED[pair] for pair in pairwise(words) if pair in _TURNED), "")
    if turned and (here in ("=>", "<", "") or before in ("=", "<", ">")):
        return f"the operator is written {turned}"
    if here in _ORDER and set(_ORDER[_ORDER.index(here) + 1 :]).intersection(words[:index]):
        return "the clauses stand in this order: " + " .. ".join(_ORDER) + "; a condition on groups is HAVING"
    joined = [word for word in words[:index] if word in ("NATURAL", "CROSS", "JOIN")][-2:]
    if here == "ON" and joined[1:] == ["JOIN"] and joined[0] != "JOIN":
        return f"{joined[0]} JOIN has no condition; one belongs to JOIN: s JOIN t ON s.k = t.k"
    if here == "ON" and before == "DISTINCT":
        return "the latest row of each key is [PARTITION BY key ROWS 1] behind the stream"
    if "ORDER BY" in words[:index] and here[:1] == "D" and sorted(here) == sorted("DESC"):
        return f"did you mean DESC in place of {tokens[index].text}?"
    if here == "," and words[index - 2 : index - 1] == ["LIMIT"] and index + 1 < len(words):
        return f"the number of rows comes first: LIMIT {tokens[index + 1].text} OFFSET {tokens[index - 1].text}"
    if (here == "{" and before != "PLAN") or (here == "[" and before in ("FROM", "JOIN", ",")):
        return WINDOW if "FROM" in words[:index] else _IN_BACKTICKS
    if here == "[" and before in ("SELECT", "BY", "WHERE"):
        return _IN_BACKTICKS
    if here == "[" and "WHERE" in words[:index] and before not in ("ARRAY", "PERIOD"):
        return WINDOW
    if here == "[" and before == "ARRAY":
        return "a list of values is IN: a IN (1, 2), or a = ANY (1, 2)"
    if here == "FOR" and words[index + 1 : index + 2] in (["UPDATE"], ["SHARE"]):
        return "leave it out: a SELECT reads one state, and nothing is locked"
    if before == "IN" and here in ("$", "%", "?", ":"):
        return "IN takes a list in brackets, with a parameter for each value, IN ($1, $2), or a query"
    placed = words[index - 2 : index] == ["%", "S"] and not here
    if placed or here in ("?", "$") or (here == ":" and before in (*_OPERATORS, "(", ",")):
        return (
            "a parameter is $1, $2, .. at the door of PostgreSQL, with the values beside the statement; elsewhere the"
            " value itself stands in the text"
        )
    if here in ("&&", "&"):
        return "conditions are joined by AND"
    if here.isdecimal() and words[index - 4 : index - 1 : 2] == ["-", "-"] and words[index + 1 : index + 2] == [":"]:
        return "a timestamp stands in quotes: '2020-01-31 12:00:00'"
    if here == "PARTITION BY" and "ROWS" in words[max(0, index - 3) : index]:
        return "PARTITION BY stands before ROWS: [PARTITION BY key ROWS 10]"
    if here in ("~", "~*"):
        return "a regular expression is RLIKE: name RLIKE '^h'"
    if index < len(tokens) and tokens[index].token_type is TokenType.STRING:
        if before == "IN":
            return "values of IN stand in brackets: IN (1, 2)"
        if before in ("FROM", "JOIN") and any(mark in here for mark in "./*"):
            return f"a file is declared: CREATE STREAM s (...) FROM FILES (path '{tokens[index].text}') TIMESTAMP BY at"
        if before in ("FROM", "JOIN", "INTO") and not here:
            return "a parameter is a value, and no name: write the name into the statement"
    return None


_IN_BACKTICKS = "a name with other characters stands in backticks, as in `a b`; brackets hold windows"


def _of_a_text(tokens: Sequence[Token]) -> str | None:
    """Return the hint for a text that begins as no statement does: a name alone, or that of a file."""
    name = tokens[0].text
    if tokens[-1].text.lower() in ("cql", "sql") and tokens[-2:-1] and tokens[-2].text == ".":
        return "the text of the statements is expected, not the name of a file that holds it"
    if len(tokens) == 1 and name.isidentifier():
        return f"a statement begins with a verb: SELECT * FROM {name}, SUBSCRIBE TO {name} or DESCRIBE {name}"
    return None


def _of_a_name(tokens: Sequence[Token], index: int) -> str | None:
    """Return the hint for a statement about something declared that lacks the word for its kind, or has it where the
    name is enough."""
    words = [token.text.upper() for token in tokens]
    first, following = words[0], words[1:3]
    if words[:2] == ["EXPLAIN", "START"] and index == 2 and words[2:3] and words[2] in _STARTS:
        return "EXPLAIN START query lists for each start whether the query can have it"
    if first == "EXPLAIN":
        begin = 2 if following[:1] and following[0] in _OF_LIVES["EXPLAIN"] else 1
        if index == begin and len(tokens) <= begin + 1:
            return f"a query that is declared is explained by {' '.join(words[:begin])} QUERY name"
    if index == 1 and first == "DROP" and following[1:] in ([], ["CASCADE"]):
        return "say what it is: DROP QUERY name, DROP STREAM name, ..."
    if index == 1 and first == "ALTER" and following[1:] and following[1] in _ALTERATIONS:
        return "say what it is: ALTER QUERY name ..., ALTER STREAM name ..."
    if index == 2 and first == "DESCRIBE":
        return "only the name follows DESCRIBE"
    if index == 1 and first == "SHOW" and following[:1] in (["TABLE"], ["TABLES"]):
        return "tables are RELATIONS, events are STREAMS: SHOW RELATIONS"
    return None


def _without_words(tokens: Sequence[Token], index: int) -> str | None:
    """Return the hint for FREQUENT without GROUP BY, or PREFERENCE without WITH, at `index` or just before, where it is
    an alias."""
    for at in (index, index - 1):
        word = tokens[at].text.upper() if 0 < at < len(tokens) else ""
        number = at + 1 < len(tokens) and tokens[at + 1].token_type is TokenType.NUMBER
        if word == "FREQUENT" and number:
            return "FREQUENT follows the columns of GROUP BY: GROUP BY c FREQUENT 10"
        if word == "PREFERENCE" and tokens[at - 1].text.upper() != "WITH":
            return "a preference is WITH PREFERENCE DESC amount, behind the other clauses"
    return None


def _called(tokens: Sequence[Token]) -> str:
    """Return the name of the function, in capitals, whose arguments end with the last of `tokens`."""
    depth = 0
    for at in range(len(tokens) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(tokens[at].text, 0)
        if not depth:
            return tokens[at - 1].text.upper()
    return ""


def misplaced(tokens: Sequence[Token], index: int) -> str | None:
    """Return the hint for a clause of periods that is unexpected at `index`, or just before."""
    words = [token.text.upper() for token in tokens]
    here, before = words[index] if index < len(words) else "", words[:index]
    if index == 0 and here in _TSQL2:
        return _VALIDTIME
    return (
        _in_life(words, before, here)
        or _in_columns(before)
        or _in_session(before, here)
        or _in_valid(before, here)
        or _in_gaps(before)
        or _pair(words, index)
        or _in_condition(before, here)
        or _behind_query(words, before, here)
    )


def _in_life(words: Sequence[str], before: Sequence[str], here: str) -> str | None:
    """Return the hint for START, RETAIN, PAUSE, RESUME and SUBSCRIBE, with a word that is misspelt or cannot stand
    there."""
    last = before[-1] if before else ""
    if last == "START" and here == "AS":
        return _WHERE_IT_BEGINS
    declares = words[0] == "CREATE" and "QUERY" in words[:4] and "AS" not in before and len(before) > 2
    if not before and here in ("PAUSE", "RESUME"):
        return f"a query is paused and resumed by ALTER: ALTER QUERY name {here}"
    if here == "SELECT" and declares:
        return _AS_BEFORE_QUERY
    if last == "RETAIN" or (here == "COLUMNS" and "RETAIN" in before[-3:]):
        return _RETAIN
    if last == "PAUSE" and here == "WITH":
        return _PAUSE
    known = _OF_LIVES.get(last) or (("START", "INTO", "WITH") if declares else ())
    if words[0] == "SUBSCRIBE" and len(before) > 2:
        return _SUBSCRIBE if here not in ("", ";") and (last == ")" or "SELECT" not in before) else None
    meant = [] if here in known else close_names(here, known, least=0.7)
    if meant:
        return f"did you mean {meant[0]}?"
    if here in _STARTS and last != "START" and close_names(last, ("START",), least=0.7):
        return f"did you mean START in place of {last}?"
    return _RETAIN if "RETAIN" in before[-3:] and close_names(here, ("COLUMNS",), least=0.7) else None


def _behind_query(words: Sequence[str], before: Sequence[str], here: str) -> str | None:
    """Return the hint for START, WITH or RESET at the end of a statement that has it elsewhere, or not at all."""
    # Behind a name START is taken for an alias, so the word after it is the unexpected one.
    at = len(before) - 1 if before[-1:] == ["START"] else len(before)
    begins = words[at : at + 1] == ["START"] and words[at + 1 : at + 2] and words[at + 1] in _STARTS
    declares = words[0] == "CREATE" and "SELECT" in before
    if begins and declares and "QUERY" in words[:4]:
        return "START stands before the query: CREATE QUERY name START WARM AS SELECT ..."
    if begins and declares and "VIEW" in words[:4]:
        return "a view has no START; the queries that read it have: CREATE QUERY name START WARM AS SELECT ..."
    opened = before[-1:] == ["WITH"] if here == "(" else here == "WITH" and words[at + 1 : at + 2] == ["("]
    if opened and declares and "QUERY" in words[:4]:
        return "WITH stands before the query: CREATE QUERY name WITH (weight 2) AS SELECT ..."
    if here == "RESET" and words[:2] == ["ALTER", "QUERY"]:
        return "RESET belongs to RESUME and to AS: ALTER QUERY name RESUME RESET"
    if here == "RESET" and "SELECT" in before:
        return "RESET belongs to ALTER QUERY: ALTER QUERY name AS SELECT ... RESET, or ALTER QUERY name RESUME RESET"
    return None


def _pair(words: Sequence[str], index: int) -> str | None:
    for first in (index, index - 1, index - 2):
        if 0 <= first < len(words) - 1 and (words[first], words[first + 1]) in _PAIRS:
            return _PAIRS[words[first], words[first + 1]]
    return None


def _in_columns(before: Sequence[str]) -> str | None:
    """Return the hint for a period among the columns of a declaration."""
    if before[:1] != ["CREATE"] or "FROM" in before or "SELECT" in before:
        return None
    among = {"PERIOD", "VALID"}.intersection(before[-3:])
    return _PERIOD_FOR if among and "PRIMARY KEY" not in before[-5:] else None


def _in_session(before: Sequence[str], here: str) -> str | None:
    """Return the hint for the brackets of a session window, or of one that begins with a word of it."""
    opened = max((i for i, word in enumerate(before) if word == "["), default=None)
    if opened is None or "]" in before[opened:]:
        return None
    inside = [*before[opened + 1 :], here]
    if "SESSION" in inside and inside[-1] in _STATES:
        return _STATES[here]
    if "SESSION" not in inside and inside[0] == "PARTITION":
        return "did you mean PARTITION BY?"
    if "SESSION" not in inside or "WHERE" in inside or here == "AT":
        return None
    return "did you mean PARTITION BY?" if here == "PARTITION" else SESSION


def _in_valid(before: Sequence[str], here: str) -> str | None:
    """Return the hint for what follows VALID, a few words before."""
    last = max((i for i, word in enumerate(before) if word == "VALID"), default=None)
    if last is None or len(before) - last > _BACK_TO_VALID or before[last - 1 : last] == ["["]:
        return None
    clause = [*before[last + 1 :], here]
    if clause[0] == "FROM" and not {"TO", "THROUGH"}.intersection(clause):
        return _FROM_FOR if here == "FOR" else _FROM_TO
    if clause[0] == "UNTIL":
        return _NEXT if clause[1:2] == ["NEXT"] or "NEXT" in clause else _UNTIL
    if len(clause) > 1 or clause[0] in _PREDICATES:
        return None
    similar = close_names(here, ("FOR", "FROM", "UNTIL"))
    if similar and here not in similar:
        return f"did you mean VALID {similar[0]}?"
    return _VALID if here in ("BETWEEN", "TO", "(", "PERIOD", "INTERVAL", "ON") or here.isdecimal() else None


def _in_gaps(before: Sequence[str]) -> str | None:
    """Return the hint for words like GAPS OF behind FROM or a comma."""
    near = before[-4:]
    if near[-3:] == ["GAPS", "OF", "("]:
        return _GAPS_OF
    meant = [i for i, word in enumerate(near) if word in ("GAP", "GAPS") and near[i - 1 : i] in (["FROM"], [","])]
    return _GAPS_OF if (meant and "OF" not in near[meant[-1] : meant[-1] + 2]) or "GAP" in near else None


def _in_condition(before: Sequence[str], here: str) -> str | None:
    """Return the hint for a predicate over periods, or a length, that cannot stand there."""
    if not before:
        return None
    if before[-1] == "VALID" and before[-2:-1] == ["["]:
        return _VALID_WINDOW
    if here in ("ADJACENT", "ADJOINS", "TOUCHES"):
        return _ADJACENT
    if here == "," and "DESCRIPTOR" in before and "SESSION" in before:
        return _GAP_ALONE
    if here in _PREDICATES or (here == "(" and before[-1] in _PREDICATES):
        return _PREDICATE
    if here == "NOT" and before[-1] == ")":
        return _NOT
    if before[-1] == "INTERVAL" and "CAST" in before[-8:]:
        return "units are MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, YEAR"
    if before[-1].replace(".", "", 1).isdecimal() and Unit.parse(here) is not None:
        return f"a length of time is written INTERVAL '{before[-1]}' {here}"
    if here == "VALID":
        return _VALID if before[-1] in (")", "]") or "AS" in before[-2:] else None
    return _WHEN if here == "WHEN" and ("VALID" in before or ")" in before[-1:]) else _STATES.get(here)
