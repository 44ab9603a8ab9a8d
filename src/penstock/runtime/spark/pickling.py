"""Pickling of plans for other processes of this machine, with user code that they cannot import."""

from __future__ import annotations

from pyspark import cloudpickle


def pickled(value: object) -> bytes:
    """Return the pickle of a value. Functions and classes that cannot be imported are in it by value."""
    data: bytes = cloudpickle.dumps(value)
    return data
