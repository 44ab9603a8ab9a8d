"""User-defined functions and aggregates in Python: their definition, calls, shipping and identity.

A function receives one Arrow array per argument and returns an array (or anything `pa.array` accepts) of the same
length; if its signature has a keyword `rows`, it also receives their number. An aggregate has `init() -> state`,
`update(state, *values) -> state`, `final(state) -> value`, and optionally `merge(state, state) -> state` and
`expire(state, *values) -> state` `[ops]`; `update`, `merge` and `expire` may modify and return their first argument.

Contract: a process loads shipped definitions by `module:attr` where that can be imported, else by value. Equal
definitions have equal tokens in every process, so that plans that use them are shared and resumed by fingerprint.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import PenstockError, nearest
from penstock.expressions.coercion import BOOLEAN, cast_to, implicit, is_atomic, misfit
from penstock.expressions.nodes import AggregateCall, Expression
from penstock.loading import lazy_pandas, modules
from penstock.types import type_name

NEEDED, _OPTIONAL = ("init", "update", "final"), ("merge", "expire")


@dataclass(frozen=True, repr=False)
class UserDefined:
    """A user's definition.

    `name`: as declared; `returns`: the type of its values; `body`: the callable, or the object with the methods;
    `parameters`: types that arguments are cast to, None for any; `reference`: `module:attr` if one was written.
    """

    name: str
    returns: pa.DataType
    body: Any
    parameters: tuple[pa.DataType, ...] | None = None
    volatile: bool = False
    reference: str | None = None
    kind: ClassVar[str] = ""

    @property
    def key(self) -> str:
        return self.name.lower()

    def __repr__(self) -> str:
        """Return a token that is the same in every process for the same definition."""
        types = None if self.parameters is None else ", ".join(map(str, self.parameters))
        return f"{self.key}({types}) {self.returns} {self.volatile} {self.where or code_hash(self.body)}"

    @property
    def where(self) -> str | None:
        """Return the `module:attr` by which any process can import the body, or None."""
        return self.reference or (self.body.where if isinstance(self.body, MissingBody) else _reference(self.body))

    def __reduce__(self) -> tuple[object, ...]:
        where, body = self.where, self.body
        rest = (self.parameters, self.volatile, self.reference)
        if where is None:
            return type(self), (self.name, self.returns, body, *rest)
        folder = body.folder if isinstance(body, MissingBody) else _folder(where)
        methods = tuple(name for name in _OPTIONAL if callable(getattr(body, name, None)))
        return _found, (type(self), where, folder, self.name, self.returns, *rest, methods)

    def check_count(self, given: int) -> None:
        """Check the number of arguments.

        Raises:
            PenstockError: P0204, the definition does not accept that many.
        """
        if self.parameters is None:
            if self._accepts(given):
                return
            raise PenstockError("P0204", f"{self.name} does not take {given} argument{'s' * (given != 1)}")
        expected = len(self.parameters)
        if given != expected:
            raise PenstockError("P0204", f"{self.name} takes {expected} argument{'s' * (expected != 1)}, not {given}")

    def _accepts(self, given: int) -> bool:
        return _binds(self.body, given)

    def arguments(self, given: Sequence[Expression]) -> tuple[Expression, ...]:
        """Return the arguments `given` with implicit casts.

        Raises:
            PenstockError: P0203, P0204.
        """
        self.check_count(len(given))
        if self.parameters is None:
            return tuple(given)
        return tuple(implicit(a, t, self.name) for a, t in zip(given, self.parameters, strict=True))


@dataclass(frozen=True, repr=False)
class UserFunction(UserDefined):
    """A scalar function. volatile: two calls with equal arguments may differ, so no rule moves, merges or folds it."""

    kind: ClassVar[str] = "FUNCTION"

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.body(*arguments, **keywords)


@dataclass(frozen=True, repr=False)
class UserAggregate(UserDefined):
    """An aggregate. Its value over a group may depend neither on the order of the rows, nor on how `update` and `merge`
    combined them.
    """

    kind: ClassVar[str] = "AGGREGATE"

    @property
    def merges(self) -> bool:
        return callable(getattr(self.body, "merge", None))

    @property
    def expires(self) -> bool:
        return callable(getattr(self.body, "expire", None))

    def _accepts(self, given: int) -> bool:
        return _binds(self.body.update, given + 1)


@dataclass(frozen=True, eq=False)
class UserCall(Expression):
    """A user-defined function of each row."""

    function: UserFunction
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, eq=False)
class UserAggregateCall(AggregateCall):
    """A user-defined aggregate; `function` is its name in upper case."""

    user: UserAggregate | None = None

    @property
    def definition(self) -> UserAggregate:
        assert self.user is not None
        return self.user


def build_user_call(user: UserFunction, arguments: Sequence[Expression]) -> Expression:
    """Return the call of a user-defined function.

    Raises:
        PenstockError: P0203, P0204.
    """
    return UserCall(user.returns, user, user.arguments(arguments))


def build_user_aggregate(
    user: UserAggregate,
    arguments: Sequence[Expression],
    distinct: bool = False,
    filter: Expression | None = None,  # noqa: A002
) -> AggregateCall:
    """Return the call of a user-defined aggregate.

    Raises:
        PenstockError: P0203, P0204.
    """
    if filter is not None:
        filter = cast_to(filter, BOOLEAN)  # noqa: A001 - a bare NULL
    given = user.arguments(arguments)
    if not given:
        raise PenstockError("P0204", f"{user.name} is an aggregate: it needs an argument")
    if not all(is_atomic(a.type) for a in given):
        raise misfit(user.name, [a.type for a in given])
    return UserAggregateCall(user.returns, user.name.upper(), given, distinct, filter, user=user)


# -- loading them ------------------------------------------------------------------------------------------------------


def load(reference: str, folder: str | None = None) -> object:
    """Return the object that `module:attr` names.

    Args:
        reference: `module:attr`.
        folder: where its module is looked up first; by default beside the script.

    Raises:
        PenstockError: P0221, with the message of the import.
    """
    module_name, colon, path = reference.partition(":")
    if not colon or not module_name or not path:
        raise PenstockError("P0221", f"{reference!r} does not name a function", hint="write 'module:name'")
    folders = [folder] if folder is not None else list(modules.BESIDE)
    other = modules.stranger(module_name, folders)
    if other is not None:
        raise PenstockError(
            "P0221",
            f"module {module_name} has been imported from {other} for another function, so that of "
            f"{' or '.join(folders) or 'this process'} cannot be",
            hint="rename one of the modules",
        )
    lazy_pandas.recognise()
    try:
        with modules.first(folders, module_name):
            module: Any = importlib.import_module(module_name)
    except BaseException as error:  # running the module may raise anything
        if isinstance(error, KeyboardInterrupt):
            raise
        raise PenstockError(
            "P0221",
            f"module {module_name} cannot be imported: {type(error).__name__}: {error}",
            hint=modules.advice(module_name, error),
            cause=error,
        ) from error
    found = module
    for part in path.split("."):
        if not hasattr(found, part):
            names = [n for n in vars(module) if not n.startswith("_")] if found is module else []
            hint = modules.hidden(module_name, getattr(module, "__file__", None), folders) or nearest(path, names)
            raise PenstockError("P0221", f"module {module_name} has no {path}", hint=hint)
        found = getattr(found, part)
        if isinstance(found, ModuleType):
            message = f"{part} in {reference!r} is a module of its own"
            raise PenstockError("P0221", message, hint=f"write '{found.__name__}:name'")
    return found


def _binds(callable_: Any, given: int) -> bool:
    try:
        inspect.signature(callable_).bind(*[None] * given)
    except TypeError:
        try:
            return "rows" in inspect.signature(callable_).parameters and bool(
                inspect.signature(callable_).bind(*[None] * given, rows=0)
            )
        except TypeError:
            return False
    except ValueError:
        pass  # a function of C has no signature
    return True


# -- shipping them -----------------------------------------------------------------------------------------------------


def _found(
    kind: type[UserDefined],
    where: str,
    folder: str | None,
    name: str,
    returns: pa.DataType,
    parameters: tuple[pa.DataType, ...] | None,
    volatile: bool,
    reference: str | None,
    methods: tuple[str, ...] = (),
) -> Any:
    """Return a shipped definition by its reference.

    Args:
        folder: of the module in the process that shipped it.
        methods: those of an aggregate that it need not have.
    """
    rest = parameters, volatile, reference
    if folder is not None:
        modules.reachable(folder)
    body = load(where, folder)
    body = body.body if isinstance(body, UserDefined) else body
    return kind(name, returns, body() if isinstance(body, type) and kind is UserAggregate else body, *rest)


@dataclass(frozen=True)
class MissingBody:
    """Stands for what a module defined that cannot be imported any more: it has the same methods and identity, and each
    call raises the error of the import."""

    where: str
    folder: str | None
    methods: tuple[str, ...]
    error: PenstockError

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise self.error

    def __getattr__(self, name: str) -> Any:
        if name in self.methods:
            return self
        raise AttributeError(name)


class _WithoutModules(pickle.Unpickler):
    def __init__(self, content: bytes, persistent: Callable[[Any], object] | None) -> None:
        super().__init__(io.BytesIO(content))
        self._persistent = persistent

    def persistent_load(self, pid: Any) -> Any:
        return super().persistent_load(pid) if self._persistent is None else self._persistent(pid)

    def find_class(self, module: str, name: str) -> Any:
        return _found_or_missing if (module, name) == (__name__, _found.__name__) else super().find_class(module, name)


def loads_without_modules(content: bytes, persistent: Callable[[Any], object] | None = None) -> Any:
    """Return what `pickle.loads` does; definitions whose modules cannot be imported have a `MissingBody`.

    Args:
        persistent: returns the object of a persistent id.
    """
    return _WithoutModules(content, persistent).load()


def _found_or_missing(
    kind: type[UserDefined], where: str, folder: str | None, name: str, returns: pa.DataType, *rest: Any
) -> Any:
    try:
        return _found(kind, where, folder, name, returns, *rest)
    except PenstockError as error:
        methods = (*NEEDED, *(rest[3] if len(rest) > 3 else ())) if kind is UserAggregate else ()
        return kind(name, returns, MissingBody(where, folder, methods, error), *rest[:3])


def _reference(body: object) -> str | None:
    """Return `module:attr` of a function, or of the class of an object, if importing it gives the same object."""
    named = body if hasattr(body, "__qualname__") else type(body)
    module, path = getattr(named, "__module__", None), getattr(named, "__qualname__", "<")
    if module in (None, "__main__", "builtins") or "<" in path:
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, UserDefined):
        found = found.body if named is body else type(found.body)
    return f"{module}:{path}" if found is named else None


def _folder(where: str) -> str | None:
    """Return the folder of the top package of `where`."""
    return modules.folder_of(where.partition(":")[0])


def code_hash(body: Any) -> str:
    """Return a digest of the code of a function or of the methods of an object, the same in every process."""
    parts = [body] if hasattr(body, "__code__") else [v for _, v in sorted(vars(type(body)).items())]
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        plain = getattr(part, "__func__", part)
        code = getattr(plain, "__code__", None)
        if code is not None:
            digest.update(_code_token(code).encode())
            held = [c.cell_contents for c in getattr(plain, "__closure__", None) or ()]
            digest.update(repr((plain.__defaults__, [v for v in held if not callable(v)])).encode())
    return digest.hexdigest()


def _code_token(code: CodeType) -> str:
    constants = [_code_token(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()}{code.co_names}{constants}"


def signature(user: UserDefined) -> str:
    """Return `name(types) RETURNS type`, for SHOW."""
    types = "" if user.parameters is None else f" ({', '.join(map(type_name, user.parameters))})"
    volatile = " VOLATILE" if user.volatile else ""
    return f"{user.kind} {user.name}{types} RETURNS {type_name(user.returns)}{volatile}"
