"""CREATE FUNCTION and CREATE AGGREGATE: from `module:attr` to the callable of scripts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from sqlglot.tokenizer_core import TokenType

from penstock.errors import instead_of_taken
from penstock.expressions.calls.functions import known_functions
from penstock.expressions.calls.user_functions import make
from penstock.expressions.user import UserAggregate, UserDefined, UserFunction, load
from penstock.language.binder.context import Context
from penstock.language.clauses import TypeText
from penstock.language.commands import CreateFunctionCommand, Unchanged
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import string_text
from penstock.language.queries import NOWHERE, Mark
from penstock.language.statements.creation import Creation, check_unused, create_text, read_name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole
from penstock.language.text import TextSpan
from penstock.types import parse_type


@dataclass(frozen=True)
class CreateFunction(Creation):
    """CREATE FUNCTION or CREATE AGGREGATE. body: `module:attr`; parameters: None if the statement has none."""

    ROLE: ClassVar[AccessRole] = AccessRole.ADMIN
    kind: str
    body: str
    parameters: tuple[TypeText, ...] | None = None
    returns: TypeText | None = None
    volatile: Mark | None = None
    body_span: TextSpan = field(default=NOWHERE, compare=False)

    @property
    def statement_kind(self) -> str:
        return f"CREATE {self.kind}"


def _read(parser: ClauseGrammar, head: Head) -> CreateFunction:
    name, existence = read_name(parser, head)
    parameters: list[TypeText] | None = None
    if parser._match(TokenType.L_PAREN):
        parameters = []
        while not parser._match(TokenType.R_PAREN):
            parameters.append(parser._type())
            if not parser._match(TokenType.COMMA) and parser._curr.token_type is not TokenType.R_PAREN:
                parser._fail("',' or ')'", hint="parameters are types without names: CREATE FUNCTION f (INT, STRING)")
    returns = parser._type() if parser._take("RETURNS") else None
    volatile = parser._mark("VOLATILE") if head.word == "FUNCTION" else None
    parser._need("AS")
    at = parser._here()
    if not parser._match(TokenType.STRING):
        parser._fail("'module:name'", hint="AS 'module:name' names a function of a Python module")
    types = None if parameters is None else tuple(parameters)
    body = parser._prev.text
    body_span = parser._since(at)
    return CreateFunction(name, head.word, body, types, returns, volatile, body_span, existence=existence)


def _text(statement: CreateFunction) -> str:
    given = statement.parameters
    types = "" if given is None else f" ({', '.join(p.text for p in given)})"
    returns = f" RETURNS {statement.returns.text}" if statement.returns else ""
    volatile = " VOLATILE" if statement.volatile else ""
    name = create_text(statement)
    return f"{name}{types}{returns}{volatile} AS {string_text(statement.body)}"


def _bind(statement: CreateFunction, context: Context) -> CreateFunctionCommand | Unchanged:
    name = statement.name
    known = context.catalog.functions.get(name.key)
    if known is not None and statement.if_not_exists and known.kind == statement.kind:
        return Unchanged(statement.kind, known.name, f"{known.name} is declared already")
    if known is not None and not (statement.replaces and known.kind == statement.kind):
        hint = instead_of_taken(known.kind, name.text, statement.kind)
        context.fail("P0206", f"{name.text} is declared already", name.span, hint)
    function = _bind_function(statement, context)
    if known is not None:
        if repr(known) == repr(function):
            return Unchanged(statement.kind, known.name, "the function is the same")
        check_unused(name, context.catalog.users_of_function(name.key), context)
    return CreateFunctionCommand(
        function, context.source.slice(statement.span), statement.replaces, statement.if_not_exists
    )


def _bind_function(statement: CreateFunction, context: Context) -> UserDefined:
    """Return the declared function or aggregate. Raises BindingFailed with the errors recorded."""
    name = statement.name
    parameters = None
    if statement.parameters is not None:
        declared = statement.parameters
        parameters = context.each(lambda p: context.guard(p.span, lambda: parse_type(p.text)), declared)
    return_type = statement.returns
    returns = None if return_type is None else context.guard(return_type.span, lambda: parse_type(return_type.text))
    # A name that the language defines is an error, whatever follows AS.
    if name.text.upper() in {known.upper() for known in known_functions()}:
        hint = "choose another name"
        context.fail("P0206", f"{name.text} is a function of the language", name.span, hint)
    body = context.guard(statement.body_span, lambda: load(statement.body))
    kind = UserFunction if statement.kind == "FUNCTION" else UserAggregate
    function: UserDefined = context.guard(
        statement.body_span,
        lambda: make(kind, body, returns, name.text, parameters, bool(statement.volatile), statement.body),
    )
    return function


CREATE_FUNCTION = StatementKind(CreateFunction, ("CREATE FUNCTION", "CREATE AGGREGATE"), _read, _text, _bind)
