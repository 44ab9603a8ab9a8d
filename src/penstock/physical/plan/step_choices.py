"""What can be chosen of a step in place of the planner, and what is: the order of a join, kinds of synopses, sharing.

The choices themselves are those of a query (`algebra/nodes/query.py`); a step lists those that it has, so that they can
be shown and set where it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

#: The attributes of choices. That of the kind of a synopsis is followed by its part.
JOIN_ORDER, SHARED, KIND = "join_order", "shared", "kind."


@dataclass(frozen=True)
class SynopsisKinds:
    """A part of the state of an operator. kind: the class that it has; possible: those that it could have."""

    kind: str
    possible: tuple[str, ...]


@dataclass(frozen=True)
class KindChoice:
    """The kind of a synopsis of a step.

    Args:
        part: the part of the state.
        operator, attribute: what the choice goes by.
        kind: the class that it has.
        possible: those that can be chosen.
        is_chosen: it is not the planner's.
    """

    part: str
    operator: str
    attribute: str
    kind: str
    possible: tuple[str, ...]
    is_chosen: bool = False


@dataclass(frozen=True)
class JoinOrder:
    """The order in which a join of many inputs takes them.

    Args:
        operator: what the choice goes by.
        names: of the inputs, as they were written.
        order: positions of the inputs.
        is_chosen: it is not the planner's.
    """

    operator: str
    names: tuple[str, ...]
    order: tuple[int, ...]
    is_chosen: bool = False

    @property
    def text(self) -> str:
        """Return the order as it is written."""
        return order_text([self.names[i] for i in self.order])


@dataclass(frozen=True)
class StepChoices:
    """What can be chosen of a step.

    Args:
        operator: what its choices go by.
        owner: the query of a step that is not shared with others; empty for a step that may be.
        order: of the join that it is, or is a part of.
    """

    operator: str = ""
    owner: str = ""
    order: JoinOrder | None = None
    kinds: tuple[KindChoice, ...] = field(default=())


#: By a short word, the class of a synopsis that it stands for.
_WORDS = {
    "hash": "HashJoinIndex",
    "runs": "SortedRuns",
    "ranges": "IntervalRuns",
    "fifo": "FifoQueue",
    "calendar": "CalendarQueue",
    "list": "ListQueue",
}


def kind_named(word: str, possible: Iterable[str]) -> str | None:
    """Return the kind that a word names, in any case of letters; None for none of the `possible` ones."""
    lower = word.strip().lower()
    lower = _WORDS.get(lower, lower).lower()
    return next((kind for kind in possible if kind.lower() == lower), None)


def words_of(kinds: Iterable[str]) -> str:
    """Return how kinds are written, for messages."""
    short = {kind: word for word, kind in _WORDS.items()}
    return ", ".join(f"{kind} ({short[kind]})" if kind in short else kind for kind in kinds)


def order_text(names: Sequence[str]) -> str:
    """Return names of inputs in one line; those that are no plain words are in backticks."""
    return ", ".join(name if name.replace("_", "a").replace("#", "a").isalnum() else _quoted(name) for name in names)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def order_named(text: str, names: Sequence[str]) -> tuple[int, ...] | None:
    """Return the order of inputs that a text names, in any case of letters; None where it is no order of all."""
    written = [word.lower() for word in _words(text)]
    known = [name.lower() for name in names]
    if sorted(written) != sorted(known) or len(set(known)) < len(known):
        exact = _words(text)
        return tuple(map(list(names).index, exact)) if sorted(exact) == sorted(names) else None
    return tuple(map(known.index, written))


def _words(text: str) -> list[str]:
    """Return the names of a list that is separated by commas, without backticks around them."""
    words, word, is_quoted, i = [], "", False, 0
    while i < len(text):
        letter = text[i]
        if letter == "`" and is_quoted and text[i + 1 : i + 2] == "`":
            word, i = word + "`", i + 1
        elif letter == "`":
            is_quoted = not is_quoted
        elif letter == "," and not is_quoted:
            words.append(word)
            word = ""
        elif is_quoted or not letter.isspace():
            word += letter
        i += 1
    return [*words, word]


@dataclass(frozen=True)
class OpenChoice:
    """What can be chosen of a plan.

    Args:
        operator, attribute: what it goes by.
        value: as it is now.
        is_chosen: that is not the planner's.
        possible: the kinds, or the names of the inputs; empty for a choice between true and false.
    """

    operator: str
    attribute: str
    value: str
    is_chosen: bool
    possible: tuple[str, ...] = ()

    def normal(self, text: str) -> str | None:
        """Return a value as it is kept; None for one that cannot be chosen."""
        if self.attribute == JOIN_ORDER:
            order = order_named(text, self.possible)
            return None if order is None else order_text([self.possible[i] for i in order])
        if self.attribute == SHARED:
            lower = text.strip().lower()
            return lower if lower in ("true", "false") else None
        return kind_named(text, self.possible)

    @property
    def words(self) -> str:
        """Return what can be chosen, for messages."""
        if self.attribute == JOIN_ORDER:
            return f"an order of all of its inputs {order_text(self.possible)}, separated by commas"
        return "true or false" if self.attribute == SHARED else words_of(self.possible)


def open_choices(one: StepChoices, is_kept: bool = True) -> list[OpenChoice]:
    """Return what can be chosen of a step. is_kept: it may be shared at all."""
    found = [OpenChoice(kind.operator, kind.attribute, kind.kind, kind.is_chosen, kind.possible) for kind in one.kinds]
    if one.order is not None:
        order = one.order
        found.append(OpenChoice(order.operator, JOIN_ORDER, order.text, order.is_chosen, order.names))
    if one.operator and is_kept:
        found.append(OpenChoice(one.operator, SHARED, str(not one.owner).lower(), bool(one.owner)))
    return found
