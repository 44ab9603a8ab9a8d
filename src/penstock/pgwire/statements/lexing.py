"""The words of a statement as PostgreSQL's clients write it, and the same statement in the words of the language.

PostgreSQL writes names in double quotes and a backslash in a text as itself; the language writes names in backquotes
and a backslash as an escape. Here a statement is cut into tokens by PostgreSQL's rules; `cql_text` writes them by those
of the language, and remembers where each comes from, so that errors keep their places.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.language.statements.values import string_text
from penstock.pgwire.protocol.errors import SYNTAX, WireError


class Kind(enum.Enum):
    """Kinds of tokens. TEXT is any form of string; VALUE is `$1`; MARK is punctuation or an operator."""

    WORD = "word"
    NAME = "name"
    TEXT = "text"
    NUMBER = "number"
    VALUE = "value"
    MARK = "mark"


@dataclass(frozen=True)
class PgToken:
    """A token. start, end: in the text; value: of a name or a text, what it stands for."""

    kind: Kind
    text: str
    start: int
    end: int
    value: str = ""

    @property
    def word(self) -> str:
        """Return a word in capitals; another token as it is written."""
        return self.text.upper() if self.kind is Kind.WORD else self.text

    @property
    def name(self) -> str | None:
        """Return the name that a word or a quoted name stands for; None for another token."""
        return self.text if self.kind is Kind.WORD else self.value if self.kind is Kind.NAME else None


_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<estring>[eE]'(?:[^'\\]|\\.|'')*+')
      | (?P<unicode>[uU]&['"])
      | (?P<bytes>[xX]'[0-9a-fA-F]*')
      | (?P<string>'(?:[^']|'')*+')
      | (?P<name>"(?:[^"]|"")*+")
      | (?P<backquoted>`(?:[^`]|``)*+`)
      | (?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?\$)
      | (?P<value>\$[0-9]+)
      | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
      | (?P<mark>::|<>|!=|<=|>=|\|\||->>|->|=>|!~~\*|!~~|!~\*|!~|~~\*|~~|~\*|[^\s])""",
    re.VERBOSE | re.DOTALL,
)
_OIDS = frozenset({"OID", "REGCLASS", "REGTYPE", "REGPROC", "NAME"})
#: Characters of `$65535`, and some leading zeros.
_LONGEST_VALUE = 12
_COMMENT = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_UNCLOSED = {"'": "a text", '"': "a quoted name", "`": "a quoted name"}


def tokens(text: str) -> list[PgToken]:
    """Return the tokens of a text, without space and comments. Raises WireError 42601 for quotes or a comment without
    an end."""
    found: list[PgToken] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None, "a mark is any character"
        kind, at = match.lastgroup, match.end()
        start, word = match.start(), match[0]
        if kind == "space":
            continue
        if kind == "comment":
            at = _end_of_comment(text, match.end())
        elif kind == "dollar":
            end = text.find(word, at)
            if end < 0:
                raise _unclosed("a dollar-quoted text", start)
            found.append(PgToken(Kind.TEXT, text[start : end + len(word)], start, end + len(word), text[at:end]))
            at = end + len(word)
        elif kind == "unicode":
            raise WireError(SYNTAX, "texts and names with U& are not read", "write the characters themselves", start)
        else:
            found.append(_token(str(kind), word, start))
    return found


def _token(kind: str, text: str, start: int) -> PgToken:
    end = start + len(text)
    if kind == "string":
        return PgToken(Kind.TEXT, text, start, end, text[1:-1].replace("''", "'"))
    if kind == "estring":
        return PgToken(Kind.TEXT, text, start, end, _unescaped(text[2:-1].replace("''", "'"), start))
    if kind in ("name", "backquoted"):
        quote = text[0]
        if len(text) == 2:
            raise WireError(SYNTAX, "a quoted name is empty", offset=start)
        return PgToken(Kind.NAME, text, start, end, text[1:-1].replace(quote * 2, quote))
    if kind == "mark" and text in _UNCLOSED:
        raise _unclosed(_UNCLOSED[text], start)
    if kind == "value" and (len(text) > _LONGEST_VALUE or not int(text[1:])):
        raise WireError("42P02", f"there is no parameter {text[:_LONGEST_VALUE]}", offset=start, code="P0203")
    kinds = {"bytes": Kind.NUMBER, "value": Kind.VALUE, "number": Kind.NUMBER, "word": Kind.WORD, "mark": Kind.MARK}
    return PgToken(kinds[kind], text, start, end)


def _unescaped(text: str, start: int) -> str:
    def character(match: re.Match[str]) -> str:
        octal, *hexadecimal, other = match.groups()
        if other is not None:
            return _SIMPLE.get(other, other)
        number = int(octal, 8) if octal else int(next(digits for digits in hexadecimal if digits), 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000 or ((match[1] or match[2]) and number > 127):
            raise WireError(SYNTAX, f"the escape {match[0]} stands for no character", offset=start)
        return chr(number)

    return _ESCAPE.sub(character, text)


def _end_of_comment(text: str, at: int) -> int:
    depth = 1
    for mark in _COMMENT.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise _unclosed("a comment", at - 2)


def _unclosed(what: str, start: int) -> WireError:
    return WireError(SYNTAX, f"{what} has no end", offset=start, code="P0101")


@dataclass(frozen=True)
class Statement:
    """One statement of a text. offset: of its text in what the client sent, None where it has sent that before;
    tokens: with places in its text."""

    text: str
    tokens: tuple[PgToken, ...]
    offset: int | None = 0

    def words(self, count: int) -> tuple[str, ...]:
        """Return the first tokens as words in capitals."""
        return tuple(token.word for token in self.tokens[:count])

    @property
    def values(self) -> int:
        """Return the largest number of a `$n`; 0 without one."""
        return max((int(token.text[1:]) for token in self.tokens if token.kind is Kind.VALUE), default=0)


def statements(text: str) -> list[Statement]:
    """Return the statements of a text, those that are empty left out. Raises WireError 42601."""
    found: list[Statement] = []
    part: list[PgToken] = []
    for token in [*tokens(text), PgToken(Kind.MARK, ";", len(text), len(text))]:
        if token.text != ";" or token.kind is not Kind.MARK:
            part.append(token)
            continue
        if part:
            start = part[0].start
            moved = tuple(PgToken(t.kind, t.text, t.start - start, t.end - start, t.value) for t in part)
            found.append(Statement(text[start : part[-1].end], moved, start))
        part = []
    return found


def name_text(name: str) -> str:
    """Return a quoted name in the language."""
    return "`" + name.replace("`", "``") + "`"


@dataclass
class CqlText:
    """A statement of the language, and where its parts come from. places: (offset here, offset in the statement)."""

    text: str = ""
    places: list[tuple[int, int]] = field(default_factory=list)


def cql_text(
    statement: Statement,
    names: Callable[[], Collection[str]] = tuple,
    schemas: Sequence[str] = ("public",),
    replaced: Mapping[int, str] | None = None,
) -> CqlText:
    """Return a statement in the words of the language.

    Args:
        names: returns those of declarations, in lower case: before them the name of a schema is left out.
        schemas: names that may stand before them.
        replaced: what is written in place of tokens, by their index.
    """
    parts: list[str] = []
    made = CqlText()
    length = at = 0

    def add(text: str, place: int) -> None:
        nonlocal length
        made.places.append((length, place))
        parts.append(text)
        length += len(text)

    found = statement.tokens
    index = 0
    while index < len(found):
        token = found[index]
        if token.start > at:
            add(_space(statement.text[at : token.start]), at)
        at = token.end
        if _is_schema(found, index, names, schemas):
            at = found[index + 1].end
            index += 2
            continue
        if replaced and index in replaced:
            add(replaced[index], token.start)
        elif token.kind is Kind.TEXT:
            add(string_text(token.value), token.start)
        elif token.kind is Kind.NAME:
            add(name_text(token.value), token.start)
        else:
            add(token.text, token.start)
        index += 1
    made.text = "".join(parts)
    return made


def plain_text(statement: Statement) -> str:
    """Return a statement in PostgreSQL's plainest words: texts in single quotes, no comments."""
    parts: list[str] = []
    end = 0
    found = statement.tokens
    for index, token in enumerate(found):
        if token.start < end:
            continue
        if token.start > end:
            parts.append(" ")
        end = token.end
        if token.kind is Kind.TEXT:
            parts.append("'" + token.value.replace("'", "''") + "'")
        elif token.word in _OIDS and [one.text for one in found[index + 1 : index + 3]] == ["[", "]"]:
            # The parser knows arrays of other types than those that stand for oids; all have this name, too.
            parts.append(f"_{token.text.lower()}")
            end = found[index + 2].end
        else:
            parts.append(token.text)
    return "".join(parts)


def _space(text: str) -> str:
    """Return space of the same kind: comments of PostgreSQL may hold what the language reads otherwise."""
    return text if text.isspace() else "\n" if "\n" in text else " "


def _is_schema(
    found: Sequence[PgToken], index: int, names: Callable[[], Collection[str]], schemas: Sequence[str]
) -> bool:
    """Return whether a token is the name of a schema in front of a declaration."""
    name = found[index].name
    if name is None or name.lower() not in schemas or (index and found[index - 1].text == "."):
        return False
    if index + 2 >= len(found) or found[index + 1].text != ".":
        return False
    following = found[index + 2].name
    is_longer = index + 3 < len(found) and found[index + 3].text == "."
    return following is not None and (is_longer or following.lower() in names())
