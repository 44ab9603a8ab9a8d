"""Row windows count in order of arrival: it survives the way from the readers to the operator."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.windows import RowWindow
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.plan.plan import Channel, Exchange, channels_into
from penstock.physical.plan.windows import RowWindowSpec
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.spark.worker.packets import (
    AnswerOf,
    ChannelRows,
    FewOfMany,
    PacketKind,
    Signal,
    answer_packets,
    channel_packets,
    encode_kind,
    progress_packet,
    read_elements,
    read_kind,
)
from penstock.tree import walk
from penstock.types import END
from tests.element_rows import element_rows
from tests.shard_rounds import shard_round

STREAM = "CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"


def elements(*values: int) -> Elements:
    column = pa.array(values, pa.int32())
    return Elements((column,), np.full(len(values), 5, np.int64), np.full(len(values), END, np.int64))


def test_packets_are_taken_in_the_order_of_their_senders() -> None:
    """A round of a shard on Spark, with packets shuffled in any order."""
    plan = plan_queries(bind_script(STREAM + "CREATE QUERY q AS SELECT a FROM S [ROWS 2];").queries)
    window = next(s for s in plan.steps if isinstance(s.spec, RowWindowSpec))
    (channel,) = channels_into(window)
    whole = [elements(1, 2), elements(3), elements(4), elements(6, 5)]
    sent = []
    for task, batch in enumerate(whole):
        three = Elements((batch.columns[0],) * 3, batch.ts, batch.exp)
        # A batch with signs cannot share a packet with one without.
        parts = [three.slice(0, 1), Elements(three.columns, three.ts, three.exp, three.signs).slice(1, len(three))]
        sent += channel_packets(0, channel, [part for part in parts if len(part)], task)
    order = [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (3, 1)]
    assert [p.kind for p in sent] == [ChannelRows(channel, sender, number) for sender, number in order]
    seen = progress_packet(0, {"S": SourceProgress(5, 5, True)})
    for number, order in enumerate(itertools.islice(itertools.permutations(sent), 0, None, 50)):
        found = shard_round(f"root{number}", plan, 1).run(0, [*order, seen])
        answers = [e for p in found if p.kind == AnswerOf("q") for e in read_elements(p.blob)]
        assert [(ts, sign, value) for e in answers for ts, _, sign, value in element_rows(e)] == [(5, 1, 6), (5, 1, 5)]


def test_an_answer_has_no_sender() -> None:
    (packet,) = answer_packets(0, "q", [elements(1)])
    assert packet.kind == AnswerOf("q")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ChannelRows(Channel(12, Exchange((1, 10))), 3, 40), "rows:12:1,10:3:40"),
        (ChannelRows(Channel(0, Exchange(())), 0, 0), "rows:0::0:0"),
        (ChannelRows(Channel(7, Exchange(None)), 3, 1), "rows:7:any:3:1"),
        (ChannelRows(Channel(7, Exchange((), True)), 3, 1), "rows:7:/all:3:1"),
        (AnswerOf("q"), "answer:q"),
        (AnswerOf("a:b: c"), "answer:a:b: c"),
        (AnswerOf("progress"), "answer:progress"),
        (AnswerOf("answers"), "answer:answers"),
        (FewOfMany(), "answers"),
        *((signal, signal.value) for signal in Signal),
    ],
)
def test_a_kind_of_packets_survives_its_text(kind: PacketKind, text: str) -> None:
    assert encode_kind(kind) == text
    assert read_kind(text) == kind


VIEWS = [
    ("SELECT a FROM S [ROWS 1]", True),
    ("SELECT a FROM (SELECT k, a FROM S WHERE a > 1) [ROWS 1] z", True),
    ("SELECT a FROM (SELECT a FROM (SELECT k, a FROM S) y WHERE k = 1) [ROWS 1 WHERE a > 1] z", True),
    ("SELECT a FROM S [ROWS 1] SAMPLE(50)", True),
    ("WSTREAM(SELECT a FROM S [RANGE 3 SECOND])[ROWS 2]", True),
    ("WSTREAM(SELECT a FROM S [RANGE 3 SECOND SLIDE 3 SECOND])[ROWS 2]", False),
    ("SELECT a FROM (SELECT DISTINCT a FROM S) [ROWS 1] z", False),
    ("SELECT a FROM (ISTREAM(SELECT a FROM S [NOW])) [ROWS 1] z", False),
    ("SELECT a FROM (RSTREAM(SELECT a FROM S)) [ROWS 1] z", False),
]


@pytest.mark.parametrize(("text", "ordered"), VIEWS)
def test_which_streams_have_an_order_of_arrival(text: str, ordered: bool) -> None:
    (query,) = bind_script(f"{STREAM} CREATE QUERY q AS {text};").queries
    (window,) = (n for n in walk(query.root) if isinstance(n, RowWindow))
    assert (in_arrival_order(window.input) is not None) == ordered
    (step,) = (s for s in plan_queries([query]).steps if isinstance(s.spec, RowWindowSpec))
    assert step.spec.arrival == ordered
    assert not ordered or step.stage == 1
