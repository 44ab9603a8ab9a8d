"""The denotation of every operator: what it means, as plain definitions over small bags [semantics 2 and 4].

A *stream* is denoted by its bag of (timestamp, tuple); a *relation* by a function that returns the bag R(τ), together
with the instants at which R may change. Nothing is incremental. A new operator is one more `denote.register`; a test
fails for an operator without one.
"""

from penstock.testing.denotation import (
    coalesce,
    frequency,
    frequent,
    matching,
    results,
    sessions,
    sets,
    shed,
    until_next,
    window_sample,
)
from penstock.testing.denotation.base import (
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
from penstock.testing.denotation.core import validity
from penstock.testing.denotation.nonretroactive import elements
from penstock.testing.denotation.relations import content
from penstock.testing.denotation.rowwindow import last_rows

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
    "matching",
    "minus",
    "relation",
    "results",
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
