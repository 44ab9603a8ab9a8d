"""Choices of a plan as data, by operator: `{"<operator>": {"join_order": "b, a, c", "kind.left": "SortedRuns"}}`.

They stand in a plan as data (`attributes`), and in the attribute `plan` of a query. Here they are read and written;
whether a plan has the operator is known where it is planned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from penstock.algebra.nodes.query import PlanChoice
from penstock.errors import PenstockError
from penstock.language.plan_form import Part, fault, parsed, printed
from penstock.language.queries import PlanQuery, WholeQuery

#: By operator and attribute what is chosen; None takes a choice back.
Chosen: TypeAlias = Mapping[tuple[str, str], str | None]
#: The text for no choices.
NO_CHOICES = "none"
#: The values with which a choice is the planner's again.
_DEFAULT = "default"


def read_choices(part: Part) -> dict[tuple[str, str], str | None]:
    """Return the choices of a part of a document. Raises PenstockError P0106."""
    found: dict[tuple[str, str], str | None] = {}
    if not isinstance(part.value, dict):
        part.object(())
    for operator, attributes in part.value.items():
        below = Part(attributes, part.at(operator))
        if not isinstance(attributes, dict):
            below.object(())
        for attribute, value in attributes.items():
            found[operator, attribute] = _value(Part(value, below.at(attribute)))
    return found


def _value(part: Part) -> str | None:
    if part.value is None:
        return None
    if isinstance(part.value, bool):
        return str(part.value).lower()
    text = part.text()
    if not text.strip():
        raise fault(part.pointer, "this choice is empty", hint="null takes a choice back")
    return None if text.strip().lower() == _DEFAULT else text


def choices_in(text: str) -> dict[tuple[str, str], str | None]:
    """Return the choices of a text. Raises PenstockError P0105, P0106."""
    return {} if text.strip().lower() in ("", NO_CHOICES) else read_choices(parsed(text))


def choices_of_plan(text: str) -> dict[tuple[str, str], str | None]:
    """Return the choices of a plan as data that has been read."""
    document = parsed(text).value
    return read_choices(Part(document.get("attributes", {}), "/attributes"))


def as_choices(chosen: Chosen) -> tuple[PlanChoice, ...]:
    """Return choices as a query has them, in order."""
    return tuple(PlanChoice(*key, value) for key, value in sorted(chosen.items()) if value is not None)


def by_operator(choices: Iterable[PlanChoice]) -> dict[str, dict[str, str]]:
    """Return choices as data."""
    found: dict[str, dict[str, str]] = {}
    for one in sorted(choices):
        found.setdefault(one.operator, {})[one.attribute] = one.value
    return found


def choices_text(chosen: Chosen) -> str:
    """Return choices as text; `none` for no choice. Those that are taken back are left out."""
    data = by_operator(as_choices(chosen))
    return printed(data) if data else NO_CHOICES


def normal_choices(text: str) -> str:
    """Return the text of choices in the form in which it is kept; what it takes back stays in it. Raises ValueError."""
    try:
        found = choices_in(text)
    except PenstockError as error:
        raise ValueError(f"choices of a plan as JSON, or '{NO_CHOICES}': {error.message}") from None
    if not found:
        return NO_CHOICES
    data: dict[str, dict[str, str | None]] = {}
    for (operator, attribute), value in sorted(found.items()):
        data.setdefault(operator, {})[attribute] = value
    return json.dumps(data, ensure_ascii=False)


def merged_choices(before: str, text: str) -> str:
    """Return the choices of a query after those of a text are set: what it does not name stays, and `none` takes all
    back. Both are in normal form."""
    if text == NO_CHOICES:
        return NO_CHOICES
    return choices_text({**choices_in(before), **choices_in(text)})


def choices_difference(before: str, after: str) -> str:
    """Return the text that leads from some choices to others."""
    if after == NO_CHOICES:
        return NO_CHOICES
    choices = choices_in(after)
    gone = dict.fromkeys(choices_in(before).keys() - choices.keys())
    data: dict[str, dict[str, str | None]] = {}
    for (operator, attribute), value in sorted({**gone, **choices}.items()):
        data.setdefault(operator, {})[attribute] = value
    return json.dumps(data, ensure_ascii=False)


def attributes_with_plan(tree: WholeQuery, attributes: dict[str, str]) -> dict[str, str]:
    """Return the attributes of a query with the choices of the plan as data that it is made of; those that are written
    beside it come first."""
    chosen = choices_text(choices_of_plan(tree.text)) if isinstance(tree, PlanQuery) else NO_CHOICES
    if "plan" in attributes:
        chosen = merged_choices(chosen, attributes["plan"])
    return without_no_choices({**attributes, "plan": chosen})


def without_no_choices(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a query; one whose plan is the planner's has no attribute `plan`, however it came to
    that, so that declarations with the same meaning are equal."""
    return {name: value for name, value in attributes.items() if (name, value) != ("plan", NO_CHOICES)}
