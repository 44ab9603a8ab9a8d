"""Change scripts of the tests and the docs: right ones by grammar (`clause_mutants.py`), which leaves most of them
right; the others by damage: words lost, doubled, exchanged or taken from other scripts, and single characters."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from tests.clause_mutants import recombined

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(?:cql|sql)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_STATEMENTS = re.compile(r"^statement\n(.*?)(?=^\s*$|^error|\Z)", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"\s+|\w+|'[^']*'|\"[^\"]*\"|`[^`]*`|.", re.DOTALL)
#: Bodies of functions name modules, and a damaged name would load whatever is called so.
_LOADS = re.compile(r"\bCREATE\s+(FUNCTION|AGGREGATE)\b", re.IGNORECASE)
_DECLARES = re.compile(r"\bCREATE\s+(STREAM|RELATION)\b", re.IGNORECASE)
#: The part of the changed scripts that is changed by grammar.
BY_GRAMMAR = 0.6
NASTY = (
    "''", '""', "``", "'", '"', "`", "(", ")", "((", "[", "]", ";", ",", ".", "..", "--", "/*", "*/", "\\",
    '\x00', '\ufeff', '\u2028', "é", "😀", "''''", "1e999999999", "9" * 50, "-9223372036854775808",
    "9223372036854775808", "0.0000000001", "1e-400", "NULL", "ANY", "ALL", "NOT", "-", "~", "<=>", "||", "::",
    "->", "?", ":", "@", "$", "{", "}", "%", "*", "ts", "op", "FROM", "SELECT", "WITH", "ISTREAM", "RANGE",
    "INTERVAL", "CASE", "EXISTS", "(SELECT 1 FROM s)", "INTERVAL 1 MONTH", "X'0'", "r'\\'",
)  # fmt: skip


@cache
def corpus() -> tuple[str, ...]:
    """Every script that the tests and the docs hold, right or wrong."""
    found: list[str] = []
    for path in sorted((ROOT / "tests").rglob("*.cqltest")):
        found += _STATEMENTS.findall(path.read_text(encoding="utf-8"))
    for name in ("errors.txt", "many_errors.txt", "newcomers.txt", "statements.txt"):
        text = (ROOT / "tests" / "language" / name).read_text(encoding="utf-8")
        found += [case.partition("----\n")[0] for case in text.split("====\n")]
    for path in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        found += _FENCE.findall(path.read_text(encoding="utf-8"))
    found += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.cql"))]
    return tuple(text for text in dict.fromkeys(found) if text.strip() and not _LOADS.search(text))


@cache
def right(declarations: str) -> tuple[str, ...]:
    """Return the scripts of the corpus that bind and define a query, behind `declarations` where they have none."""
    scripts: list[str] = []
    for text in corpus():
        whole = text if _DECLARES.search(text) else declarations + text
        try:
            if bind_script(whole).queries:
                scripts.append(whole)
        except PenstockError:
            continue
    return tuple(scripts)


def mutant(seed: int, declarations: str) -> str:
    """Return a changed script, the same for the same seed; one that declares nothing stands behind `declarations`."""
    draw = random.Random(seed)
    if draw.random() < BY_GRAMMAR:
        scripts = right(declarations)
        changed = recombined(draw.choice(scripts), draw, draw.choices(scripts, k=5))
        if changed is not None:
            return changed
    text = damaged(draw.choice(corpus()), corpus(), draw)
    return text if _DECLARES.search(text) else declarations + text


def damaged(text: str, others: Sequence[str], draw: random.Random) -> str:
    """Return a text with a few words, and perhaps characters, changed. others: texts from which words are taken."""
    words = _WORD.findall(text)
    for _ in range(draw.choice((1, 1, 1, 1, 1, 2, 3))):
        _damage(words, others, draw)
    text = "".join(words)
    return _characters(text, draw) if draw.random() < 0.15 else text


def _damage(words: list[str], corpus: Sequence[str], draw: random.Random) -> None:
    if not words:
        return
    at, length = draw.randrange(len(words)), draw.choice((1, 1, 1, 2, 4, 9))
    form = draw.randrange(14)
    if form > 6:
        _exchange(words, at, corpus, draw)
    elif form == 0:
        del words[at : at + length]
    elif form == 1:
        words[at:at] = words[at : at + length] * draw.choice((1, 1, 2, 30))
    elif form == 2:
        words[at] = draw.choice(NASTY)
    elif form == 3:
        words.insert(at, f" {draw.choice(NASTY)} ")
    elif form == 4:
        other = draw.randrange(len(words))
        words[at], words[other] = words[other], words[at]
    else:
        words[at : at + (length if form == 5 else 0)] = _piece(draw.choice(corpus), draw)


def _exchange(words: list[str], at: int, corpus: Sequence[str], draw: random.Random) -> None:
    """Put a word of the same kind in the place of one: then most scripts can still be read, and mean something else."""
    kind = _kind(words[at])
    others = _WORD.findall(draw.choice(corpus)) if draw.random() < 0.3 else words
    alike = [word for word in others if _kind(word) == kind and word != words[at]]
    if alike:
        words[at] = draw.choice(alike)


def _kind(word: str) -> str:
    if word[0] in "'\"`":
        return word[0]
    return "number" if word.isdigit() else "WORD" if word.isupper() else "name" if word.isidentifier() else "sign"


def _piece(text: str, draw: random.Random) -> Sequence[str]:
    """Some words of another script."""
    words = _WORD.findall(text)
    start = draw.randrange(len(words))
    return [" ", *words[start : start + draw.choice((1, 2, 5, 15))], " "]


def _characters(text: str, draw: random.Random) -> str:
    characters = list(text)
    for _ in range(draw.choice((1, 1, 3))):
        if characters:
            at = draw.randrange(len(characters))
            characters[at : at + draw.choice((0, 1, 1))] = chr(
                draw.choice((draw.randrange(128), draw.randrange(0xD800)))
            )
    return "".join(characters)
