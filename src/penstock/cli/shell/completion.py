"""What may follow the text before the cursor: keywords, names of the catalog, functions, commands and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.cli.shell.commands import COMMANDS
from penstock.cli.shell.declared import Declared, quoted
from penstock.cli.shell.shell import FORMATS
from penstock.expressions.calls.functions import known_functions
from penstock.language.keywords import KEYWORDS
from penstock.language.quotes import quoted_parts

_WORD = re.compile(r"[^\W\d]\w*$")
_QUALIFIER = re.compile(r"(?:`((?:[^`]|``)+)`|([^\W\d]\w*))\.$")
_FILES = 200


class Candidate(NamedTuple):
    """A completion. length: of the text before the cursor that it replaces; what: its kind, for people."""

    text: str
    length: int
    what: str


def candidates(before: str, declared: Declared) -> list[Candidate]:
    """Return the completions of the text before the cursor."""
    if before.lstrip().startswith("\\"):
        return list(_of_commands(before.lstrip(), declared))
    parts = list(quoted_parts(before))
    part = parts[-1] if parts and parts[-1].end is None else None
    in_comment = bool(parts) and parts[-1].mark == "--" and parts[-1].end == len(before)
    if in_comment or (part is not None and part.mark != "`"):
        return []
    start = len(before) if part is None else part.start
    word = before[start:] if part is not None else (match[0] if (match := _WORD.search(before)) else "")
    ahead = before[: len(before) - len(word)]
    qualifier = _QUALIFIER.search(ahead)
    if qualifier is not None:
        qualifying = (qualifier[1] or qualifier[2]).replace("``", "`")
        return _matching(word, [(column, "column") for column in _columns(declared, qualifying)])
    if not word:
        return []
    names = list(_names(declared))
    if part is None:
        names += [(keyword, "keyword") for keyword in KEYWORDS]
        names += [(function, "function") for function in known_functions()]
        names += declared.functions
    return _matching(word, names)


def _matching(word: str, names: Iterable[tuple[str, str]]) -> list[Candidate]:
    """Return the names that begin with `word`, which may have an opening backtick."""
    prefix = word.removeprefix("`").replace("``", "`").lower()
    candidates_by_text: dict[str, Candidate] = {}
    for name, what in names:
        if name.lower().startswith(prefix):
            text = name if what in ("keyword", "function") else quoted(name)
            if word.startswith("`") and not text.startswith("`"):
                text = f"`{text}`"
            candidates_by_text.setdefault(text, Candidate(text, len(word), what))
    return sorted(candidates_by_text.values(), key=lambda c: (c.what in ("keyword", "function"), c.text.lower()))


def _names(declared: Declared) -> Iterator[tuple[str, str]]:
    for one in declared.objects.values():
        yield one.name, one.kind
    for one in declared.objects.values():
        yield from ((column, "column") for column in one.column_names)


def _columns(declared: Declared, name: str) -> tuple[str, ...]:
    """Return the columns of a declaration; those of all where `name` is none, as it may be an alias."""
    one = declared.objects.get(name.lower())
    if one is not None:
        return one.column_names
    return tuple(dict.fromkeys(column for one in declared.objects.values() for column in one.column_names))


def _of_commands(text: str, declared: Declared) -> Iterator[Candidate]:
    word, space, argument = text.partition(" ")
    if not space:
        yield from (Candidate(name, len(word), c.what) for name, c in COMMANDS.items() if name.startswith(word))
    elif word == "\\d":
        kinds = ("stream", "relation", "view", "query")
        yield from _matching(argument, [(name, what) for name, what in _names(declared) if what in kinds])
    elif word == "\\format":
        yield from (Candidate(f.value, len(argument), "format") for f in FORMATS if f.value.startswith(argument))
    elif word in ("\\x", "\\timing"):
        yield from (Candidate(one, len(argument), "switch") for one in ("off", "on") if one.startswith(argument))
    elif word in ("\\i", "\\o", "\\e"):
        yield from _files(argument)


def _files(start: str) -> Iterator[Candidate]:
    path = Path(start).expanduser()
    folder, prefix = (path, "") if start.endswith("/") or not start else (path.parent, path.name)
    try:
        entries = sorted(folder.iterdir())[:_FILES]
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(prefix) and (prefix or not entry.name.startswith(".")):
            name = entry.name + ("/" if entry.is_dir() else "")
            yield Candidate(name, len(prefix), "file")
