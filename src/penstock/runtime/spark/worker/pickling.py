"""Pickling of plans for other processes of this machine, with user code that they cannot import."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from pyspark import cloudpickle


def pickled(value: object) -> bytes:
    """Return the pickle of a value. Functions and classes that cannot be imported are in it by value."""
    data: bytes = cloudpickle.dumps(value)
    return data


def pickled_beside(value: object, there: Mapping[int, object]) -> bytes:
    """Return the pickle of a value without objects that its reader has.

    Args:
        there: by `id` of such an object, its name.
    """

    class Beside(cloudpickle.Pickler):
        def persistent_id(self, obj: object) -> object:
            return there.get(id(obj))

    file = io.BytesIO()
    Beside(file).dump(value)
    return file.getvalue()


def unpickled_beside(data: bytes, found: Callable[[Any], object]) -> Any:
    """Return the value that `pickled_beside` wrote. found: returns the object of a name."""

    class Beside(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> object:
            return found(pid)

    return Beside(io.BytesIO(data)).load()
