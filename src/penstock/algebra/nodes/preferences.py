"""WITH PREFERENCE: which part of a join or selection is emitted first while capacity is short `[pt 4]`.

An element that arrives makes *entries*: pieces of work that wait in a queue, one queue per shard. A *unit* of work is
one look-up of an entry, or one candidate pair examined. A budget determines how many units are done at which instant,
and the order of the queue which ones. What is emitted is part of the result of the query without the clause, and all of
it where the budget covers the work. The oracle (`testing/preferences/`) is this text as a simulation.

Elements and their order. An element of a side is a tuple of its relation with the life [ts, exp); under SLIDE ts is the
boundary at which it begins. All elements are
ordered by (ts, side, arrival); a side that is a table has none. At each instant u, in this order:

1. *Expire*: entries are dropped whose x has ended, or that had candidates of which all that are left have ended.
2. *Arrive*: the elements of u are summarised (all of a side with a summary, also those that fail its filter; not those
   with NULL in a summarised or key column: they join nothing); those that pass their filter, and have no NULL in a key
   column, make their entries in order. x's partners are the tuples before it that are alive at u.
3. *Work*: while there is credit, one unit of the first entry is done, by (key, order of x, newest zone first, newest
   candidate first): its
   look-up first, then its candidates one by one, newest first. A candidate that is still alive and passes the residual
   condition is emitted with the life [u, least exp). An entry is finished when none is left that is alive.
4. *Shed*: entries beyond `queue` in number are dropped, those last in that order first.

Where no entry waits after 1, and the credit of the instant covers the work of all its elements as if no side had a
summary, all of it is done instead, without a queue: x makes one entry for all its partners (one for each candidate
where `reads_partner`). Then the order is of no account, so there are no priorities, and summaries are not asked. This
is so PER TUPLE and under AUTO; with records all work goes through the queue.

Candidates are the partners equal to x on the key columns; of a table, its rows as of x's own instant in the order of
their draws (`draws(0, "", ts 0, columns)`, ascending).
A candidate that has ended costs nothing and is passed over.

Entries of x in a direction, into the other side b:

- b without a summary: one, for all partners, also where there are none.
- b with a summary: one per zone whose estimate for x's values of the summarised columns is at least 1, for the partners
  in that zone, and one *rest* entry for the others, with estimate 0 and granularity depth + 1.
- where an expression reads columns of b (`reads_partner`): one per candidate, which costs one unit, since its look-up
  is done when it arrives. Its estimates are those of the zone of its partner, 0 in the rest.

Priority w = (P_1 · P_2 · ..) · fade, as DOUBLE from left to right, P_i evaluated once, when the entry is made. NULL or
NaN in any P_i, and a key that is NaN: the key is +inf. Under WEIGHTED or with a fade, a negative P_i counts 0.

fade: `base ** n` of Python floats, by `fade_factor`. Without `per`, n = g − 1, g the granularity of the zone now (1 for
a direction without a summary); keys are recomputed whenever a zone has moved to the next granularity. With `per`, n =
age // per; age is u − ts of the newest candidate that is left and alive, of x for a selection or table or without
candidates; keys are recomputed at each multiple of `per` counted from tick 0, and not in between.

Key, least first: DESC −w. ASC w with ΠP / fade for w, +inf for a rest entry of a direction with a summary. WEIGHTED
E·c/w, +inf where w = 0; E = `exponential_draws` of the entry, c = 1 + estimate for a zone of a join, else 1.

The draw of an entry: `draws(seed, f"/preference/{query}/{side}", ts of x, columns of x + [zone])`, zone an int64 column
with the arrival number of the zone's oldest element, -1 of the rest entry and without a summary; one per candidate: the
candidate's ts (0 of a table) and columns in place of the zone. Arrival numbers count the elements of a side in a shard
from 0 in order, without those with NULL in a key column. side: 0 for x of the left input, else 1.

Credit. PER TUPLE n: n units for each element of u that makes entries; what is not used at u is lost. PER TIME: r =
units / (ticks · shards) per tick. Time is cut into slots [j/r, (j+1)/r) from tick 0 on, and each has one unit. At u,
behind 1, the units of the slots that have begun by then are done for what has waited before u. Where then nothing waits
any more, the elements of u have the unit of the slot in which u lies, if it has not been done; what nothing has waited
for until its slot ends is lost. So a budget of which no tick has fewer beginnings of slots emits no less, as long as
keys do not change while entries wait and none are shed. AUTO: units are granted by the driver for rounds (H0, H]: the
whole round is taken as one instant at which all entries compete, and a pair is emitted at its entry's own instant where
that is after H0, else at H0 + 1; candidates are looked up only when an entry is worked on, so one that waits for its
look-up expires with x or with the newest element of its zone. Work that needs no queue is that of a round: where
nothing waits, and its units in the shard are at most `AT_ONCE` times those granted there, as they take that little
time.

More inputs than two are joined one after the other, each join with a queue of its own: streams in the order of FROM,
but each after one that a condition equates it with, then the static relations. A result of a join is an element of the
next one at the instant at which it was emitted, with its life; those of an instant come in the order of their values,
then of their ends. Each join has an equal part of a budget in time and, rounded up, of a grant of AUTO
(`Budget.joins`); PER TUPLE, each of its elements grants n units. In a join counts each P_i whose columns and estimates
it has; the others count 1.

The feedback: a P_i that reads estimates of a stream which is joined later, and nothing else, counts in the joins before
too, where they divide rows by the values that are estimated (`SummaryAhead`). Its estimates there are the sums over all
zones of that stream that a probe with x's values at x's instant finds: Count of their estimates, Share that by the
elements of these zones. Of an instant, the elements of that stream are summarised before.

Records (`Preference.records`, WEIGHTED alone): the last column of a result is its inclusion record
(`expressions/sampling/inclusion.py`), which ESTIMATE reads. At the end of the work of an instant u in which a unit was
done, the shard's *threshold* κ_u is the key of the first entry that waits, or ALL where none does. A result whose entry
was made at m *counts* from the first u on, m <= u, at which it has been emitted and the key of its entry at u, waiting
or not, is below κ_u; ALL is above every key, +inf too. Until then it is left out: its entry is not finished, or is not
above all that wait. Its π at τ is 1 - exp(-max(κ_u · w_u) / c), over the u in [m, τ] at which its key is below κ_u, w_u
its weight then and c as above; 1 where one of these κ_u · w_u is infinite, or one κ_u is ALL. Where entries are shed at
s, σ_s the least key of them, κ_u counts as min(κ_u, σ_s) for entries with m <= s < u. Its cluster is its entry's draw.
Under AUTO a round has one threshold, at H0 + 1, which entries made later in the round meet when they are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.algebra.nodes.base import (
    PREFERENCE_DRAWS,
    RECORD,
    Algebra,
    Keys,
    Unary,
    UnderPreference,
    column_labels,
    has_lives,
    has_operator,
    is_static,
    operators,
)
from penstock.algebra.nodes.base.checks import need_equal_types
from penstock.algebra.nodes.base.fields import Condition, Pairs
from penstock.algebra.nodes.join import Join, condition_text, joined_pattern
from penstock.algebra.nodes.preference_clause import Preference, PreferenceOrder, preference_text
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import Expression, columns_of
from penstock.types import Schema


class SummaryAhead(NamedTuple):
    """The summary of a stream that results of a join probe later, whose estimates count in the join already.

    Args:
        summary: of the stream.
        summarised: the positions of its columns in the stream's relation.
        keys: by summarised column, the pair of `equal` whose columns have its values: those by which rows are divided.
        expressions: the P_i, of estimates alone, over the stream's columns.
    """

    summary: SummaryDefinition
    summarised: tuple[int, ...]
    keys: Pairs
    expressions: tuple[Expression, ...]


@dataclass(frozen=True, eq=False)
class WithPreference(UnderPreference):
    """The common part of the operators here, which all have a field `preference`."""

    @property
    def clause(self) -> Preference:
        """Return the preference, which is a field of all of them."""
        found: Preference = vars(self)["preference"]
        return found

    @property
    def keys_may_age(self) -> bool:
        """Return whether FADE .. PER changes the key of an entry while its candidates are examined."""
        return False

    def with_inclusion(self) -> Algebra | None:
        preference = self.clause
        if preference.order is not PreferenceOrder.WEIGHTED:
            hint = "write WITH PREFERENCE WEIGHTED, under which every result has a chance, or leave ESTIMATE out"
            message = f"ESTIMATE over WITH PREFERENCE {preference.order.value}, whose results have no known probability"
            raise PenstockError("P0355", message, hint=hint)
        if preference.budget.joins > 1:
            hint = "put the join of two under WITH PREFERENCE into a view, and ESTIMATE over its join with the others"
            raise PenstockError("P0355", "ESTIMATE over WITH PREFERENCE over more than two inputs", hint=hint)
        if any(child.with_inclusion() is not None for child in self.inputs):
            hint = "leave SAMPLE out, or say BUDGET UNLIMITED"
            raise PenstockError("P0355", "ESTIMATE over WITH PREFERENCE over a sample", hint=hint)
        if self.keys_may_age and preference.fades and preference.per is not None:
            hint = "read columns of both streams in the preference, so that each pair waits by itself, or leave PER out"
            message = "ESTIMATE over a preference that fades by age while the partners of a row are examined"
            raise PenstockError("P0355", message, hint=hint)
        changed: dict[str, Preference] = {"preference": replace(preference, records=True)}
        return replace(self, **changed)

    @property
    def drawn_by(self) -> tuple[str, int] | None:
        preference = self.clause
        weighted = preference.order is PreferenceOrder.WEIGHTED
        return (f"{PREFERENCE_DRAWS}{preference.query.lower()}", preference.seed) if weighted else None

    def recorded_pattern(self, pattern: Pattern) -> Pattern:
        """Return the update pattern: with inclusion records, which change, rows are replaced."""
        return Pattern.STRICT if self.clause.records else pattern

    def recorded_estimate(self, found: Estimate) -> Estimate:
        """Return the estimate of the results, with the column of the inclusion records where there is one."""
        return replace(found, distinct=(*found.distinct, math.inf)) if self.clause.records else found


@dataclass(frozen=True, eq=False)
class PreferringJoin(WithPreference):
    """The join of two streams under a preference. Columns: the left ones, then the right ones.

    Its text is the module's. left, right: relations of windows over streams, whose tuples are elements; left may
    be such a join itself.

    Args:
        equal: pairs of columns that must be equal, at least one; the two have the same type.
        residual: further condition over the joined row, part of examining a pair, or None.
        filters: by side, a condition over its own columns that elements must pass, or None. Only a side with a summary
            has one: its elements are summarised before. It never costs a unit.
        summaries: by side, the summary of its stream, or None. The side is then a window over all of that stream.
        summarised: by side, the positions in it of the summary's columns; all of them are in `equal`. Where both sides
            have a summary, they are the same pairs.
        into: by probed side, the expressions P_i over the joined row for elements of the other side.
            `SummaryEstimate` there is one of the probed side's summary; its columns are x's. May be empty: P = 1.
        preference: order, fade and budget.
        later: the windows of streams that are joined later and whose estimates count already.
        ahead: of these streams, what is estimated.
    """

    left: Algebra
    right: Algebra
    equal: Pairs
    residual: Condition | None
    filters: tuple[Expression | None, Expression | None]
    summaries: tuple[SummaryDefinition | None, SummaryDefinition | None]
    summarised: tuple[tuple[int, ...], tuple[int, ...]]
    into: tuple[tuple[Expression, ...], tuple[Expression, ...]]
    preference: Preference
    later: tuple[Algebra, ...] = ()
    ahead: tuple[SummaryAhead, ...] = ()

    def __post_init__(self) -> None:
        need_equal_types(self.left, self.right, self.equal)

    @property
    def sharding(self) -> Pairs:
        """Return the pairs by whose values rows go to shards: those that are summarised here, else those that are
        summarised ahead, else all."""
        read = [(side, positions) for side, positions in enumerate(self.summarised) if self.summaries[side]]
        if not read:
            return self.ahead[0].keys if self.ahead else self.equal
        side, positions = read[0]
        return tuple(pair for pair in self.equal if pair[side] in positions)

    def reads_partner(self, side: int) -> bool:
        """Return whether elements that probe `side` make one entry per candidate."""
        width = len(self.left.schema)
        read = frozenset[int]().union(*map(columns_of, self.into[side]))
        return any((column >= width) == bool(side) for column in read)

    @property
    def schema(self) -> Schema:
        return with_record(Schema(self.left.schema.fields + self.right.schema.fields), self.preference)

    @property
    def pattern(self) -> Pattern:
        return self.recorded_pattern(joined_pattern(self.left, self.right))

    @property
    def keys_may_age(self) -> bool:
        return not (self.reads_partner(0) and self.reads_partner(1))

    @property
    def keys(self) -> Keys:
        return Join(self.left, self.right, self.equal, self.residual).keys

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.left) or holds(self.right)

    @property
    def results_have_lives(self) -> bool:
        return has_lives(self.left) and has_lives(self.right) and not self.preference.records

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        found = Join(self.left, self.right, self.equal, self.residual).estimate_from(inputs[:2], statistics)
        return self.recorded_estimate(found)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        width = len(self.left.schema)
        found = {"on": condition_text(self.left, self.right, self.equal, self.residual)}
        for side, (name, position) in enumerate((("left", 0), ("right", width))):
            own = labels[:width] if side == 0 else labels[position:]
            if (condition := self.filters[side]) is not None:
                found[f"{name} filter"] = to_sql(condition, own)
            if (summary := self.summaries[side]) is not None:
                found[f"{name} summary"] = summary.text
        for side, name in ((1, "left"), (0, "right")):
            terms = ", ".join(to_sql(e, labels) for e in self.into[side]) or "1"
            each = ", each partner by itself" if self.reads_partner(side) else ""
            found[f"preference of {name} elements"] = terms + each
        if self.ahead:
            found["feedback"] = ", ".join(
                to_sql(e, column_labels(stream.schema))
                for stream, one in zip(self.later, self.ahead, strict=True)
                for e in one.expressions
            )
        return found | preference_text(self.preference)


@dataclass(frozen=True, eq=False)
class PreferringLookUp(WithPreference):
    """The join of a stream with a static or NON RETROACTIVE relation under a preference. Columns: the left ones, then
    the relation's.

    Elements of left are x; the relation's rows as of x's own instant, with the updates of that instant, are the
    candidates. One entry per element, or one per candidate where an expression reads the relation's columns. Its
    estimates are those of x's own stream, as in a selection. The life of a pair ends with x.

    Args:
        left: a relation of a window over a stream.
        right: a static relation, or a NON RETROACTIVE one.
        equal: pairs of columns that must be equal; may be empty: then every row of the table is a candidate.
        residual: as in `PreferringJoin`.
        filter, summary, summarised: those of the left side, as in `PreferringJoin`. Of a NON RETROACTIVE relation, the
            summarised columns are in `equal`, since its rows are divided like those of left.
        expressions: the P_i over the joined row.
        preference: order, fade and budget.
    """

    left: Algebra
    right: Algebra
    equal: Pairs
    residual: Condition | None
    filter: Expression | None
    summary: SummaryDefinition | None
    summarised: tuple[int, ...]
    expressions: tuple[Expression, ...]
    preference: Preference

    def __post_init__(self) -> None:
        need_equal_types(self.left, self.right, self.equal)

    @property
    def sharding(self) -> tuple[int, ...]:
        """Return the columns of left by whose values rows go to shards."""
        if is_static(self.right):
            return self.summarised or tuple(range(len(self.left.schema)))
        return self.summarised or tuple(pair[0] for pair in self.equal)

    @property
    def reads_partner(self) -> bool:
        """Return whether an element makes one entry per candidate."""
        width = len(self.left.schema)
        return any(column >= width for e in self.expressions for column in columns_of(e))

    @property
    def schema(self) -> Schema:
        return with_record(Schema(self.left.schema.fields + self.right.schema.fields), self.preference)

    @property
    def pattern(self) -> Pattern:
        return self.recorded_pattern(late_pattern(self.left))

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.left)

    @property
    def results_have_lives(self) -> bool:
        return has_lives(self.left) and not self.preference.records

    @property
    def ending_inputs(self) -> tuple[Algebra, ...]:
        return (self.left,)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        found = Join(self.left, self.right, self.equal, self.residual).estimate_from(inputs, statistics)
        return self.recorded_estimate(found)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        found = {"on": condition_text(self.left, self.right, self.equal, self.residual)}
        each = ", each partner by itself" if self.reads_partner else ""
        found |= side_text(self.left.schema, self.filter, self.summary)
        found["preference"] = (", ".join(to_sql(e, labels) for e in self.expressions) or "1") + each
        return found | preference_text(self.preference)


@dataclass(frozen=True, eq=False)
class PreferringSelection(WithPreference, Unary):
    """A selection over a stream under a preference: an element is an entry of one unit. What passes `condition` then is
    emitted with the life [u, exp).

    With a summary, the estimates of an entry are those of its own values in its own zone, and fading without PER uses
    the granularity that the element lies in by now; its draw has zone -1. The estimate is that which a probe of the
    summary gives for the element's zone, else 0, which ASC puts last; the summary has the element itself already.

    Args:
        input: a relation of a window over a stream.
        condition: tested by the unit, or None.
        filter: a condition that elements must pass to make an entry; it costs nothing (the conjuncts of WHERE that read
            summarised columns alone), or None.
        summary, summarised: of the stream, and the positions of its columns, or None and ().
        expressions: the P_i over the input's columns.
        preference: order, fade and budget.
    """

    condition: Expression | None
    filter: Expression | None
    summary: SummaryDefinition | None
    summarised: tuple[int, ...]
    expressions: tuple[Expression, ...]
    preference: Preference

    @property
    def schema(self) -> Schema:
        return with_record(self.input.schema, self.preference)

    @property
    def pattern(self) -> Pattern:
        return self.recorded_pattern(late_pattern(self.input))

    @property
    def keys(self) -> Keys:
        return self.input.keys

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    @property
    def results_have_lives(self) -> bool:
        return has_lives(self.input) and not self.preference.records

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        condition = {} if self.condition is None else {"where": to_sql(self.condition, labels)}
        terms = {"preference": ", ".join(to_sql(e, labels) for e in self.expressions) or "1"}
        side = side_text(self.schema, self.filter, self.summary)
        return condition | side | terms | preference_text(self.preference)


def summaries_read(root: Algebra) -> tuple[SummaryDefinition, ...]:
    """Return the summaries that preferences of the plan `root` read, each once."""
    found: list[SummaryDefinition] = []
    if not has_operator(root, PreferringJoin, PreferringLookUp, PreferringSelection):
        return ()
    for node in operators(root):
        if isinstance(node, PreferringJoin):
            found += [summary for summary in node.summaries if summary is not None]
            found += [one.summary for one in node.ahead]
        elif isinstance(node, PreferringLookUp | PreferringSelection) and node.summary is not None:
            found.append(node.summary)
    return tuple(dict.fromkeys(found))


def late_pattern(side: Algebra) -> Pattern:
    """Return the pattern of tuples that enter late, in any order: FIFO ends become WEAK."""
    return Pattern.WEAK if side.pattern is Pattern.WEAKEST else side.pattern


def side_text(schema: Schema, condition: Expression | None, summary: SummaryDefinition | None) -> dict[str, str]:
    """Return what EXPLAIN shows of a side with a summary."""
    found = {} if condition is None else {"filter": to_sql(condition, column_labels(schema))}
    return found if summary is None else found | {"summary": summary.text}


def with_record(schema: Schema, preference: Preference) -> Schema:
    """Return the columns of results, with their inclusion records where a preference has them."""
    return Schema((*schema.fields, RECORD)) if preference.records else schema
