"""Load shedding of a query, `WITH (memory .., shed ..)` and `SET shed_...`: budgets go below coalescing [tls III].

A selection on the value alone commutes with coalescing and goes below the budget, which then counts what passes it. The
constant of a conjunct LENGTH >= constant becomes the least length of the policy. Both are found in the selection above
the coalescing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from penstock.algebra import (
    Algebra,
    ArrivalTime,
    Begins,
    Coalesce,
    Project,
    RowWindow,
    Select,
    SessionWindow,
    StretchChances,
    Window,
)
from penstock.algebra.nodes.base import is_static, operators
from penstock.algebra.nodes.shed import NO_BUDGET, Shed, StretchBudget
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.nodes import (
    FLIPPED,
    Call,
    Cast,
    Column,
    Expression,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
)
from penstock.language.binder.context import Context
from penstock.language.binder.statements.attributes import SHEDDING_ATTRIBUTES, read_memory
from penstock.language.text import TextSpan
from penstock.settings import Settings
from penstock.shedding.policies import WHOLE_VALUES
from penstock.tree import transform_up
from penstock.types import CALENDAR, END, Interval, Unit


@dataclass(frozen=True)
class SheddingOptions:
    """The options of a query for shedding, its own attributes before the settings."""

    memory: str
    cpu: str
    shares_limit: bool
    policy: str
    buckets: int
    compact: bool
    sample: int
    at_least: int
    fails: bool

    @property
    def has_budget(self) -> bool:
        """Return whether anything limits the query."""
        return self.memory != "none" or self.cpu != "none" or self.shares_limit

    @property
    def budget(self) -> tuple[int, bool]:
        """Return what is held at most, and whether that is in bytes."""
        return (NO_BUDGET, self.shares_limit) if self.memory == "none" else read_memory(self.memory)

    @staticmethod
    def of(written: Mapping[str, str], settings: Settings) -> SheddingOptions:
        """Return the options of a query. written: its attributes, in normal form."""

        def value(key: str, setting: str) -> Any:
            option = SHEDDING_ATTRIBUTES.get(key)
            assert option is not None
            return option.type.read(written[key]) if key in written else settings[setting]

        memory = written.get("memory", settings["shed_memory"])
        return SheddingOptions(
            memory,
            written.get("cpu", settings["shed_cpu"]),
            memory == "none" and settings["state_limit_action"] == "shed" and settings["state_limit"] > 0,
            value("shed", "shed"),
            value("buckets", "shed_buckets"),
            value("compact", "shed_compact"),
            round(1e6 * value("error_sample", "shed_error_sample")),
            round(1e6 * value("accuracy_at_least", "shed_accuracy_at_least")),
            value("on_inaccuracy", "shed_on_inaccuracy") == "fail",
        )


def bind_shedding(
    root: Algebra,
    name: str,
    written: Mapping[str, str],
    spans: Mapping[str, TextSpan],
    whole: TextSpan,
    context: Context,
) -> Algebra:
    """Return the query with its budgets. Raises BindingFailed after P0376 or P0104.

    Args:
        written: the attributes of the query, in normal form.
        spans: where they stand; whole: the place of messages where they do not.
    """
    return with_known_chances(_with_own_budgets(root, name, written, spans, whole, context), whole, context)


def with_known_chances(root: Algebra, span: TextSpan, context: Context) -> Algebra:
    """Return a query, of which every ESTIMATE of stretches or sessions must be over a budget of which whole values go.
    Raises BindingFailed after P0355."""
    for node in operators(root):
        refused = node.refusal() if isinstance(node, StretchChances) else None
        if refused is not None:
            context.fail(refused.code, refused.message, span, refused.hint)
    return root


def _with_own_budgets(
    root: Algebra,
    name: str,
    written: Mapping[str, str],
    spans: Mapping[str, TextSpan],
    whole: TextSpan,
    context: Context,
) -> Algebra:
    own = {key: value for key, value in written.items() if key in SHEDDING_ATTRIBUTES.names}
    options = SheddingOptions.of(own, context.settings)
    span = next((spans[key] for key in own if key in spans), whole)
    if not own and not options.has_budget:
        return root
    if not any(isinstance(node, Coalesce | SessionWindow) and not is_static(node) for node in operators(root)):
        if not own:
            return root
        hint = "S SAMPLE(10) thins out a stream"
        context.fail("P0376", f"{name} does not coalesce: there is nothing to shed", span, hint)
    if not options.has_budget:
        hint = "as in WITH (memory '10000 TUPLES'), or SET shed_memory"
        context.fail("P0376", f"{name} has no budget: attribute {next(iter(own))} needs memory or cpu", span, hint)
    budget, _ = options.budget
    if options.buckets > budget:
        message = f"a budget of {budget:,} has no {options.buckets:,} parts"
        context.fail("P0104", message, spans.get("buckets", span), "fewer buckets, or more memory")
    # A limit of the whole run is no wish of this query: where a budget has no meaning, it has none.
    lenient = options.shares_limit and options.cpu == "none" and not own
    return context.guard(span, lambda: with_budgets(root, name, options, lenient))


def with_budgets(root: Algebra, name: str, options: SheddingOptions, lenient: bool = False) -> Algebra:
    """Return a query with a budget below every coalescing of rows that change. Raises PenstockError P0376 where a
    budget has no meaning, unless it is `lenient`."""
    budget, in_bytes = options.budget
    cpu = 0 if options.cpu == "none" else round(1e6 * float(options.cpu))
    misses_only = _only_misses(root)

    whole = StretchBudget(budget, in_bytes, options.buckets, cpu, options.shares_limit, compact=options.compact)

    def rule(node: Any) -> Any:
        if isinstance(node, SessionWindow) or (isinstance(node, Coalesce) and _drops_whole(node, options)):
            floor = replace(whole, query=name, every=_judged_every(node), at_least=options.at_least)
            return replace(node, budget=replace(floor, fails=options.fails) if options.at_least else whole)
        if isinstance(node, Coalesce) and any(isinstance(one, SessionWindow) for one in operators(node.input)):
            return node
        if isinstance(node, Select) and isinstance(node.input, StretchChances):
            return _below_chances(node, node.input, rule)
        if isinstance(node, Select) and isinstance(node.input, Coalesce | SessionWindow) and node.input.budget:
            return _below_whole(node, node.input)
        if isinstance(node, Coalesce) and not is_static(node) and not isinstance(node.input, Shed):
            refusal = _refusal(node, name)
            if refusal is not None:
                if lenient:
                    return node
                raise refusal
            policy = options.policy if node.closed is None else WHOLE_VALUES
            shed = Shed(
                node.input,
                policy,
                budget,
                in_bytes,
                options.buckets,
                options.compact,
                ordered=node.begins is not Begins.ANY,
                sample=options.sample,
                misses_only=misses_only,
                query=name,
                every=_judged_every(node),
                at_least=options.at_least,
                fails=options.fails,
                cpu=cpu,
                shares_limit=options.shares_limit,
            )
            return replace(node, input=shed)
        if isinstance(node, Select) and isinstance(node.input, Coalesce) and isinstance(node.input.input, Shed):
            return _below_selection(node, node.input, node.input.input)
        return node

    return transform_up(root, rule, Algebra)


def _judged_every(node: Coalesce | SessionWindow) -> int:
    """Return the ticks between two instants at which accuracy is judged: SLIDE, else a minute."""
    slides = [one.slide for one in operators(node) if isinstance(one, Window) and one.slide is not None]
    if slides:
        return max(slides)
    domain = node.domain or CALENDAR
    try:
        return max(1, domain.ticks(Interval(Fraction(1), Unit.MINUTE)))
    except PenstockError:
        return 60


def _refusal(node: Coalesce, name: str) -> PenstockError | None:
    """Return why tuples below `node` have no budget, None where they may have one."""
    below = window = node.input
    while isinstance(window, Select | Project | ArrivalTime):
        window = window.input
    if isinstance(window, RowWindow):
        if Shed(below, "newest", 1).row_window is not None:
            return None
        message = f"{name} coalesces under a window of rows of which it is not known which one leaves first"
        hint = (
            "[ROWS n] of a declared stream has budgets, without PARTITION BY, RANGE and SLIDE, and any window in time"
        )
        return PenstockError("P0376", message, hint=hint)
    if below.pattern is Pattern.STRICT:
        message = f"{name} coalesces a relation with updates: a tuple that was dropped could be retracted later"
        return PenstockError("P0376", message, hint="coalesce a stream under a window")
    return None


def _emits_once(node: Coalesce) -> bool:
    """Return whether each stretch is emitted once, when it is closed, and only open stretches are stored."""
    return node.closed is not None and node.in_order and not is_static(node)


def _drops_whole(node: Coalesce, options: SheddingOptions) -> bool:
    """Return whether entries are whole stretches: those that are emitted once, and runs of granules unless the budget
    counts tuples."""
    return _emits_once(node) or (options.compact and node.granule_window is not None and not is_static(node))


def _below_whole(select: Select, node: Coalesce | SessionWindow) -> Algebra:
    """Move the conjuncts on the value, or the partition, below a budget of whole stretches, which then counts what
    passes them."""
    columns = set(node.value if isinstance(node, Coalesce) else node.partition)
    parts = conjuncts(select.predicate)
    below = tuple(part for part in parts if columns >= columns_of(part) and not volatile(part))
    predicate, kept = conjunction(below), conjunction(tuple(part for part in parts if part not in below))
    if isinstance(node, Coalesce) and node.budget is not None and node.granule_window is not None:
        least = max(least_length(part, len(node.value)) or 0 for part in parts)
        node = replace(node, budget=replace(node.budget, least=least))
    made = node if predicate is None else replace(node, input=Select(node.input, predicate))
    return made if kept is None else Select(made, kept)


def _below_chances(select: Select, chances: StretchChances, rule: Callable[[Any], Any]) -> Algebra:
    """Do with a selection on rows with inclusion records what is done with one on rows without."""
    made = rule(Select(chances.input, select.predicate))
    if isinstance(made, Select):
        return Select(StretchChances(made.input), made.predicate)
    return StretchChances(made)


def _below_selection(select: Select, coalesce: Coalesce, shed: Shed) -> Algebra:
    """Move the conjuncts on the value below the budget, and give the policy the least length."""
    width, below, rest, least = len(shed.value), [], [], 0
    for part in conjuncts(select.predicate):
        if all(i < width for i in columns_of(part)) and not volatile(part):
            below.append(part)
            continue
        rest.append(part)
        least = max(least, least_length(part, width) or 0)
    predicate = conjunction(tuple(below))
    source = shed.input if predicate is None else Select(shed.input, predicate)
    held = replace(shed, input=source, least=least)
    made = replace(coalesce, input=held)
    kept = conjunction(tuple(rest))
    return made if kept is None else Select(made, kept)


def least_length(part: Expression, width: int) -> int | None:
    """Return n where `part` requires that the period, columns `width` and `width + 1`, has n ticks or more, END at
    most."""
    if not isinstance(part, Call) or part.function not in FLIPPED:
        return None
    name, (left, right) = part.function, part.arguments
    if _constant(left) is not None:
        name, left, right = FLIPPED[name], right, left
    constant = _constant(right)
    if constant is None or name not in ("GE", "GT"):
        return None
    units = _units(left, width)
    if units is None:
        return None
    times, by = units
    least = constant + (name == "GT")
    return min(END, max(0, -(-least // times) if times > 1 else least * by))


def _units(length: Expression, width: int) -> tuple[int, int] | None:
    """Return (m, d) where an expression is the length of the period times m, or divided by d and rounded down."""
    length = _uncast(length)
    if not isinstance(length, Call):
        return None
    if length.function in ("MUL", "INT_DIV") and len(length.arguments) == 2:
        inner, factor = _units(length.arguments[0], width), _constant(length.arguments[1])
        if inner != (1, 1) or factor is None or factor < 1:
            return None
        return (factor, 1) if length.function == "MUL" else (1, factor)
    if length.function != "SUB":
        return None
    end, begin = (_uncast(argument) for argument in length.arguments)
    if isinstance(end, Call) and end.function == "NULLIF":
        end = _uncast(end.arguments[0])
    bounds = tuple(bound.index for bound in (begin, end) if isinstance(bound, Column))
    return (1, 1) if bounds == (width, width + 1) else None


def _uncast(expression: Expression) -> Expression:
    return expression.argument if isinstance(expression, Cast) else expression


def _constant(expression: Expression) -> int | None:
    expression = _uncast(expression)
    if isinstance(expression, Literal) and isinstance(expression.value, int) and not isinstance(expression.value, bool):
        return expression.value
    return None


def _only_misses(root: Algebra) -> bool:
    """Return whether a query over fewer tuples can only miss rows: what is true of a part of a period is true of the
    whole one, for all its conditions on periods [tls III]."""
    node = root
    while isinstance(node, Project | Select):
        if isinstance(node, Select):
            if not isinstance(node.input, Coalesce):
                return False
            width = len(node.input.value)
            if not all(_is_monotone(part, width) for part in conjuncts(node.predicate)):
                return False
        node = node.input
    return isinstance(node, Coalesce) and node.closed is None


def _is_monotone(part: Expression, width: int) -> bool:
    columns = columns_of(part)
    if all(i < width for i in columns) or least_length(part, width) is not None:
        return True
    if not isinstance(part, Call) or part.function not in FLIPPED:
        return False
    name, (left, right) = part.function, part.arguments
    if isinstance(_uncast(left), Literal):
        name, left, right = FLIPPED[name], right, left
    if not isinstance(_uncast(right), Literal):
        return False
    left = _uncast(left)
    if isinstance(left, Call) and left.function == "NULLIF":
        left = _uncast(left.arguments[0])
    bound = left.index if isinstance(left, Column) else None
    return (bound == width and name in ("LT", "LE")) or (bound == width + 1 and name in ("GT", "GE"))


def spans_of(attributes: Sequence[Any]) -> dict[str, TextSpan]:
    """Return where the attributes of a statement stand, by key."""
    return {attribute.key.key: attribute.key.span for attribute in attributes}
