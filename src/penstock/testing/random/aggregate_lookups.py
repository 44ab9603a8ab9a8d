"""Rows of one instant joined with the aggregates of that instant: a part of `worlds.py`.

Most joins drawn here can be planned as a look-up (`algebra/nodes/aggregate_lookup.py`); some just cannot, because of a
key that names no group or a condition on an aggregate, so that both cases are tested.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.testing.random.contract import QueryMaker, RandomColumn


@dataclass(frozen=True)
class Probing:
    """Joins with aggregates; `maker` draws their parts."""

    maker: QueryMaker

    def joined(self, depth: int) -> tuple[tuple[RandomColumn, ...], str, list[str]]:
        """Return (columns, FROM, WHERE) of a stream [NOW] joined with one or two grouped queries."""
        choices = self.maker.choices
        scope, text = self.instants()
        where: list[str] = []
        for _ in range(choices.pick((1, 1, 2))):
            more, right, condition = self.groups(scope, depth)
            if condition and choices.chance(15):
                condition += f" AND {self.maker.predicate(choices.pick((more, scope)))}"
            if condition and choices.chance(40):
                text = f"{text} {choices.pick(('LEFT JOIN', 'JOIN', 'RIGHT JOIN'))} {right} ON {condition}"
            else:
                # After a comma, so the joined sources must be one FROM item.
                text = f"{text}, {right}" if " JOIN " in text or choices.chance(70) else f"{right}, {text}"
                where += [condition] if condition else []
            scope += more
        return scope, text, where

    def instants(self) -> tuple[tuple[RandomColumn, ...], str]:
        maker = self.maker
        maker.names += 1
        alias = f"x{maker.names}"
        table = maker.choices.pick([t for t in maker.tables if t.is_stream and t.name in ("S", "T")])
        window = maker.choices.pick(("[NOW]", "[RANGE 1 SECOND]", "[NOW]", "[RANGE 2 SECOND]"))
        text = f"{table.name} {window} AS {alias}"
        if maker.choices.chance(20):
            text = f"(SELECT * FROM {table.name} {window} WHERE {maker.predicate(table.columns)}) AS {alias}"
        return tuple(RandomColumn(f"{alias}.{c.name}", c.type) for c in table.columns), text

    def groups(self, asking: tuple[RandomColumn, ...], depth: int) -> tuple[tuple[RandomColumn, ...], str, str | None]:
        """Return a grouped query: its columns, its text, and the condition that selects a group."""
        maker, choices = self.maker, self.maker.choices
        scope, source = maker.source(depth)
        pairs = [(a, b) for a in asking for b in scope if a.type == b.type]
        drawn = [choices.pick(pairs) for _ in range(choices.pick((1, 1, 2)))] if pairs else []
        chosen = {b.name: (a, b) for a, b in drawn}
        maker.names += 1
        alias = f"x{maker.names}"
        keys = [RandomColumn(f"g{i}", b.type) for i, (_, b) in enumerate(chosen.values())]
        items = [f"{b.name} AS g{i}" for i, (_, b) in enumerate(chosen.values())]
        calls = [maker.aggregate(scope, False) for _ in range(choices.pick((1, 2)))]
        items += [f"{text} AS a{i}" for i, (text, _) in enumerate(calls)]
        tail = f" WHERE {maker.predicate(scope)}" if choices.chance(20) else ""
        tail += f" GROUP BY {', '.join(chosen)}" if chosen else ""
        tail += f" HAVING COUNT(*) {choices.pick(('> 1', '< 3'))}" if choices.chance(25) else ""
        columns = (*keys, *(RandomColumn(f"a{i}", type_) for i, (_, type_) in enumerate(calls)))
        asked = [f"{a.name} = {alias}.g{i}" for i, (a, _) in enumerate(chosen.values())]
        if len(asked) > 1 and choices.chance(15):
            asked.pop()
        named = tuple(RandomColumn(f"{alias}.{c.name}", c.type) for c in columns)
        return named, f"(SELECT {', '.join(items)} FROM {source}{tail}) AS {alias}", " AND ".join(asked) or None
