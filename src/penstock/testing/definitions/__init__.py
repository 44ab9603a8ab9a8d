"""The meaning of every operator, as plain definitions over small bags [semantics 2 and 4].

A *stream* is denoted by its bag of (timestamp, tuple); a *relation* by a function that returns the bag R(τ), together
with the instants at which R may change. Nothing is incremental. A new operator is one more `denote.register`; a test
fails for an operator without one.
"""

from penstock.testing.definitions import (
    coalesce,
    frequency,
    frequent,
    results,
    semi_and_outer_joins,
    sessions,
    sets,
    shed,
    until_next,
    window_sample,
)
from penstock.testing.definitions.base import (
    Bag,
    Relation,
    Shards,
    Stream,
    World,
    denote,
    first_instant,
    minus,
    relation,
    steps,
    values_of,
    windowed,
)
from penstock.testing.definitions.core import validity
from penstock.testing.definitions.nonretroactive import elements
from penstock.testing.definitions.relations import content
from penstock.testing.definitions.rowwindow import last_rows

__all__ = [
    "Bag",
    "Relation",
    "Shards",
    "Stream",
    "World",
    "coalesce",
    "content",
    "denote",
    "elements",
    "first_instant",
    "frequency",
    "frequent",
    "last_rows",
    "minus",
    "relation",
    "results",
    "semi_and_outer_joins",
    "sessions",
    "sets",
    "shed",
    "steps",
    "until_next",
    "validity",
    "values_of",
    "window_sample",
    "windowed",
]
