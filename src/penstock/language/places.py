"""Hints by place: what users of other systems write there, by the words up to the one that is unexpected."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.language.elsewhere import FIRST_WORDS

#: Number of words at the head of a statement, and before the unexpected one, that a pattern sees.
_HEAD, _NEAR = 4, 8

WINDOW = "a window is written after its stream, in brackets, as in clicks [RANGE 10 MINUTES SLIDE 1 MINUTE]"
_BACK = (
    "the window of an instant ends with it: [RANGE 5 MINUTES] has the last five minutes, [ROWS 5] the last five rows"
)
_LATENESS = "accepted lateness is declared after TIMESTAMP BY: ORDER WITHIN 5 SECONDS"
_RETAIN = "a stream keeps its rows by RETAIN in its declaration, behind TIMESTAMP BY: RETAIN 1 HOUR"
_FREQUENCY = (
    "how often an answer is computed stands in brackets: SELECT a [FREQUENCY 1 MINUTE] FROM s, or s [RANGE 1 HOUR SLIDE"
    " 1 MINUTE]"
)
_JOIN = "each stream of a join has its window: s [RANGE 1 HOUR] JOIN t [RANGE 1 HOUR] ON s.k = t.k"
_OUT = "answers are emitted when they are final; ISTREAM(...) emits new rows, RSTREAM(...) all at every boundary"
_PREFERENCE = "a preference is WITH PREFERENCE DESC amount, behind the other clauses"
_SINK = (
    "the place of the results stands before AS: CREATE QUERY name INTO FILES (path 'out', format 'csv') AS SELECT ..."
)
_ATTRIBUTES = "attributes stand in parentheses, values of several words in quotes: SET (retain '2 hours')"
_BEGINS = "say where it begins: START NOW, WARM, WARM WAIT, BEGINNING or AT '2024-01-01 10:00:00'"
_PROMISES = "promises are UNIQUE (k), FOREIGN KEY (k) REFERENCES s (k), CLUSTERED BY (k) and ORDERED BY (k)"
_MODE = "behind a promise stands ASSERTED, CHECKED, OBSERVED or nothing"
_TRANSACTION = "a transaction is BEGIN; with its statements, and COMMIT; at the end"
_COMPUTED = "a column that is computed is an item of a view: CREATE VIEW name AS SELECT *, a * 2 AS d FROM s"
_SAME = "a window in time is the same for all keys: [RANGE 1 HOUR], without PARTITION BY"
_EXISTS = "EXISTS takes a query: EXISTS (SELECT * FROM t WHERE t.k = s.k)"
_ENCLOSED = "it encloses the query, ISTREAM(SELECT a FROM s), or its items: SELECT ISTREAM(a) FROM s"
_RESUME = "a query that is paused begins again by ALTER QUERY name RESUME"
_TEXT = "a query has another text by ALTER QUERY name AS SELECT ..."
_ALONE = "the query alone follows AS, from its SELECT on"
_CANCEL = "CANCEL takes the number that SHOW STATEMENTS lists; a query is ended by DROP QUERY name"
_DERIVED = (
    "what a query computes is a view, CREATE VIEW name AS SELECT ..., or a query with an answer of its own, CREATE"
    " QUERY name AS SELECT ..."
)
_METADATA = (
    "parts of a record beside its value are options of the connector that name a column: FROM KAFKA (..., offset 'o')"
)
_STAMP = "the column of the timestamp follows TIMESTAMP BY: FROM ... TIMESTAMP BY at"
_ONE_COLUMN = (
    "TIMESTAMP BY names one column of the declaration; UNIT says what an integer counts: TIMESTAMP BY at UNIT"
    " MILLISECOND"
)
_HEARTBEAT = (
    "a heartbeat is a record with TRUE in a column, HEARTBEAT BY column, or comes of the clock: IDLE TIMEOUT 5 SECONDS"
    " ADVANCE"
)
_KEPT = "rows that are no older than a length are [PARTITION BY key ROWS 10 RANGE 5 MINUTES]"
_IN_QUERY = "a query within an expression stands in parentheses: a IN (SELECT b FROM t)"
_NOT_DELETED = "leave it out: a row of a stream is neither changed nor deleted"

#: A statement, by its first words; what stands before the unexpected word, with it; the word behind it -> the hint.
#: Within the brackets of a window the second begins with the bracket; a text in quotes is ''.
_PLACES: tuple[tuple[str, str, str, str], ...] = (
    ("", r"\[ (RANGE|ROWS) BETWEEN", "", _BACK),
    ("", r"\[.* (FOLLOWING|CENTERED)", "", _BACK),
    ("", r"\[.* (GRACE|LATENESS)", "", _LATENESS),
    ("", r"\[.* RETENTION", "", _RETAIN),
    ("", r"\[.* OFFSET", "", "ALIGN TO moves the boundaries: [RANGE 1 HOUR SLIDE 1 HOUR ALIGN TO 5 MINUTES]"),
    ("", r"\[.* ON", "", "time is the column of TIMESTAMP BY in the declaration of the stream: leave it out"),
    ("", r"\[ RANGE .* PARTITION BY", "", _SAME),
    ("", r"\[ ROWS .* ORDER BY", "", "rows are counted in the order of the timestamps of their stream: leave it out"),
    ("", r"\[ RANGE(?!.* SLIDE ).* (EVERY|(?<!PARTITION )(?<!ORDER )(?<!GROUP )BY)", "", WINDOW),
    ("", r"\[ ROWS \d+ RANGE", "", _KEPT),
    ("", r"\[ RANGE \d+ \S+ \d+", "", "a length of time has one number and one unit: 90 MINUTES"),
    ("", r"[^\[].*\bJOIN .*WITHIN (\d+|\()", "", _JOIN),
    ("(?!SET |ALTER SYSTEM)", r"[^\[].*\b(FREQUENCY|EVERY|TRIGGER) \d+", "", _FREQUENCY),
    ("", r"[^\[].*\b(FREQUENCY|OUTPUT \S+)", "", _FREQUENCY),
    ("", r".*\bEMIT( (AFTER|ON|WITH|WITHOUT|FINAL|CHANGES))?", "", _OUT),
    ("", r".* (AND|OR) (<|>|<=|>=|=|<>|!=)", "", "a comparison has both sides: a > 5 AND a < 10"),
    ("", r".* I?LIKE \w+ %", "", "a pattern stands in quotes: name LIKE 'A%'"),
    ("", r".* CONTAINS", "''", "a text is searched by LIKE: name LIKE '%x%'"),
    ("(SELECT|WITH|CREATE (QUERY|VIEW))", r".* EXISTS \S+", "", _EXISTS),
    ("", r".*\bIN (\$ )?\$?\d+", "", "values of IN stand in parentheses: IN (1, 2), IN ($1, $2)"),
    ("", r".* IN SELECT", "", _IN_QUERY),
    ("", r".*\bWITH", "WATERMARK", _LATENESS),
    ("", r".* SIMILAR TO", "", "a regular expression is RLIKE: name RLIKE '^h'"),
    ("", r".* (PREFERRING \S+|SKYLINE OF)", "", _PREFERENCE),
    ("", r".* (ISTREAM|DSTREAM|RSTREAM) \( SELECT", "", _ENCLOSED),
    ("", r".*\b(ISTREAM|DSTREAM|RSTREAM) \( (?!SELECT)\w+ \[", "", _ENCLOSED),
    ("CREATE (QUERY|VIEW)", r".* AS (ISTREAM|DSTREAM|RSTREAM) \( \w+", r"\)", _ENCLOSED),
    ("INSERT ", r"INSERT \w+", "", "the name follows INTO: INSERT INTO name VALUES (1, 'a')"),
    ("WITH ", r".* \) CREATE", "",
     "WITH stands within the query: CREATE QUERY name AS WITH w AS (SELECT ...) SELECT ..."),
    ("(ISTREAM|DSTREAM|RSTREAM) ", r"\S+ \( \w+", r"\)", "it takes a query: ISTREAM(SELECT * FROM name)"),
    ("CREATE CONTINUOUS", r"CREATE CONTINUOUS", "", "every query is continuous: CREATE QUERY name AS SELECT ..."),
    ("CREATE QUERY", r".* AS INSERT", "", _SINK),
    ("(CREATE|ALTER) (QUERY|VIEW)", r".* AS (CREATE|ALTER|EXPLAIN|SUBSCRIBE|SHOW)", "", _ALONE),
    ("CREATE QUERY", r".* QUERY \S+ TO", "", _SINK),
    ("CREATE QUERY", r".* QUERY \S+ EVERY", "", _FREQUENCY),
    ("CREATE QUERY", r".* QUERY \S+ WITH \w+", "", "attributes stand in parentheses: WITH (comment 'for the board')"),
    ("CREATE QUERY", r".* QUERY \S+ AT", "", _BEGINS),
    ("(CREATE|ALTER) QUERY", r".* START ((NOW|BEGINNING) )?WAIT", "", "WAIT belongs to WARM: START WARM WAIT"),
    ("(CREATE|ALTER) QUERY", r".* START (FROM|EARLIEST|LATEST|FIRST|COLD|TIMESTAMP|''|AT \w+)", "", _BEGINS),
    ("ALTER QUERY", r".* RESUME (FROM|AT)", "", _BEGINS),
    ("ALTER QUERY", r".* QUERY \S+ (START|RESTART)", "", _RESUME),
    ("ALTER QUERY", r".* QUERY \S+ STOP", "", FIRST_WORDS["STOP"]),
    ("ALTER QUERY", r".* QUERY \S+ (SELECT|ADD|DROP|MODIFY)", "", _TEXT),
    ("ALTER QUERY", r".* PAUSE KEEP", "", "a query that keeps its state is paused by PAUSE WITH STATE"),
    ("ALTER QUERY", r".* SET [\w.]+", "", "attributes stand in parentheses: ALTER QUERY name SET (weight 2)"),
    ("ALTER (STREAM|RELATION)", r".* SET [\w.]+", "", _ATTRIBUTES),
    ("ALTER (STREAM|RELATION|QUERY)", r".* SET \(.* \d+ \w+", "", _ATTRIBUTES),
    ("ALTER (STREAM|RELATION)", r"\S+ \S+ \S+ (RETAIN|ORDER|IDLE)", "", _ATTRIBUTES),
    ("ALTER (STREAM|RELATION)", r"\S+ \S+ \S+ (PAUSE|RESUME)", "", "queries are paused: ALTER QUERY name PAUSE"),
    ("ALTER (STREAM|RELATION)", r"\S+ \S+ \S+ RENAME", "", "its name changes with DROP and CREATE"),
    ("ALTER STREAM", r"\S+ \S+ \S+ ADD", r"(PRIMARY.*|CHECK)", _PROMISES),
    ("ALTER RELATION", r"\S+ \S+ \S+ ADD", r"(UNIQUE|PRIMARY.*|FOREIGN.*|CLUSTERED.*|ORDERED.*|CONSTRAINT|CHECK)",
     "promises are of streams; what no two rows of a relation share is PRIMARY KEY (k) in its declaration"),
    ("ALTER STREAM", r"\S+ \S+ \S+ DROP", r"(UNIQUE|PRIMARY.*|FOREIGN.*|CLUSTERED.*|ORDERED.*)",
     "a promise is dropped by its name, which SHOW CONSTRAINTS lists: ALTER STREAM s DROP CONSTRAINT name"),
    ("ALTER STREAM", r".* DROP CONSTRAINT (IF )?(IF|EXISTS|NOT)", "", "leave IF EXISTS out: DROP CONSTRAINT name"),
    ("ALTER SYSTEM", r"ALTER SYSTEM (?!SET)\S+", "", "as in ALTER SYSTEM SET trigger = '2 seconds'"),
    ("(CREATE|ALTER) ", r"(?!.* SELECT ).* (UNIQUE|CLUSTERED BY|ORDERED BY|FOREIGN KEY) [`\w]+", "",
     "columns stand in parentheses: UNIQUE (k), CLUSTERED BY (k) WITHIN 3 ROWS"),
    ("(CREATE|ALTER) ", r"(?!.* SELECT ).* CONSTRAINT (UNIQUE|FOREIGN KEY|CLUSTERED|ORDERED|CHECK)( BY)? \(", "",
     "a name follows CONSTRAINT, as in CONSTRAINT once UNIQUE (k); or leave CONSTRAINT out"),
    ("CREATE STREAM", r".* STREAM \S+ AS", "", _DERIVED),
    ("CREATE STREAM", r"(?!.* FROM ).* AS PROCTIME", "",
     "SYSTEM TIME behind the connector, in place of TIMESTAMP BY, stamps rows when they arrive"),
    ("CREATE (STREAM|RELATION)", r"(?!.* FROM ).*[(,] \S+ AS \S+", "", _COMPUTED),
    ("CREATE STREAM", r"(?!.* FROM ).* METADATA", "", _METADATA),
    ("CREATE STREAM", r"(?!.* FROM ).* KEY", "",
     "the key of a record is an option of the connector that names a column: FROM KAFKA (..., key 'k')"),
    ("CREATE (STREAM|RELATION)", r"(?!.* SELECT ).* \) NOT", "ENFORCED", "leave NOT ENFORCED out"),
    ("CREATE STREAM", r".*(UNIQUE|BY|REFERENCES) .*\) .*(TRUSTED|ENFORCED|NOT|DEFERRABLE|RELY|NORELY)", "", _MODE),
    ("CREATE STREAM", r".* (PARTITIONED BY|PARTITIONED|DISTRIBUTED|SHARDED)", "",
     "leave it out: rows are distributed by the keys of the queries that read them"),
    ("CREATE STREAM", r".* \) (TIMESTAMP|ROWTIME|TIME)", r"(?!BY).*", _STAMP),
    ("CREATE STREAM", r".* TIMESTAMP BY \S+ [(,]", "", _ONE_COLUMN),
    ("CREATE STREAM", r".* (LATENESS|LATE|GRACE)", "", _LATENESS),
    ("CREATE STREAM", r".* RETENTION", "", _RETAIN),
    ("CREATE STREAM", r".* HEARTBEAT", r"(?!BY).*", _HEARTBEAT),
    ("CREATE STREAM", r".* SORTED", "", "the promise of an order is ORDERED BY (k) WITHIN 3 ROWS"),
    ("CREATE STREAM", r".* FROM .* REFERENCES", "", "as in FOREIGN KEY (k) REFERENCES s (k)"),
    ("CREATE STREAM", r".* REFERENCES .* ON", "(DELETE|UPDATE)", _NOT_DELETED),
    ("SET ", r".* ,", "", "each setting has a SET of its own: SET trigger = '2 seconds'; SET shards = 4"),
    ("CANCEL ", r"CANCEL QUERY( \S+)?", "", _CANCEL),
    ("DROP CONSTRAINT", r"DROP CONSTRAINT", "", "as in ALTER STREAM s DROP CONSTRAINT name"),
    ("DROP ", r"DROP \S+ \S+ ,", "", "each name has a DROP of its own, which BEGIN and COMMIT make one"),
    ("DROP ", r".* RESTRICT", "", "leave it out: what is read by something else is dropped by CASCADE alone"),
    ("DROP ", r"DROP \S+", "IF", "say what it is: DROP QUERY IF EXISTS name"),
    ("BEGIN ", r"BEGIN \S+", "", _TRANSACTION),
    ("START TRANSACTION", r"START", "", _TRANSACTION),
    ("EXPLAIN ", r"EXPLAIN (EXTENDED|PLAN|FORMAT|VERBOSE|LOGICAL|CODEGEN|COST|FORMATTED)", "",
     "EXPLAIN SELECT ... shows the plans, EXPLAIN ANALYZE SELECT ... measures them"),
    ("SHOW ", r"SHOW \S+ (WHERE|FROM|IN)", "",
     "SHOW lists all of them; at a server SELECT .. FROM penstock.queries WHERE chooses"),
)  # fmt: skip
_COMPILED = tuple(
    (re.compile(head), re.compile(rf"(?:{near})\Z"), re.compile(rf"(?:{behind})\Z") if behind else None, hint)
    for head, near, behind, hint in _PLACES
)


def hint_of_place(tokens: Sequence[Token], index: int) -> str | None:
    """Return the hint for the word at `index`, which is unexpected there; None where no system is known to have it."""
    begin = max((at for at in range(index) if tokens[at].text in ("[", "]")), default=0)
    inside = bool(index) and tokens[begin].text == "["
    first = begin if inside else max(0, index - _NEAR)
    words = _head(tokens)
    near = " ".join(_word(token) for token in tokens[first : index + 1])
    behind = _word(tokens[index + 1]) if index + 1 < len(tokens) else ""
    for head, pattern, following, hint in _COMPILED:
        if head.match(words) and pattern.match(near) and (following is None or following.match(behind)):
            return hint
    return None


def _head(tokens: Sequence[Token]) -> str:
    """Return the first words, without OR REPLACE and IF NOT EXISTS between the verb and the name."""
    return " ".join(_word(token) for token in tokens[:_HEAD]).replace(" OR REPLACE", "") + " "


def _word(token: Token) -> str:
    return "''" if token.token_type is TokenType.STRING else token.text.upper()
