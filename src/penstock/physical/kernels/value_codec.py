"""Python values as bytes and back, by their structure and never by code: states of user-defined aggregates are stored
in checkpoints, and reading a checkpoint must not execute code (docs/decisions/security.md).

Numbers, text, bytes, dates, Python's containers, NumPy and Arrow values are restored equal and with the same type.
Anything else is a TypeError when it is written.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.storage.documents import Json

#: Allowed default factories of a defaultdict.
_FACTORIES: dict[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (int, float, str, bytes, list, dict, set, tuple, Decimal, Counter, deque)
}


def pack(value: object) -> bytes:
    """Encode a value. Raises TypeError for an unsupported one."""
    return json.dumps(_as_json(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def unpack(data: bytes) -> Any:
    """Return the inverse of `pack`. Raises ValueError for bytes that `pack` did not write."""
    try:
        return _made(json.loads(data.decode("utf-8", "surrogatepass")))
    except (KeyError, TypeError, IndexError, AttributeError, pa.ArrowException) as error:
        raise ValueError(f"a value that cannot be read back: {error}") from error


def _as_json(value: object) -> Json:
    """Convert to JSON: plain values unchanged, anything else as [its type, its parts]."""
    kind = type(value)
    # Not of a subclass: its type would be lost.
    if value is None or (isinstance(value, bool | int | float | str) and kind in (bool, int, float, str)):
        return value
    write = _WRITERS.get(kind)
    if write is not None:
        return [kind.__name__, *write(value)]
    if isinstance(value, np.generic):
        return ["generic", *_array(np.asarray(value))]
    if isinstance(value, (pa.Array, pa.Scalar)):
        array = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value
        return ["Scalar" if isinstance(value, pa.Scalar) else "Array", _ipc(array)]
    raise TypeError(f"cannot keep a {kind.__module__}.{kind.__qualname__}")


def _made(stored: Json) -> object:
    if not isinstance(stored, list):
        return stored
    read = _READERS.get(stored[0])
    if read is None:
        raise ValueError(f"a value of an unknown kind {stored[0]!r}")
    return read(*stored[1:])


def _each(values: Iterable[object]) -> list[Json]:
    return [[_as_json(value) for value in values]]


def _pairs(values: Mapping[object, object]) -> list[Json]:
    return [[[_as_json(key), _as_json(value)] for key, value in values.items()]]


def _defaults(values: defaultdict[object, object]) -> list[Json]:
    factory = values.default_factory
    if factory is not None and _FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
        raise TypeError(f"cannot keep a defaultdict of {factory!r}")
    return [None if factory is None else factory.__name__, *_pairs(values)]


def _array(values: npt.NDArray[np.generic]) -> list[Json]:
    if values.dtype.hasobject:
        raise TypeError("cannot keep a NumPy array of objects")
    descriptor = values.dtype.str if values.dtype.fields is None else values.dtype.descr
    return [descriptor, list(values.shape), _text(np.ascontiguousarray(values).tobytes())]


def _read_array(descriptor: str | list[list[str]], shape: list[int], data: str) -> npt.NDArray[np.generic]:
    fields = [tuple(field) for field in descriptor] if isinstance(descriptor, list) else descriptor
    return np.frombuffer(_bytes(data), np.dtype(fields)).reshape(shape).copy()


def _ipc(array: pa.Array) -> str:
    batch = pa.RecordBatch.from_arrays([array], names=["v"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _text(sink.getvalue().to_pybytes())


def _read_ipc(data: str) -> pa.Array:
    with pa.ipc.open_stream(_bytes(data)) as reader:
        (batch,) = reader
    return batch.column(0)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


_WRITERS: dict[type, Callable[[Any], list[Json]]] = {
    list: _each,
    tuple: _each,
    set: _each,
    frozenset: _each,
    deque: lambda v: [v.maxlen, *_each(v)],
    dict: _pairs,
    OrderedDict: _pairs,
    Counter: _pairs,
    defaultdict: _defaults,
    bytes: lambda v: [_text(v)],
    bytearray: lambda v: [_text(bytes(v))],
    complex: lambda v: [v.real, v.imag],
    Decimal: lambda v: [str(v)],
    Fraction: lambda v: [v.numerator, v.denominator],
    datetime.date: lambda v: [v.isoformat()],
    datetime.time: lambda v: [v.isoformat()],
    datetime.datetime: lambda v: [v.isoformat()],
    datetime.timedelta: lambda v: [v.days, v.seconds, v.microseconds],
    np.ndarray: _array,
}


def _dictionary(made: Callable[[], dict[object, Any]]) -> Callable[..., dict[object, Any]]:
    def read(pairs: list[tuple[Json, Json]]) -> dict[object, Any]:
        found = made()
        for key, value in pairs:
            found[_made(key)] = _made(value)
        return found

    return read


_READERS: dict[str, Callable[..., object]] = {
    "list": lambda values: [_made(v) for v in values],
    "tuple": lambda values: tuple(_made(v) for v in values),
    "set": lambda values: {_made(v) for v in values},
    "frozenset": lambda values: frozenset(_made(v) for v in values),
    "deque": lambda most, values: deque((_made(v) for v in values), most),
    "dict": _dictionary(dict),
    "OrderedDict": _dictionary(OrderedDict),
    "Counter": _dictionary(Counter),
    "defaultdict": lambda name, pairs: defaultdict(name and _FACTORIES[name], _dictionary(dict)(pairs)),
    "bytes": _bytes,
    "bytearray": lambda text: bytearray(_bytes(text)),
    "complex": complex,
    "Decimal": Decimal,
    "Fraction": Fraction,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "timedelta": datetime.timedelta,
    "ndarray": _read_array,
    "generic": lambda *parts: _read_array(*parts)[()],
    "Array": _read_ipc,
    "Scalar": lambda data: _read_ipc(data)[0],
}
