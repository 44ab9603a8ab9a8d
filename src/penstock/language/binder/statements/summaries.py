"""CREATE SUMMARY to a `SummaryDefinition` (docs/language.md)."""

from __future__ import annotations

from fractions import Fraction

from penstock.algebra import Algebra, SummaryDefinition, SummaryMethod, is_static
from penstock.errors import PenstockError, nearest
from penstock.language.binder.context import Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.queries import Duration, Name
from penstock.language.statements import CreateSummary, WrittenOption
from penstock.types import CALENDAR, Interval, TimeDomain, Unit, exact

_GRANULARITY = Duration(Interval(Fraction(10), Unit.SECOND))
_OPTIONS = {
    SummaryMethod.COUNTSKETCH: ("rows", "counters", "buckets", "error", "maxlength", "minlength"),
    SummaryMethod.EXACT: ("maxlength", "minlength"),
}
#: Most zones, and most counters of a zone.
_MOST_DEPTH, _MOST_RATE, _MOST_COUNTERS = 32, 1024, 2**24


def bind_summary(statement: CreateSummary, context: Context) -> SummaryDefinition:
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
        statement.name.text, stream, tuple(columns), granularity, rate, depth, method,
        int(values.get("rows", 5)), int(values.get("counters", 64)), int(values.get("buckets", 16)),
        float(values.get("error", 4.0)), int(longest), int(shortest),
    )  # fmt: skip


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
