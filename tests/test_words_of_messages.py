"""Texts for users are plain, literal English: error messages, hints, warnings, settings, help, EXPLAIN; and so is code.

The words below name what people do, where the subject is a row, a query or a file; each has a literal word of the field
beside it. The list is short on purpose: a text without them may still be unclear, and reading it is what counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import CODES

SRC = Path(__file__).resolve().parents[1] / "src" / "penstock"
FILES = sorted(SRC.rglob("*.py"))

#: Pattern -> what to write instead.
BANNED = {
    r"\b(is|are|was|were|be) told\b": "is reported, is emitted",
    r"\btells (?!apart)": "reports, has, shows",
    r"\b(is|are|was|were) (asked|heard|wanted|meant|handed)\b": "is requested, is read",
    r"\basked for\b": "requested",
    r"\bpass(es|ed)? over\b": "skip",
    r"\bnobody\b": "no query, no reader",
    r"\bat the (least|most)\b": "at least, at most",
    r"\b(go|goes|went|going) on\b": "continue",
    r"\b(taken|takes?|took) back\b": "retract",
    r"\bstands? (twice|behind|beside|around)\b": "occurs twice, follows",
    r"\banew\b": "again",
    r"\bno more\b": "no longer",
    r"\blooks? for\b": "search",
}

#: Calls whose text arguments people read, and the keywords and variables that hold such texts.
_CALLS = {
    "PenstockError",
    "ScriptWarning",
    "fail",
    "warn",
    "note",
    "Setting",
    "Function",
    "Fault",
    "Refusal",
    "not_yet",
}
_NAMES = {"message", "hint", "help", "reason", "description"}


#: Words of names, comments and docstrings as well: rows are emitted, a query is registered, a condition is requested.
CODE = re.compile(r"\b(?:told|said|asked for|wanted|hears? of|nobody)\b", re.IGNORECASE)
#: How often these occur in `src`: lower it when a change removes some.
MOST_IN_CODE = 5


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the literals of a module that reach a user."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _CALLS:
                yield from _literals([*node.args, *(k.value for k in node.keywords)])
            yield from _literals(k.value for k in node.keywords if k.arg in _NAMES)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id.strip("_").lower() in _NAMES for target in targets):
                yield from _literals([node.value])


def _literals(nodes: Iterator[ast.expr] | list[ast.expr]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.lineno, part.value


def banned(text: str) -> list[str]:
    """Return the words of a text that are to be replaced, with what to write instead."""
    return [f"{found[0]!r} ({better})" for word, better in BANNED.items() if (found := re.search(word, text))]


def test_messages_and_hints() -> None:
    read = ((path, line, text) for path in FILES for line, text in texts(ast.parse(path.read_text("utf-8"))))
    assert sorted({(path.name, line, word, text) for path, line, text in read for word in banned(text)}) == []


def test_meanings_of_codes() -> None:
    assert [(code, word) for code, meaning in CODES.items() for word in banned(meaning)] == []


def test_words_of_code() -> None:
    """These words in the code may only become fewer."""
    paths = [*FILES, *sorted(SRC.rglob("*.js"))]
    counts = {path: len(CODE.findall(path.read_text("utf-8"))) for path in paths}
    most = sorted(((n, str(path.relative_to(SRC))) for path, n in counts.items()), reverse=True)[:10]
    assert sum(counts.values()) <= MOST_IN_CODE, f"name what is held and say what the code does; most are in {most}"


def test_what_these_tests_would_find() -> None:
    module = ast.parse('raise PenstockError("P0401", f"{n} rows are told", hint="nobody reads them")')
    assert {text: len(banned(text)) for _, text in texts(module)} == {
        "P0401": 0,
        " rows are told": 1,
        "nobody reads them": 1,
    }
    assert banned("the rows are reported, and no query reads them") == []
    assert CODE.findall("# Nobody asked for told_below, so it is told.") == ["Nobody", "asked for", "told"]
