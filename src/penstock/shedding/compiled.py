"""Compile a loop once, whatever the kinds of its arguments that make no difference to it.

numba compiles a function anew for every combination of argument types, and to numba a read-only array, like every array
that Arrow owns, has another type than one that may be written to. A loop over eight arrays that it only reads could be
compiled 256 times, for seconds each and in the middle of a run: whenever a column comes from Arrow that was computed
before, or the other way round. In the same way a number that another compiled loop passes as a literal has a type of
its own: 0, 1 and a variable are three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
from numba.core import sigutils, types

import penstock.compilation  # noqa: F401 - sets where compiled loops are kept


def compiled(
    *, reads: str = "", counted: bool = True, beside: bool = False, error_model: str = "python"
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like `numba.njit(cache=True)` that takes some arrays as read-only whatever they are, and every
    literal as a value.

    Args:
        reads: names of parameters, separated by blanks: arrays that the function only reads.
        counted: whether references to arrays are counted, which a function that makes arrays needs.
        beside: whether other threads run Python meanwhile.
        error_model: as numba's: whether a division by zero raises an error, or gives what NumPy gives.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        options = {"error_model": error_model, "nogil": beside, **({} if counted else {"_nrt": False})}
        dispatcher = nb.njit(cache=True, no_cfunc_wrapper=True, **options)(function)
        if nb.config.DISABLE_JIT:
            return dispatcher
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        read = {names.index(name) for name in reads.split()}
        compile_exactly = dispatcher.compile

        def compile_widest(signature: Any) -> Any:
            arguments, result = sigutils.normalize_signature(signature)
            plain = [types.unliteral(kind) for kind in arguments]  # type: ignore[attr-defined]  # numba has no type hints
            widest = tuple(_read_only(kind) if i in read else kind for i, kind in enumerate(plain))
            entry_point = compile_exactly(widest if result is None else result(*widest))
            # From now on a call with these types is found at once: without it each would come here again, for 70 µs.
            # The widest types are known from the compilation: known twice, they would be ambiguous, and each call with
            # them would come here, too, and make one more.
            if tuple(plain) != widest:
                dispatcher._insert([kind._code for kind in plain], entry_point, False)
            return entry_point

        # A first call from Python and one from another compiled function both come here.
        dispatcher.compile = compile_widest
        return dispatcher

    return decorate


def _read_only(kind: Any) -> Any:
    """Return the type of arrays to which numba converts those of this one without a copy."""
    return kind.copy(readonly=True) if isinstance(kind, types.Array) else kind


#: A loop without counting references. A compiled function otherwise counts, atomically, those to every array
#: it is passed, at each call: more than half of the time of an arrival. Neither it nor what it calls may make arrays.
loop = compiled(counted=False)

#: The same, but compiled anew for each constant that a loop passes to it, as the heaps are for each heap.
loop_per_constant = nb.njit(cache=True, no_cfunc_wrapper=True, _nrt=False)
