"""CREATE SUMMARY: counts of the values of a stream, kept for preferences."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from sqlglot.tokenizer_core import TokenType

from penstock.algebra import Algebra, SummaryDefinition, SummaryMethod, is_static
from penstock.errors import PenstockError, nearest
from penstock.language.binder.context import Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.catalog import DeclaredSummary
from penstock.language.clauses import WrittenOption
from penstock.language.commands import CreateSummaryCommand, Unchanged
from penstock.language.grammar.clauses import ClauseGrammar, meant
from penstock.language.printer import columns_text, name_text, options_text
from penstock.language.queries import NOWHERE, Duration, Name
from penstock.language.statements.creation import Creation, check_unused, create_text, declared_already, read_name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.text import TextSpan
from penstock.types import CALENDAR, Interval, TimeDomain, Unit, exact

_WHOLE = "a summary has a name, a stream and columns whose values are counted: CREATE SUMMARY c ON s (k)"
_COLLAPSE = "write how many zones become one and how many granularities there are: COLLAPSE (4, 4)"
_LEVELS = "write WITH GRANULARITY 10 SECONDS, WITH COLLAPSE (4, 4), or one AND the other"
#: How a summary counts.
_METHODS = ("COUNTSKETCH", "EXACT")
_GRANULARITY = Duration(Interval(Fraction(10), Unit.SECOND))
_OPTIONS = {
    SummaryMethod.COUNTSKETCH: ("rows", "counters", "buckets", "error", "maxlength", "minlength"),
    SummaryMethod.EXACT: ("maxlength", "minlength"),
}
#: Most zones, and most counters of a zone.
_MOST_DEPTH, _MOST_RATE, _MOST_COUNTERS = 32, 1024, 2**24


@dataclass(frozen=True)
class Collapse:
    """COLLAPSE (rate, depth) of a summary."""

    rate: int
    depth: int
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class CreateSummary(Creation):
    """CREATE SUMMARY. method: COUNTSKETCH or EXACT, None where it is not written."""

    KIND: ClassVar[str] = "CREATE SUMMARY"
    stream: Name
    columns: tuple[Name, ...]
    granularity: Duration | None = None
    collapse: Collapse | None = None
    method: str | None = None
    options: tuple[WrittenOption, ...] = ()


def _read(parser: ClauseGrammar, head: Head) -> CreateSummary:
    name, existence = read_name(parser, head, _WHOLE)
    if not parser._take("ON"):
        parser._fail("ON", hint=_WHOLE)
    stream = parser._name("the name of a stream", hint=_WHOLE)
    named = f"name the columns whose values are counted: CREATE SUMMARY {name.text} ON {stream.text} (k)"
    if parser._curr.token_type is not TokenType.L_PAREN:
        parser._fail("'('", hint=named)
    following = parser._ahead(1)
    if following is None or following.token_type is TokenType.R_PAREN:
        parser._fail("a column name", following, hint=named)
    columns = parser._names("a column name")
    levels = _read_levels(parser)
    method = _read_method(parser) if parser._take("USING") else None
    options = _read_options(parser) if method and parser._curr.token_type is TokenType.L_PAREN else ()
    return CreateSummary(
        name,
        stream,
        columns,
        **levels,
        method=method,
        options=options,
        existence=existence,
    )


def _read_levels(parser: ClauseGrammar) -> dict[str, Any]:
    """Parse WITH { GRANULARITY interval | COLLAPSE ( rate, depth ) } [AND ..]."""
    found: dict[str, Any] = {}
    if not parser._take("WITH"):
        return found
    while True:
        at = parser._here()
        if parser._take("GRANULARITY"):
            one: dict[str, Any] = {"granularity": parser._duration()}
        elif parser._take("COLLAPSE"):
            one = {"collapse": _read_collapse(parser, at)}
        else:
            parser._fail("GRANULARITY or COLLAPSE", hint=_LEVELS)
        if one.keys() & found.keys():
            message = f"{next(iter(one)).upper()} occurs twice"
            raise parser._misplaced(message, parser._since(at), "leave one of them out")
        found |= one
        if not parser._take("AND"):
            return found


def _read_collapse(parser: ClauseGrammar, start: TextSpan) -> Collapse:
    _of_collapse(parser, TokenType.L_PAREN, "'('")
    rate = _of_collapse(parser, TokenType.NUMBER, "how many zones become one")
    _of_collapse(parser, TokenType.COMMA, "','")
    depth = _of_collapse(parser, TokenType.NUMBER, "a number of granularities")
    _of_collapse(parser, TokenType.R_PAREN, "')'")
    return Collapse(rate, depth, parser._since(start))


def _of_collapse(parser: ClauseGrammar, kind: TokenType, shown: str) -> int:
    """Parse a token of COLLAPSE; return the number that it is, else 0."""
    if not parser._match(kind):
        parser._fail(shown, hint=_COLLAPSE)
    if kind is not TokenType.NUMBER:
        return 0
    if not parser._prev.text.isdecimal():
        parser._fail(shown, parser._prev, hint=_COLLAPSE)
    return int(parser._prev.text)


def _read_method(parser: ClauseGrammar) -> str:
    found = parser._take_any(*_METHODS)
    if found is None:
        text = parser._curr.text if parser._curr else ""
        counts = "COUNTSKETCH counts in a fixed number of counters, EXACT by value"
        parser._fail(" or ".join(_METHODS), hint=meant(text, _METHODS) or counts)
    return found


def _read_options(parser: ClauseGrammar) -> tuple[WrittenOption, ...]:
    following = parser._ahead(1)
    if following is not None and following.token_type is TokenType.R_PAREN:
        parser._fail("an option of the summary", following, hint="leave the parentheses out for the defaults")
    return parser._options()


def _text(statement: CreateSummary) -> str:
    text = f"{create_text(statement)} ON {name_text(statement.stream)}"
    text += columns_text(statement.columns)
    levels = [] if statement.granularity is None else [f"GRANULARITY {statement.granularity.interval}"]
    if statement.collapse is not None:
        levels.append(f"COLLAPSE ({statement.collapse.rate}, {statement.collapse.depth})")
    text += f" WITH {' AND '.join(levels)}" if levels else ""
    text += f" USING {statement.method}" if statement.method else ""
    return text + (f" ({options_text(statement.options)})" if statement.options else "")


def _bind(statement: CreateSummary, context: Context) -> CreateSummaryCommand | Unchanged:
    unchanged = declared_already(statement, context)
    if unchanged is not None:
        return unchanged
    summary = DeclaredSummary(_bind_definition(statement, context), context.source.slice(statement.span))
    known = context.catalog.summaries.get(statement.name.key)
    if known is not None and statement.replaces:
        if known.definition == summary.definition:
            return Unchanged("SUMMARY", known.name, "the summary is the same")
        check_unused(statement.name, context.catalog.users_of(statement.name.key), context)
    return CreateSummaryCommand(summary, statement.replaces, statement.if_not_exists)


def _bind_definition(statement: CreateSummary, context: Context) -> SummaryDefinition:
    """Return what a statement declares. Raises BindingFailed after P0201 to P0208, P0301 or P0303."""
    stream, names, domain = _stream(statement.stream, context)
    columns = context.each(lambda name: _column(name, names, context), statement.columns)
    for column, name in zip(columns, statement.columns, strict=True):
        if columns.count(column) > 1:
            context.fail("P0206", f"column {name.text} occurs twice", name.span, "name each column once")
    rate, depth = (4, 4) if statement.collapse is None else (statement.collapse.rate, statement.collapse.depth)
    if statement.collapse is not None and not (2 <= rate <= _MOST_RATE and 1 <= depth <= _MOST_DEPTH):
        message = f"COLLAPSE takes a rate from 2 to {_MOST_RATE:,} and a depth from 1 to {_MOST_DEPTH}"
        context.fail("P0203", message, statement.collapse.span, "write COLLAPSE (4, 4)")
    granularity = _granularity(statement.granularity, domain, context)
    method = SummaryMethod(statement.method or "COUNTSKETCH")
    found = context.each(lambda option: _option(option, method, domain, context), statement.options)
    values = dict(found)
    if len(values) < len(found):
        context.fail("P0208", "an option is repeated", statement.options[-1].key.span, "write each option once")
    longest = values.get("maxlength", max(1, granularity // rate))
    shortest = values.get("minlength", max(1, granularity // (8 * rate)))
    if shortest > longest:
        span = statement.options[-1].value_span
        context.fail("P0203", "minlength is longer than maxlength", span, "make it shorter")
    size = values.get("rows", 5) * values.get("counters", 64) * values.get("buckets", 16)
    if size > _MOST_COUNTERS:
        message = f"a zone would have {size:,} counters, {_MOST_COUNTERS:,} are the limit"
        context.fail("P0203", message, statement.options[0].key.span, "use fewer buckets")
    return SummaryDefinition(
        statement.name.text,
        stream,
        tuple(columns),
        granularity,
        rate,
        depth,
        method,
        int(values.get("rows", 5)),
        int(values.get("counters", 64)),
        int(values.get("buckets", 16)),
        float(values.get("error", 4.0)),
        int(longest),
        int(shortest),
    )


def _stream(name: Name, context: Context) -> tuple[str, tuple[str, ...], TimeDomain]:
    """Return the declared name of a stream or a view that is one, the names of its columns, and its time."""
    catalog = context.catalog
    view, source = catalog.views.get(name.key), catalog.sources.get(name.key)
    if view is not None and name.matches(view.name):
        _refuse_relation(view.root, name, context)
        return view.name, view.names, view.root.domain or CALENDAR
    if source is not None and name.matches(source.name):
        if not source.is_stream:
            _refuse(name, context)
        return source.name, source.columns.names, source.domain or CALENDAR
    if name.key in context.failed:
        context.fail_silently()
    known = [s.name for s in catalog.sources.values() if s.is_stream]
    known += [v.name for v in catalog.views.values() if v.root.is_stream]
    hint = nearest(name.text, known) or "a summary is kept over a declared stream, or a view that is one"
    return context.fail("P0201", f"unknown stream {name.text}", name.span, hint)


def _refuse_relation(root: Algebra, name: Name, context: Context) -> None:
    if not root.is_stream or is_static(root):
        _refuse(name, context)


def _refuse(name: Name, context: Context) -> None:
    hint = "a summary counts the values of a stream; take the ISTREAM of a relation"
    context.fail("P0301", f"{name.text} is a relation", name.span, hint)


def _column(name: Name, names: tuple[str, ...], context: Context) -> str:
    found = next((one for one in names if name.matches(one)), None)
    if found is None:
        context.fail("P0202", f"unknown column {name.text}", name.span, nearest(name.text, names))
    return found


def _granularity(written: Duration | None, domain: TimeDomain, context: Context) -> int:
    if written is not None:
        return ticks(written, domain, context, code="P0303")
    try:
        return max(1, domain.ticks(_GRANULARITY.interval))
    except PenstockError:
        return 1


def _option(
    option: WrittenOption, method: SummaryMethod, domain: TimeDomain, context: Context
) -> tuple[str, int | float]:
    known, key = _OPTIONS[method], option.key.text.lower()
    if key not in known:
        message = f"USING {method.value} has no option {option.key.text}"
        context.fail("P0208", message, option.key.span, nearest(key, known) or f"known: {', '.join(known)}")
    if key in ("maxlength", "minlength"):
        interval = Interval.parse(option.value)
        if interval is None:
            message = f"{key} is an interval such as '2 SECONDS'"
            context.fail("P0203", message, option.value_span, f"write a number and a unit: {key} '2 SECONDS'")
        return key, ticks(Duration(interval, option.value_span), domain, context, code="P0303")
    try:
        value = exact(option.value)
    except ValueError:
        hint = f"leave {key} out for its default, or write a number in quotes"
        context.fail("P0203", f"{key} is a number, this is {option.value!r}", option.value_span, hint)
    if key == "error":
        if not 0 < value <= 10**9:
            context.fail("P0203", "error is a number above 0, in tuples", option.value_span, "the default is '4'")
        return key, float(value)
    if value.denominator != 1 or not 1 <= value <= _MOST_COUNTERS or (key == "rows" and value % 2 == 0):
        needed = "an odd whole number" if key == "rows" else "a whole number"
        hint = f"leave {key} out for its default" + (", or write an odd number, such as '5'" if key == "rows" else "")
        context.fail("P0203", f"{key} is {needed} from 1 on, this is {option.value}", option.value_span, hint)
    return key, int(value)


CREATE_SUMMARY = StatementKind(CreateSummary, ("CREATE SUMMARY",), _read, _text, _bind)
