"""What the statements of CREATE share: their words, the name that they declare, and what is there already."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import PenstockError, instead_of_taken
from penstock.language.binder.context import Context
from penstock.language.binder.statements.names_read import read_by
from penstock.language.clauses import Existence
from penstock.language.commands import Unchanged
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import name_text
from penstock.language.queries import CONTROL_SCHEMA, Name, WholeQuery
from penstock.language.statements.kind import Head
from penstock.language.statements.statement import Statement


@dataclass(frozen=True)
class Creation(Statement):
    """Base of the trees of CREATE.

    Attributes:
        name: what is declared.
        existence: what happens where that is declared already; None for an error.
    """

    name: Name
    existence: Existence | None = field(default=None, kw_only=True)

    @property
    def declares(self) -> str:
        """Return the kind of what is declared, such as STREAM."""
        return self.statement_kind.removeprefix("CREATE ")

    @property
    def is_function(self) -> bool:
        """Return whether a function or an aggregate is declared: their names are not those of sources and queries."""
        return self.declares in ("FUNCTION", "AGGREGATE")

    @property
    def replaces(self) -> bool:
        return self.existence is Existence.OR_REPLACE

    @property
    def if_not_exists(self) -> bool:
        return self.existence is Existence.IF_NOT_EXISTS

    @property
    def defined_by(self) -> WholeQuery | None:
        """Return the query that what is declared stands for."""
        return None


# --- grammar and text


def read_head(parser: ClauseGrammar, kinds: tuple[str, ...]) -> Head:
    """Parse [OR REPLACE] [NON RETROACTIVE] and the kind of what is declared."""
    existence = Existence.OR_REPLACE if parser._take("OR", "REPLACE") else None
    retroactive = parser._mark("NON", "RETROACTIVE")
    kind = "RELATION" if retroactive and parser._need("RELATION") else parser._one_of(kinds)
    return Head(kind, existence, retroactive)


def read_name(parser: ClauseGrammar, head: Head, hint: str | None = None) -> tuple[Name, Existence | None]:
    """Parse [IF NOT EXISTS] and the name; a declaration may be called `if` where EXISTS does not follow."""
    existence, at = head.existence, parser._here()
    if parser._take("IF", "NOT", "EXISTS"):
        if existence is Existence.OR_REPLACE:
            raise parser._misplaced("OR REPLACE and IF NOT EXISTS exclude each other", parser._since(at))
        existence = Existence.IF_NOT_EXISTS
    return parser._name(f"a name for the {head.word.lower()}", hint=hint), existence


def create_text(statement: Creation, qualifier: str = "") -> str:
    """Return the text up to the name. qualifier: what stands before the kind."""
    replaced = "OR REPLACE " if statement.replaces else ""
    exists = "IF NOT EXISTS " if statement.if_not_exists else ""
    return f"CREATE {replaced}{qualifier}{statement.declares} {exists}{name_text(statement.name)}"


# --- what is there already


def declared_already(statement: Creation, context: Context) -> Unchanged | None:
    """Return that nothing changes under IF NOT EXISTS. A name that is taken otherwise is reported, and the
    statement is bound further, for its other errors.
    """
    name, kind = statement.name, statement.declares
    known = context.catalog.kind(name.key)
    if name.key.startswith(f"{CONTROL_SCHEMA}."):
        hint = "choose another name"
        context.note(PenstockError("P0206", f"{name.text} is a name of control relations", hint=hint), name.span)
        return None
    if known is None and name.key not in context.failed:
        return None
    if known == kind and statement.if_not_exists:
        return Unchanged(kind, name.text, f"{name.text} is declared already")
    if known == kind and statement.replaces:
        return None
    hint = "choose another name" if known is None else instead_of_taken(known, name.text, kind)
    context.note(PenstockError("P0206", f"{name.text} is declared already", hint=hint), name.span)
    return None


def check_replaceable(name: Name, tree: WholeQuery, context: Context) -> None:
    """Fail where what is replaced is read by something, or by its replacement."""
    if name.key in read_by(tree):
        context.fail("P0306", f"the new {name.text} reads the {name.text} that it replaces", name.span)
    check_unused(name, context.catalog.users_of(name.key), context)


def check_unused(name: Name, users: list[str], context: Context) -> None:
    if users:
        hint = "drop what uses it first"
        context.fail("P0222", f"{name.text} is used by {', '.join(users)}", name.span, hint)
