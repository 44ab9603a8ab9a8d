"""docs/grammar.md is the grammar that the parser reads: what its productions generate is read, and every keyword that
the parser looks for is on the page."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

from penstock.errors import ScriptErrors
from penstock.language.keywords import KEYWORDS
from penstock.language.scripts import parse_script
from penstock.types import Unit

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "grammar.md").read_text(encoding="utf-8")
FOLDER = ROOT / "src" / "penstock" / "language"
GRAMMAR_FILES = sorted((*FOLDER.glob("grammar/*.py"), *FOLDER.glob("statements/*.py")))

#: Terminal -> texts that stand for it.
TERMINALS = {
    "name": ("s1", "readings", "`a b`"),
    "string": ("'2024-01-01'", '"2024-01-01"'),
    "number": ("10", "1.5"),
    "integer": ("3", "100"),
    "quoted_interval": ("'10 seconds'",),
    "type": ("INT", "DECIMAL(8,2)", "VARCHAR(3)"),
    "value": ("7", "'text'"),
    "expression": ("k", "k + 1 > 2", "COUNT(*)", "k IN (SELECT k FROM s2)", "CASE WHEN k = 1 THEN 'x' END"),
}
#: Words that the parser looks for in order to refuse them.
REFUSED = {"RECURSIVE"}

_TOKEN = re.compile(r'"[^"]*"|[A-Za-z_]+|[()|?*+=;]')


@dataclass(frozen=True)
class Part:
    """A node of a production. kind: word, text, name, sequence, choice, ? or *."""

    kind: str
    text: str = ""
    parts: tuple[Part, ...] = ()

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.text, self.parts))

    def __hash__(self) -> int:
        """Generated texts look for their parts in sets: a production is many parts within each other."""
        return self._hash


def productions() -> dict[str, Part]:
    """Return the productions of the page by name."""
    text = "\n".join(re.findall(r"^```grammar\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    tokens = _TOKEN.findall(text)
    found = {}
    while tokens:
        name, equals = tokens.pop(0), tokens.pop(0)
        assert equals == "=", name
        assert name not in found, name
        found[name] = _choice(tokens)
        assert tokens.pop(0) == ";", name
    return found


def _choice(tokens: list[str]) -> Part:
    members = [_sequence(tokens)]
    while tokens[0] == "|":
        tokens.pop(0)
        members.append(_sequence(tokens))
    return members[0] if len(members) == 1 else Part("choice", parts=tuple(members))


def _sequence(tokens: list[str]) -> Part:
    members = []
    while tokens[0] not in ("|", ")", ";"):
        token = tokens.pop(0)
        if token == "(":
            part = _choice(tokens)
            assert tokens.pop(0) == ")"
        elif token.startswith('"'):
            part = Part("text", token[1:-1])
        else:
            part = Part("word" if token.isupper() else "name", token)
        if tokens[0] in ("?", "*"):
            part = Part(tokens.pop(0), parts=(part,))
        members.append(part)
    return Part("sequence", parts=tuple(members))


GRAMMAR = productions()
#: Productions within each other from which on the shortest alternative is taken.
DEEPEST = 9


def height(part: Part) -> int:
    """Return how many productions stand within each other at least in a text of `part`."""
    if part.kind == "name":
        return HEIGHTS.get(part.text, 0 if part.text in TERMINALS else 1_000)
    if part.kind in ("?", "*"):
        return 0
    heights = [height(member) for member in part.parts]
    return (min(heights) if part.kind == "choice" else max(heights, default=0)) if heights else 0


HEIGHTS: dict[str, int] = {}
for _ in GRAMMAR:
    HEIGHTS |= {name: height(production) + 1 for name, production in GRAMMAR.items()}


class Generator:
    """Random texts of the grammar. missing: the productions and alternatives to which choices lead, if they can. seen:
    those that were used."""

    def __init__(self, seed: int, missing: frozenset[Part] = frozenset()) -> None:
        self._random = random.Random(seed)
        self._missing = missing
        self.seen: set[Part] = set()

    def text(self, name: str) -> str:
        return " ".join(self._words(GRAMMAR[name], 0))

    def _words(self, part: Part, depth: int) -> Iterator[str]:
        self.seen.add(part)
        if part.kind in ("word", "text"):
            yield part.text
        elif part.kind == "sequence":
            for member in part.parts:
                yield from self._words(member, depth)
        elif part.kind == "choice":
            deep = depth > DEEPEST
            parts = [member for member in part.parts if self._leads(member)] or part.parts
            yield from self._words(min(part.parts, key=height) if deep else self._random.choice(parts), depth)
        elif part.kind in ("?", "*"):
            if depth <= DEEPEST and (self._random.random() < 0.5 or self._leads(part.parts[0])):
                yield from self._words(part.parts[0], depth)
        elif part.text in TERMINALS:
            yield self._random.choice(TERMINALS[part.text])
        else:
            yield from self._words(GRAMMAR[part.text], depth + 1)

    def _leads(self, part: Part) -> bool:
        return bool(self._missing) and not derived(part).isdisjoint(self._missing - self.seen)


def reachable(part: Part) -> Iterator[Part]:
    yield part
    for member in part.parts:
        yield from reachable(member)


@cache
def derived(part: Part) -> frozenset[Part]:
    """Return all that a text of `part` may consist of, through productions."""
    found: set[Part] = set()
    ahead = [part]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead += [*one.parts, *([GRAMMAR[one.text]] if one.kind == "name" and one.text in GRAMMAR else [])]
    return frozenset(found)


def test_every_name_of_the_page_is_a_production_or_a_terminal() -> None:
    named = {p.text for production in GRAMMAR.values() for p in reachable(production) if p.kind == "name"}
    assert named - GRAMMAR.keys() - TERMINALS.keys() == set()
    assert GRAMMAR.keys() - named == {"script"}


STATEMENTS = pytest.mark.parametrize("name", GRAMMAR["statement"].parts, ids=lambda part: part.parts[0].text)


@STATEMENTS
def test_what_the_grammar_generates_is_read(name: Part) -> None:
    _check_texts(name, range(20))


@pytest.mark.slow
@STATEMENTS
def test_much_of_what_the_grammar_generates_is_read(name: Part) -> None:
    _check_texts(name, range(20, 550))


def _check_texts(name: Part, seeds: range) -> None:
    production = name.parts[0].text
    for seed in seeds:
        text = Generator(seed).text(production)
        assert len(parse_script(text).statements) == 1, text


def test_the_parser_refuses_what_the_grammar_does_not_have() -> None:
    with pytest.raises(ScriptErrors):
        parse_script("CREATE STREAM s (a INT) FROM MEMORY () TIMESTAMP a")


def test_every_alternative_is_generated() -> None:
    """Texts are generated that lead to what has not been, until each alternative was, and each is read."""
    wanted = {part for production in GRAMMAR.values() for part in reachable(production)} - {
        *reachable(GRAMMAR["script"])
    }
    missing = {part for part in wanted if part.kind != "sequence" or part.parts}
    for seed in range(400):
        generator = Generator(seed, frozenset(missing))
        parse_script(generator.text("query" if seed % 2 else "statement"))
        missing -= generator.seen
        if not missing:
            break
    assert missing == set()


def keywords() -> set[str]:
    """Return the words in capitals that the parser's grammar compares tokens with."""
    read = ("_take", "_take_any", "_need", "_mark")
    found = set()
    for path in GRAMMAR_FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in read:
                found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return {word for words in found for word in words.split()}


def test_every_keyword_of_the_parser_is_on_the_page() -> None:
    there = {p.text for production in GRAMMAR.values() for p in reachable(production) if p.kind == "word"}
    assert len(keywords()) > 50
    assert keywords() - there - REFUSED == set()
    assert {unit.name for unit in Unit} <= there


def test_the_keywords_that_are_completed_are_those_of_the_page() -> None:
    there = {p.text for production in GRAMMAR.values() for p in reachable(production) if p.kind == "word"}
    assert set(KEYWORDS) == there
