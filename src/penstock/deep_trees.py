"""Work over deep trees, on a stack that is large enough however much of its own stack the caller has used.

Scripts, plans and expressions are trees, and the code that reads them is recursive. Their depth is limited
(`language/limits.py`), but a caller deep in calls has less stack left than such a tree needs.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.errors import PenstockError

P = ParamSpec("P")
T = TypeVar("T")

#: The depth of calls on a deep stack, and its bytes: a call that goes through the interpreter's C code takes about 1
#: KB, so that the limit is reached long before the end of the stack.
CALLS, STACK_BYTES = 60_000, 256 * 2**20

_local = threading.local()
_lock = threading.Lock()
_users = 0
_usual = sys.getrecursionlimit()


def deep(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate `function` to be repeated on a deep stack where the caller's own is too small. It must have no effect
    but its result. Raises PenstockError P0105 where even the deep stack is too small."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if getattr(_local, "deep", False):
            return function(*args, **kwargs)
        if _has_room():
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if not _of_recursion(error):
                    raise
        return on_deep_stack(lambda: function(*args, **kwargs))

    return run


def on_deep_stack(work: Callable[[], T]) -> T:
    """Return the result of `work` on a deep stack. Raises PenstockError P0105 where even that one is too small."""
    if getattr(_local, "deep", False):
        return work()
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        _local.deep = True
        try:
            results.append(work())
        except BaseException as error:  # the caller raises it
            errors.append(error)

    _raise_limit()
    try:
        thread = _started(functools.partial(contextvars.copy_context().run, body))
        thread.join()
    finally:
        _restore_limit()
    if errors and _of_recursion(errors[0]):
        raise PenstockError("P0105", "this is nested too deeply", hint="divide it into parts") from None
    if errors:
        raise errors[0]
    return results[0]


def _has_room() -> bool:
    """Return whether the caller has most of an ordinary stack left. Some libraries turn a RecursionError into another
    error, or attribute it to the text they read: so work does not begin close to the end."""
    try:
        sys._getframe(sys.getrecursionlimit() * 2 // 5)
    except ValueError:
        return True
    return False


def _of_recursion(error: BaseException) -> bool:
    """Return whether `error` is a RecursionError, or was raised for one."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, RecursionError):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


def _started(body: Callable[[], None]) -> threading.Thread:
    """Return a thread with a deep stack. It is a daemon: an interrupted caller does not wait for it."""
    with _lock:
        before = threading.stack_size(STACK_BYTES)
        try:
            thread = threading.Thread(target=body, name="penstock-deep", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    return thread


def _raise_limit() -> None:
    """Raise the recursion limit, which is one for all threads, while any deep stack is in use."""
    global _users, _usual
    with _lock:
        if _users == 0:
            _usual = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_usual, CALLS))
        _users += 1


def _restore_limit() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            with contextlib.suppress(RecursionError):  # another thread uses more by now: then the limit stays
                sys.setrecursionlimit(_usual)
