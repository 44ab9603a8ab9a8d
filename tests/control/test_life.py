"""Each event in each phase of a query, beside each that can be computed beside it: it makes of the query what the table
says, and no less than that. docs/life.md is the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from control_kit import STREAM, SUM, server

from penstock.algebra.nodes.query import Start, StartMode
from penstock.control.drafting.draft import Draft
from penstock.control.life import transitions
from penstock.control.life.changes import WARM_WAIT, KeepsNoMore
from penstock.control.life.due_steps import EditStep, HoldStep
from penstock.control.life.page import life_page
from penstock.control.life.transitions import NOTHING, POSSIBLE, RULES, Becomes, Event, Refusal, beside_of, verdict
from penstock.control.phases import OF_ANSWER, Beside, Phase
from penstock.control.registry import Registry, command_of, default_sink, restored, settings_of
from penstock.control.stored_catalog import CatalogChange, Definition, StoredComputation, StoredObject
from penstock.errors import PenstockError

PLAN = '{"SUM": {"shape": "panes"}}'
OTHER = "SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS]"
STATES = [(phase, beside) for phase in OF_ANSWER for beside in POSSIBLE[phase]]
ERROR = PenstockError("P0601", "injected")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    with server(tmp_path_factory.mktemp("life")) as system:
        system.done(STREAM + SUM + SUM.replace("QUERY q", "QUERY p"))
        return system.control._applier.current


def in_state(running: Registry, phase: Phase, beside: Beside, waits: bool = False) -> Registry:
    """Return declarations in which the query q is in a phase. waits: the coming one waits for rows."""
    one = running.named("q")
    assert one.query is not None
    is_waiting = phase is Phase.WAITING_FOR_ROWS
    start = WARM_WAIT if is_waiting else Start(StartMode.NOW)
    query = replace(one.query, answer=replace(one.query.answer, phase=phase, keeps=is_waiting, start=start))
    if beside is not Beside.NOTHING:
        computation = StoredComputation(
            1002,
            1001,
            WARM_WAIT,
            Phase.ENDING if beside is Beside.FORMER else Phase.SHADOW,
            PLAN if beside is Beside.PLAN else query.answer.plan,
            Definition(OTHER) if beside is Beside.QUERY else None,
            until=5 if beside is Beside.FORMER else None,
        )
        query = replace(query, beside=computation.waiting() if waits else computation)
    attributes = {"plan": PLAN} if beside is Beside.PLAN else {}
    changed = replace(one, query=query, attributes=attributes)
    stored = replace(running.stored.changed(CatalogChange((changed,))), next_id=2000)
    found = restored(stored)
    assert not found.errors and not found.lost
    assert query == found.named("q").query and (query.phase, beside_of(query)) == (phase, beside)
    return found


def statement(text: str, query: str = "") -> Callable[[Draft], None]:
    def added(draft: Draft) -> None:
        draft.add(1, command_of(text, draft.bound, settings_of({})), text, query)

    return added


def waiting(text: str, query: str = "") -> Callable[[Draft], None]:
    """A statement whose query waits for rows, as the control finds before it is accepted."""

    def added(draft: Draft) -> None:
        known = {each.id for _, query in draft.stored.queries for each in query.computations}
        statement(text, query)(draft)
        for _, each in list(draft.stored.queries):
            if each.answer.id not in known and each.phase is Phase.ANSWERING:
                draft.have_wait(each.place)

    return added


def plan_begins(draft: Draft) -> None:
    one = draft.stored.named("q")
    assert one is not None
    draft.stored = draft.stored.changed(CatalogChange((replace(one, attributes={"plan": PLAN}),)))
    draft.take_step(1, EditStep(one.id, None))


def rows_came(draft: Draft) -> None:
    one = draft.stored.named("q")
    assert one is not None and one.query is not None
    draft.take_hold_step(1, HoldStep(one.id, one.query.place, 7))


def rows_came_beside(draft: Draft) -> None:
    one = draft.stored.named("q")
    assert one is not None
    draft.take_hold_step(1, HoldStep(one.id, 1001, 7))


def step(phase: Phase, until: int | None = None) -> Callable[[Draft], None]:
    def taken(draft: Draft) -> None:
        one = draft.stored.named("q")
        assert one is not None and one.query is not None
        beside = one.query.beside or StoredComputation(1002, 1001, WARM_WAIT, Phase.SHADOW, PLAN)
        draft.take_step(1, EditStep(one.id, replace(beside, phase=phase, until=until), 4))

    return taken


def fails(draft: Draft) -> None:
    one = draft.stored.named("q")
    assert one is not None and one.query is not None
    draft.fail(one.query.place, ERROR, one.query.answer.id)


def cannot_go_on(draft: Draft) -> None:
    one = draft.stored.named("q")
    assert one is not None
    draft.attention(one.id, ERROR, again=True)


def can_go_on(draft: Draft) -> None:
    one = draft.stored.named("q")
    assert one is not None
    draft.can_go_on(one)


def keeps_no_more(draft: Draft) -> None:
    one = draft.stored.named("q")
    assert one is not None
    draft.apply(one, KeepsNoMore())


def replacing(start: str) -> tuple[str, str]:
    return f"CREATE OR REPLACE QUERY q {start} AS {OTHER}", OTHER


WAYS: dict[Event, tuple[Callable[[Draft], None], ...]] = {
    Event.PAUSE: (statement("ALTER QUERY q PAUSE"),),
    Event.PAUSE_WITH_STATE: (statement("ALTER QUERY q PAUSE WITH STATE"),),
    Event.RESUME: (statement("ALTER QUERY q RESUME"), waiting("ALTER QUERY q RESUME START WARM WAIT")),
    Event.REPLACE: (
        statement(f"ALTER QUERY q AS {OTHER}"), statement(*replacing("")),
        waiting(f"ALTER QUERY q AS {OTHER}"), waiting(*replacing("START WARM")),
    ),
    Event.REPLACE_WAIT: (
        statement(f"ALTER QUERY q AS {OTHER} START WARM WAIT"), statement(*replacing("START WARM WAIT")),
        waiting(f"ALTER QUERY q AS {OTHER} START WARM WAIT"),
    ),
    Event.MOVE: (statement("ALTER QUERY q INTO MEMORY ()"), waiting("ALTER QUERY q INTO MEMORY ()")),
    Event.SET_PLAN: (
        statement(f"ALTER QUERY q SET (plan '{PLAN}')"), statement("ALTER QUERY q SET (plan '{}')"),
        statement('ALTER QUERY q SET (plan \'{"SUM": {"shape": null}}\')'),
    ),
    Event.SET: (statement("ALTER QUERY q SET (comment 'x')"),),
    Event.RENAME: (statement("ALTER QUERY q RENAME TO r"),),
    Event.SWAP: (statement("ALTER QUERY q SWAP WITH p"), statement("ALTER QUERY p SWAP WITH q")),
    Event.DROP: (statement("DROP QUERY q"),),
    Event.PLAN_BEGINS: (plan_begins,),
    Event.ROWS_CAME: (rows_came,),
    Event.ROWS_CAME_BESIDE: (rows_came_beside,),
    Event.TAKES_OVER: (step(Phase.SHADOW),),
    Event.FORMER_ENDED: (step(Phase.ENDING, 5),),
    Event.FAILED: (fails,),
    Event.BESIDE_FAILED: (lambda draft: draft.fail(1001, ERROR, 1002) and None,),
    Event.CANNOT_GO_ON: (cannot_go_on,),
    Event.CAN_GO_ON: (can_go_on,),
    Event.KEEPS_NO_MORE: (keeps_no_more,),
}  # fmt: skip


def tried(registry: Registry, way: Callable[[Draft], None]) -> StoredObject | str | None:
    """Return the query as it is then, None where it is gone, or why the statement is refused."""
    one = registry.named("q")
    draft = Draft.on(registry, {}, default_sink())
    try:
        way(draft)
    except PenstockError as error:
        assert error.code == "P0701", error
        return error.message
    return draft.stored.objects.get(one.id)


def observed(running: Registry, event: Event, phase: Phase, beside: Beside) -> Iterator[tuple[Registry, object]]:
    waits = (False, True) if beside in (Beside.PLAN, Beside.QUERY) else (False,)
    if event is Event.ROWS_CAME_BESIDE:
        waits = (True,) if len(waits) > 1 else (False,)
    if event is Event.TAKES_OVER:
        waits = (False,)
    for each in waits:
        registry = in_state(running, phase, beside, each)
        for way in WAYS[event]:
            yield registry, tried(registry, way)


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
def test_an_event_makes_of_a_query_what_the_table_says(running: Registry, event: Event) -> None:
    for phase, beside in STATES:
        expected, seen = verdict(event, phase, beside), set[tuple[Phase, Beside]]()
        for registry, became in observed(running, event, phase, beside):
            before = registry.named("q")
            case = event, phase, beside, became
            if isinstance(expected, Refusal):
                assert isinstance(became, str), case
                words = expected.value[0].format(name="q", status=before.query and before.query.status.value, verb="")
                assert became.startswith(words.strip()), case
            elif isinstance(expected, Becomes):
                assert not isinstance(became, str), case
                if became is None:
                    assert not expected.phases, case
                    continue
                assert isinstance(became, StoredObject) and became.query is not None
                seen.add((became.query.phase, beside_of(became.query)))
            else:
                assert expected is NOTHING and isinstance(became, StoredObject), case
                assert became.query == before.query, case
        if isinstance(expected, Becomes):
            besides = {beside} if expected.beside is None else expected.beside
            # Where both can be otherwise, it is one of them that is.
            assert seen <= {(one, other) for one in expected.phases for other in besides}, (event, phase, beside, seen)
            assert {one for one, _ in seen} == expected.phases, (event, phase, beside, seen)
            assert {other for _, other in seen} == (besides if expected.phases else set()), (event, phase, beside, seen)


def test_after_a_swap_the_former_plan_goes_on_with_its_own_query(running: Registry) -> None:
    registry = in_state(running, Phase.ANSWERING, Beside.FORMER)
    p = registry.named("p")
    stored = registry.stored.changed(CatalogChange((replace(p, text=OTHER),)))
    draft = Draft.on(restored(stored), {}, default_sink())
    statement("ALTER QUERY q SWAP WITH p")(draft)
    one = draft.stored.named("q")
    assert one is not None and one.query is not None and one.query.beside is not None
    assert one.text == OTHER and one.query.beside.definition == registry.named("q").definition
    roots = {name: query.root.fingerprint for name, query in draft.bound.queries.items()}
    assert draft.bound.beside["q"].query.root.fingerprint == roots["p"] != roots["q"]
    # The same where it is bound anew.
    again = restored(draft.stored).bound
    assert again.beside["q"].query.root.fingerprint == roots["p"]


def test_the_page_is_current() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "life.md"
    assert page.read_text(encoding="utf-8") == life_page(), (
        "renew it: python -m penstock.control.life.page > docs/life.md"
    )


def test_every_rule_counts() -> None:
    """A rule that no phase reaches would say what never happens."""
    for rule in RULES:
        reached = [
            (phase, beside)
            for phase in rule.phases
            for beside in rule.beside
            if beside in POSSIBLE[phase]
            and next(r for r in RULES if r.event is rule.event and phase in r.phases and beside in r.beside) is rule
        ]
        assert reached, rule


def test_a_statement_that_is_refused_says_why() -> None:
    refusing = {event for event in Event for state in STATES if isinstance(verdict(event, *state), Refusal)}
    states = {
        event for event in Event for state in STATES if verdict(event, *state) in (Refusal.STATE, Refusal.NOT_BEGUN)
    }
    assert states == set(transitions._VERBS) and refusing > states
