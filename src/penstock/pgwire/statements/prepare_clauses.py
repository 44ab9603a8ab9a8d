"""The clauses of PREPARE, EXECUTE, DEALLOCATE and DISCARD."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from penstock.pgwire.protocol.errors import WireError, unsupported
from penstock.pgwire.statements.clauses import Reader
from penstock.pgwire.statements.lexing import Kind, Statement
from penstock.pgwire.statements.parameters import Value, read_value
from penstock.pgwire.values.wire_types import WireType, type_named, wire_type

#: Kind of the values of a type -> names of its types. A value of one kind is no value of another.
_KINDS = {
    "number": frozenset({"int2", "int4", "int8", "float4", "float8", "numeric", "oid"}),
    "text": frozenset({"text", "varchar", "bpchar", "name", "char"}),
    "instant": frozenset({"date", "timestamp", "timestamptz"}),
}
_WHOLE = frozenset({"int2", "int4", "int8", "oid"})
_TYPED = frozenset({"DATE", "TIMESTAMP", "TIMESTAMPTZ"})
#: Digits of the number of a literal that is rounded.
_DIGITS = 400
#: Parentheses and casts of an argument within each other.
_DEPTH = 50


@dataclass(frozen=True)
class Prepare:
    """PREPARE name (types) AS query. oids: of the types, 0 for `unknown`."""

    name: str
    oids: tuple[int, ...]
    query: Statement


@dataclass(frozen=True)
class LiteralArgument:
    """A literal of EXECUTE. text: None for NULL; kind: of its values, None for a text whose type is open."""

    text: str | None
    kind: str | None

    def value(self, type_: WireType, number: int) -> Value:
        """Return the value of a parameter. number: n of `$n`. Raises WireError 42804, 22P02."""
        if self.text is None:
            return None
        kind = _kind_of(type_)
        # PostgreSQL writes numbers and truth values into texts, and no other kind into a different one.
        if self.kind not in (None, kind) and not (kind == "text" and self.kind in ("number", "bool")):
            message = f"${number} is {type_.shown}, and the argument is of the type {self.kind}"
            raise WireError("42804", message, "CAST it, or write it in quotes", code="P0203")
        text = self.text
        if self.kind == "number" and type_.name in _WHOLE and len(text) < _DIGITS:
            found = Decimal(text)
            text = str(int(found.to_integral_value(ROUND_HALF_UP))) if abs(found.adjusted()) < _DIGITS else text
        return read_value(text.encode("utf-8", "replace"), type_, False, number)


@dataclass(frozen=True)
class Execute:
    """EXECUTE name (arguments)."""

    name: str
    arguments: tuple[LiteralArgument, ...]


def read_prepare(statement: Statement) -> Prepare:
    """Raises WireError 42601, 42704."""
    reader = Reader(statement, 1)
    name = reader.name()
    oids: list[int] = []
    if reader.take("("):
        while True:
            oids.append(_type(reader).oid)
            if not reader.take(","):
                break
        reader.need(")")
    reader.need("AS")
    return Prepare(name, tuple(0 if oid == 705 else oid for oid in oids), reader.rest())


def read_execute(statement: Statement) -> Execute:
    """Raises WireError 42601, 42704, and 0A000 for an argument that is no literal."""
    reader = Reader(statement, 1)
    name = reader.name()
    arguments: list[LiteralArgument] = []
    if reader.take("("):
        while True:
            arguments.append(_argument(reader))
            if not reader.take(","):
                break
        reader.need(")")
    reader.end()
    return Execute(name, tuple(arguments))


def read_deallocate(statement: Statement) -> str | None:
    """Return the name, None for ALL. Raises WireError 42601."""
    reader = Reader(statement, 1)
    # PREPARE is a name, too, where nothing follows it.
    if reader.peek() == "PREPARE" and len(statement.tokens) > 2:
        reader.need("PREPARE")
    name = None if reader.take("ALL") else reader.name()
    reader.end()
    return name


def read_discard(statement: Statement) -> str:
    """Return what is discarded: ALL, PLANS, SEQUENCES, TEMP or TEMPORARY. Raises WireError 42601."""
    reader = Reader(statement, 1)
    found = reader.need("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY")
    reader.end()
    return found


def _argument(reader: Reader, depth: int = 0) -> LiteralArgument:
    if depth > _DEPTH:
        raise WireError("54001", f"an argument has more than {_DEPTH} parentheses", code="P0105")
    found = _literal(reader, depth)
    while reader.take("::"):
        found = _cast(found, _type(reader))
    return found


def _literal(reader: Reader, depth: int) -> LiteralArgument:
    tokens = reader.statement.tokens
    token = tokens[reader.at] if reader.at < len(tokens) else None
    if token is None or (token.kind is Kind.MARK and token.text not in ("(", "-", "+")):
        raise reader.wrong("a literal")
    if token.kind is Kind.VALUE:
        raise WireError("42P02", f"there is no value for {token.text}", "EXECUTE has literals", token.start, "P0203")
    following = tokens[reader.at + 1] if reader.at + 1 < len(tokens) else None
    if token.word in _TYPED and following is not None and following.kind is Kind.TEXT:
        reader.at += 2
        type_ = type_named(token.text)
        assert type_ is not None, "PostgreSQL has these types"
        return _cast(LiteralArgument(following.value, None), type_)
    if reader.take("CAST"):
        reader.need("(")
        inner = _argument(reader, depth + 1)
        reader.need("AS")
        inner = _cast(inner, _type(reader))
        reader.need(")")
        return inner
    if token.text == "(" and following is not None and following.word not in ("SELECT", "WITH", "VALUES"):
        reader.need("(")
        inner = _argument(reader, depth + 1)
        reader.need(")")
        return inner
    sign = reader.take("-", "+")
    if reader.at < len(tokens) and tokens[reader.at].kind is Kind.NUMBER:
        return _number(sign, reader)
    if sign:
        raise reader.wrong("a number")
    reader.at += 1
    if token.kind is Kind.TEXT:
        return LiteralArgument(token.value, None)
    if token.word == "NULL":
        return LiteralArgument(None, None)
    if token.word in ("TRUE", "FALSE"):
        return LiteralArgument(token.text.lower(), "bool")
    raise _no_literal(token.start)


def _number(sign: str, reader: Reader) -> LiteralArgument:
    text = reader.statement.tokens[reader.at].text
    reader.at += 1
    if text[:1] in "xX":
        return LiteralArgument(f"\\x{text[2:-1]}", "bytea")
    return LiteralArgument(("-" if sign == "-" else "") + text, "number")


def _cast(argument: LiteralArgument, type_: WireType) -> LiteralArgument:
    """Return an argument as one of a type. Raises WireError 22P02, 42804."""
    kind = _kind_of(type_)
    value = (argument if kind != "text" else LiteralArgument(argument.text, None)).value(type_, 1)
    if value is None:
        return LiteralArgument(None, kind)
    if isinstance(value, bool):
        return LiteralArgument("true" if value else "false", kind)
    if isinstance(value, bytes):
        return LiteralArgument("\\x" + value.hex(), kind)
    if isinstance(value, list):
        return LiteralArgument(argument.text, kind)
    return LiteralArgument(format(value, "f") if isinstance(value, Decimal) else str(value), kind)


def _kind_of(type_: WireType) -> str:
    return next((kind for kind, names in _KINDS.items() if type_.name in names), type_.name)


def _no_literal(offset: int) -> WireError:
    hint = "numbers, texts, NULL, TRUE, FALSE and casts of them"
    return unsupported("an argument of EXECUTE that is no literal", hint, offset)


def _type(reader: Reader) -> WireType:
    """Return the type that comes next. A length or precision in parentheses has no effect on a parameter. Raises
    WireError 42704."""
    start = reader.at
    offset = reader.statement.tokens[start].start if start < len(reader.statement.tokens) else None
    words = [reader.name()]
    if words[0] == "pg_catalog" and reader.take("."):
        words = [reader.name()]
    if reader.peek() in ("PRECISION", "VARYING"):
        words.append(reader.name())
    if reader.take("("):
        reader.value()
        while reader.take(","):
            reader.value()
        reader.need(")")
    if words[0] in ("timestamp", "time") and reader.peek() in ("WITH", "WITHOUT"):
        words += [reader.name(), reader.need("TIME").lower(), reader.need("ZONE").lower()]
    brackets = ""
    while reader.take("["):
        reader.need("]")
        brackets = "[]"
    name = " ".join(words) + brackets
    found = wire_type("unknown") if name == "unknown" else type_named(name)
    if found is None:
        raise WireError("42704", f"there is no type {name[:200]}", offset=offset, code="P0207")
    return found
