"""The random cases of the flavour `frequency` reach every combination that the property test is meant to try."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from penstock.language.queries import Count, DerivedSource, Duration, Extent, FrequencyClause, SelectQuery, WindowClause
from penstock.language.scripts.parse import parse_script
from penstock.language.statements import CreateQuery, CreateView
from penstock.testing.random.worlds import FLAVOURS, random_case, seeded_choices

FLAVOUR = next(flavour for flavour in FLAVOURS if flavour.name == "frequency")
#: Each combination comes some twenty times and more in 2,000 cases, which is what the soak tries.
CASES = 300
Combination = tuple[str, str, str, str]

COMBINATIONS = {
    *itertools.product(
        ("base", "answer", "RANGE in tuples", "RANGE in time"), ("tuples", "time"), ("whole", "partitioned"),
        ("outermost", "nested"),
    ),
}  # fmt: skip


def unit(length: Duration | Count | None) -> str:
    return "tuples" if isinstance(length, Count) else "time"


def combinations(node: object, nested: str = "outermost") -> Iterator[Combination]:
    """Of each FREQUENCY in a parsed query where it stands, in what it counts, how, and in which query."""
    if isinstance(node, SelectQuery) and node.frequency is not None:
        yield "answer", *counted(node.frequency), nested
    if isinstance(node, WindowClause) and node.frequency is not None:
        place = "base" if node.extent is None else f"RANGE in {unit(node.length)}"
        if node.extent in (None, Extent.RANGE, Extent.ROWS):
            every, how = counted(node.frequency)
            yield place, every, "partitioned" if node.partition else how, nested
    for child in children(node):
        inside = isinstance(node, DerivedSource) and not isinstance(child, WindowClause)
        yield from combinations(child, "nested" if inside else nested)


def counted(frequency: FrequencyClause) -> tuple[str, str]:
    return unit(frequency.every), "partitioned" if frequency.partition else "whole"


def children(node: object) -> Iterator[object]:
    """The parts of a parsed query that may hold a FREQUENCY; subqueries in expressions are left out."""
    if is_dataclass(node):
        for field in fields(node):
            value = getattr(node, field.name)
            yield from value if isinstance(value, tuple) else (value,)


def test_the_generator_reaches_every_combination() -> None:
    found: set[Combination] = set()
    for seed in range(CASES):
        case = random_case(seeded_choices(seed), FLAVOUR)
        for statement in parse_script("\n".join(case.statements)).statements:
            if isinstance(statement, CreateQuery | CreateView):
                nested = "nested" if isinstance(statement, CreateView) else "outermost"
                found.update(combinations(statement.query, nested))
    assert found == COMBINATIONS
