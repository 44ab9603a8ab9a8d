"""The clauses of statements about the connection: DECLARE, FETCH, COPY, BEGIN and SET."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.pgwire.protocol.errors import INVALID_VALUE, SYNTAX, WireError, unsupported
from penstock.pgwire.statements.lexing import Kind, PgToken, Statement
from penstock.pgwire.statements.variables import seconds_of


class Reader:
    """Reads the tokens of a statement one after the other."""

    def __init__(self, statement: Statement, at: int = 0) -> None:
        self.statement = statement
        self.at = at

    def peek(self) -> str:
        """Return the next token as a word in capitals; empty at the end."""
        tokens = self.statement.tokens
        return tokens[self.at].word if self.at < len(tokens) else ""

    def take(self, *words: str) -> str:
        """Return the next token if it is one of some words, and go on; otherwise empty."""
        found = self.peek()
        if found and found in words:
            self.at += 1
            return found
        return ""

    def need(self, *words: str) -> str:
        found = self.take(*words)
        if not found:
            raise self.wrong(" or ".join(words))
        return found

    def name(self) -> str:
        """Return a name; one without quotes in lower case."""
        token = self._next("a name")
        if token.name is None:
            self.at -= 1
            raise self.wrong("a name")
        return token.value if token.kind is Kind.NAME else token.text.lower()

    def value(self) -> str:
        """Return a word, a text or a number, with its sign."""
        sign = self.take("-", "+")
        token = self._next("a value")
        if token.kind is Kind.MARK:
            self.at -= 1
            raise self.wrong("a value")
        return ("-" if sign == "-" else "") + (token.value if token.kind in (Kind.TEXT, Kind.NAME) else token.text)

    def rest(self) -> Statement:
        """Return what is left as a statement."""
        return part(self.statement, self.statement.tokens[self.at :])

    def end(self) -> None:
        """Raises WireError where something is left."""
        if self.at < len(self.statement.tokens):
            raise self.wrong("the end of the statement")

    def wrong(self, expected: str, hint: str | None = None) -> WireError:
        """Return the error for what stands here."""
        tokens = self.statement.tokens
        found = tokens[self.at] if self.at < len(tokens) else None
        shown = "the end of the statement" if found is None else found.text[:100]
        offset = len(self.statement.text) if found is None else found.start
        return WireError(SYNTAX, f"expected {expected}, found {shown}", hint, offset=offset, code="P0101")

    def _next(self, expected: str) -> PgToken:
        if self.at >= len(self.statement.tokens):
            raise self.wrong(expected)
        self.at += 1
        return self.statement.tokens[self.at - 1]


def part(statement: Statement, tokens: Sequence[PgToken]) -> Statement:
    """Return some tokens of a statement as a statement of their own."""
    if not tokens:
        raise WireError(SYNTAX, "a query is missing", offset=len(statement.text), code="P0101")
    start, end = tokens[0].start, tokens[-1].end
    moved = tuple(PgToken(t.kind, t.text, t.start - start, t.end - start, t.value) for t in tokens)
    return Statement(statement.text[start:end], moved, None if statement.offset is None else statement.offset + start)


@dataclass(frozen=True)
class Declaration:
    """DECLARE name CURSOR FOR query. holds: it outlives its transaction."""

    name: str
    query: Statement
    holds: bool


def read_declare(statement: Statement) -> Declaration:
    """Raises WireError for a cursor that goes backwards, or in binary."""
    reader = Reader(statement, 1)
    name = reader.name()
    while (word := reader.take("BINARY", "INSENSITIVE", "ASENSITIVE", "NO", "SCROLL")) != "":
        if word == "NO":
            reader.need("SCROLL")
        elif word in ("BINARY", "SCROLL"):
            raise unsupported(f"a cursor cannot be {word}", "a cursor goes forward, in the format of its FETCH")
    reader.need("CURSOR")
    holds = False
    if (word := reader.take("WITH", "WITHOUT")) != "":
        reader.need("HOLD")
        holds = word == "WITH"
    reader.need("FOR")
    return Declaration(name, reader.rest(), holds)


@dataclass(frozen=True)
class Fetch:
    """FETCH count FROM name. count: None for all; seconds: how long to wait for rows of a subscription."""

    name: str
    count: int | None
    seconds: float | None


def read_fetch(statement: Statement) -> Fetch:
    """Raises WireError for a cursor that is to go backwards."""
    reader = Reader(statement, 1)
    if (word := reader.take("PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "BACKWARD")) != "":
        raise unsupported(f"FETCH {word}: a cursor goes forward only")
    count: int | None = 1
    reader.take("NEXT", "FORWARD")
    if reader.take("ALL"):
        count = None
    elif reader.peek().isdecimal():
        number = reader.value()
        # All rows are fewer.
        count = int(number) if len(number) < 20 else 1 << 62
    elif reader.peek() in ("-", "+"):
        raise unsupported("a cursor goes forward only")
    reader.take("FROM", "IN")
    name = reader.name()
    seconds = None
    if reader.take("WITH"):
        reader.need("(")
        reader.need("TIMEOUT")
        reader.take("=")
        seconds = seconds_of(reader.value(), "s")
        reader.need(")")
    reader.end()
    return Fetch(name, count, seconds)


@dataclass(frozen=True)
class Copy:
    """COPY (query) TO STDOUT. form: `text`, `csv` or `binary`."""

    query: Statement
    form: str = "text"
    header: bool = False
    delimiter: str = "\t"
    null: str = "\\N"


@dataclass(frozen=True)
class CopyFrom:
    """COPY name (columns) FROM STDIN. columns: None for all; form: `text` or `csv`; matches: the header has to have the
    names of the columns."""

    name: str
    columns: tuple[str, ...] | None
    form: str = "text"
    header: bool = False
    matches: bool = False
    delimiter: str = "\t"
    null: str = "\\N"


def read_copy(statement: Statement) -> Copy | CopyFrom:
    """Raises WireError for files of the server, and for options that are not known."""
    tokens = statement.tokens
    reader = Reader(statement, 1)
    if reader.take("("):
        depth, end = 1, reader.at
        while end < len(tokens) and depth:
            depth += {"(": 1, ")": -1}.get(tokens[end].text, 0) if tokens[end].kind is Kind.MARK else 0
            end += 1
        query = part(statement, tokens[reader.at : end - 1])
        reader.at = end
    else:
        begin, names = reader.at, [reader.name()]
        while reader.take("."):
            names.append(reader.name())
        end, columns = reader.at, _listed(reader)
        if reader.need("TO", "FROM") == "FROM":
            return _copy_from(reader, names, columns)
        if columns is not None:
            raise unsupported("COPY of some columns", "COPY (SELECT ... FROM ...) TO STDOUT")
        reader.at -= 1
        table = part(statement, tokens[begin:end])
        text = f"SELECT * FROM {table.text}"
        shift = len(text) - len(table.text)
        head = tuple(
            PgToken(kind, word, at, at + len(word))
            for kind, word, at in ((Kind.WORD, "SELECT", 0), (Kind.MARK, "*", 7), (Kind.WORD, "FROM", 9))
        )
        moved = tuple(PgToken(t.kind, t.text, t.start + shift, t.end + shift, t.value) for t in table.tokens)
        query = Statement(text, (*head, *moved), None if table.offset is None else table.offset - shift)
    reader.need("TO")
    if reader.peek() != "STDOUT":
        if tokens[1].word == "SUBSCRIBE":
            raise reader.wrong("STDOUT", "the statement stands in parentheses: COPY (SUBSCRIBE TO name) TO STDOUT")
        raise unsupported(
            "COPY TO a file or a program of the server", "COPY (...) TO STDOUT; psql: \\copy (...) TO 'file'"
        )
    reader.need("STDOUT")
    found = _options(reader)
    return Copy(query, found.form, found.header, found.delimiter, found.null)


def _listed(reader: Reader) -> tuple[str, ...] | None:
    """Return the names in parentheses, None where there are none."""
    if not reader.take("("):
        return None
    found = [reader.name()]
    while reader.take(","):
        found.append(reader.name())
    reader.need(")")
    return tuple(found)


def _copy_from(reader: Reader, names: Sequence[str], columns: tuple[str, ...] | None) -> CopyFrom:
    if reader.peek() != "STDIN":
        raise unsupported("COPY FROM a file or a program of the server", "COPY name FROM STDIN")
    reader.need("STDIN")
    found = _options(reader)
    if found.form == "binary":
        raise unsupported("COPY FROM in the format binary", "FORMAT text or csv; asyncpg: copy_to_table(format='csv')")
    if found.delimiter in found.null or "\n" in found.null or "\r" in found.null:
        raise WireError(INVALID_VALUE, "NULL of COPY has neither the delimiter nor a line feed", code="P0104")
    name = ".".join(names[1:] if names[0] == "public" and len(names) > 1 else names)
    return CopyFrom(name, columns, found.form, found.header, found.matches, found.delimiter, found.null)


@dataclass(frozen=True)
class _Options:
    """The options of COPY."""

    form: str
    header: bool
    matches: bool
    delimiter: str
    null: str


def _options(reader: Reader) -> _Options:
    reader.take("WITH")
    found: dict[str, str] = {}
    if reader.take("("):
        while not reader.take(")"):
            key = reader.name()
            _check_option(key)
            found[key] = "true" if reader.peek() in (",", ")") else reader.value()
            if not reader.take(","):
                reader.need(")")
                break
    else:
        while reader.peek() not in ("", "WHERE"):
            word = reader.need("CSV", "BINARY", "TEXT", "HEADER", "DELIMITER", "NULL")
            if word in ("CSV", "BINARY", "TEXT"):
                found["format"] = word.lower()
            elif word == "HEADER":
                found["header"] = "true"
            else:
                reader.take("AS")
                found[word.lower()] = reader.value()
    if reader.peek() == "WHERE":
        raise reader.wrong("the end of the statement", "COPY adds all rows that are sent: leave others out before it")
    reader.end()
    form = found.get("format", "text").lower()
    if form not in ("text", "csv", "binary"):
        raise WireError(INVALID_VALUE, f"COPY has the formats text, csv and binary, not {form}", code="P0104")
    delimiter = found.get("delimiter", "," if form == "csv" else "\t")
    if len(delimiter.encode()) != 1 or delimiter in '\\\r\n".' or delimiter.isalnum():
        raise WireError(INVALID_VALUE, "a delimiter of COPY is one character, and none of values", code="P0104")
    header = found.get("header", "false").lower()
    if header not in ("true", "on", "1", "false", "off", "0", "match"):
        raise WireError(INVALID_VALUE, f"HEADER of COPY is true, false or match, not {header[:200]}", code="P0104")
    if form == "binary" and len(found) > 1:
        raise WireError(SYNTAX, "COPY in binary has no other options", code="P0103")
    null = found.get("null", "" if form == "csv" else "\\N")
    return _Options(form, header in ("true", "on", "1", "match"), header == "match", delimiter, null)


def _check_option(key: str) -> None:
    """Raise WireError 0A000 for an option of COPY that is not known."""
    if key not in ("format", "header", "delimiter", "null"):
        hint = "FORMAT, HEADER, DELIMITER and NULL are known"
        if key == "encoding":
            hint += "; texts are sent as UTF-8"
        elif key == "on_error":
            hint += "; one malformed line refuses all, a post over HTTP adds the others"
        raise unsupported(f"the option {key} of COPY", hint)


def read_modes(statement: Statement) -> dict[str, str]:
    """Return the modes of BEGIN and SET TRANSACTION: `isolation` and `read_only`. Raises WireError."""
    reader = Reader(statement)
    found: dict[str, str] = {}
    for _ in range(6):
        if not reader.take("BEGIN", "START", "TRANSACTION", "WORK", "SET", "SESSION", "CHARACTERISTICS", "AS", "LOCAL"):
            break
    while reader.peek():
        if reader.take("ISOLATION"):
            reader.need("LEVEL")
            word = reader.need("READ", "REPEATABLE", "SERIALIZABLE")
            found["isolation"] = (
                word.lower()
                if word == "SERIALIZABLE"
                else f"{word} {reader.need('COMMITTED', 'UNCOMMITTED', 'READ')}".lower()
            )
        elif reader.take("READ"):
            found["read_only"] = "on" if reader.need("ONLY", "WRITE") == "ONLY" else "off"
        elif not reader.take("NOT", "DEFERRABLE", ","):
            raise reader.wrong("a mode of a transaction")
    return found


@dataclass(frozen=True)
class SettingClause:
    """SET name TO value. value: None for DEFAULT; local: until the transaction ends."""

    name: str
    value: str | None
    local: bool = False


def read_set(statement: Statement) -> SettingClause | None:
    """Return what SET sets; None for SET TRANSACTION and its like (`read_modes`)."""
    reader = Reader(statement, 1)
    scope = reader.take("SESSION", "LOCAL")
    if reader.peek() in ("TRANSACTION", "CHARACTERISTICS"):
        return None
    if reader.take("TIME"):
        reader.need("ZONE")
        name = "timezone"
    elif reader.take("NAMES"):
        name = "client_encoding"
    else:
        name = reader.name()
        while reader.take("."):
            name += "." + reader.name()
        if name in ("role", "session_authorization") and reader.peek() not in ("TO", "="):
            raise reader.wrong("TO or =", "roles are those of tokens: connect with the name of another token")
        reader.need("TO", "=")
    if reader.take("DEFAULT"):
        reader.end()
        return SettingClause(name, None, scope == "LOCAL")
    values = [reader.value()]
    while reader.take(","):
        values.append(reader.value())
    reader.end()
    return SettingClause(name, ", ".join(values), scope == "LOCAL")
