"""A past is read beside a run: other changes interrupt that, and it is used once or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

from penstock.runtime.spark.changes.interrupted_reading import InterruptedReading
from penstock.runtime.spark.changes.prefetch import Prefetch, Share


class Steps:
    """Stands for a past of parts, each read when it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun: list[Any] = []
        self.discarded = self.looks = 0

    def begin(self) -> Prefetch:
        steps = self

        class Parts:
            catching_up = type("Read", (), {"starts": {"q1": None, "q2": None}, "share": 0.5})()
            is_whole = False

            def read(self, pause: Share) -> None:
                while not steps.go.is_set():
                    steps.looks += 1
                    pause(0.0)
                    time.sleep(0.001)
                self.is_whole = True

            def discard(self) -> None:
                steps.discarded += 1

        self.begun.append(Parts())
        return cast(Prefetch, self.begun[-1])


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def started(reading: InterruptedReading) -> threading.Thread:
    thread = threading.Thread(target=reading.read)
    thread.start()
    return thread


def test_a_change_interrupts_a_reading_which_goes_on_behind_it() -> None:
    steps, turn = Steps(), threading.Lock()
    reading = InterruptedReading(steps.begin, 0.5, lambda: False, turn)
    thread = started(reading)
    until(lambda: len(steps.begun) == 1)
    until(lambda: reading.shares() == {"q1": 0.5, "q2": 0.5})
    for _ in range(5):
        reading.suspend()
        looks = steps.looks
        assert reading.shares() == {"q1": 0.5, "q2": 0.5}
        time.sleep(0.02)
        assert steps.looks == looks, "nothing is read meanwhile"
        reading.resume()
        until(lambda looks=looks: steps.looks > looks)  # type: ignore[misc]
    steps.go.set()
    thread.join(30)
    read = reading.take()
    assert len(steps.begun) == 1 and read is steps.begun[0] and steps.begun[0].is_whole
    assert reading.take() is None
    reading.release()
    reading.release()
    assert not turn.locked() and steps.discarded == 0


def test_what_was_read_is_still_there_after_another_change() -> None:
    steps = Steps()
    steps.go.set()
    reading = InterruptedReading(steps.begin, 0.5, lambda: False, threading.Lock())
    started(reading).join(30)
    reading.suspend()
    reading.resume()
    assert reading.take() is steps.begun[0] and steps.discarded == 0


def test_a_reading_ends_while_it_is_suspended() -> None:
    steps = Steps()
    reading = InterruptedReading(steps.begin, 0.5, lambda: False, threading.Lock())
    thread = started(reading)
    until(lambda: len(steps.begun) == 1)
    reading.suspend()
    reading.end()
    thread.join(30)
    assert not thread.is_alive()
    reading.release()
    assert steps.discarded == 1


def test_one_reading_at_a_time_has_the_turn_until_it_is_used() -> None:
    steps, turn = Steps(), threading.Lock()
    first, second, third = (InterruptedReading(steps.begin, 0.5, lambda: False, turn) for _ in range(3))
    threads = [started(first)]
    until(lambda: len(steps.begun) == 1)
    threads += [started(second), started(third)]
    steps.go.set()
    threads[0].join(30)
    time.sleep(0.1)
    assert len(steps.begun) == 1, "what the first has read is not used yet"
    third.end()
    threads[2].join(30)
    assert first.take() is not None
    first.release()
    threads[1].join(30)
    assert len(steps.begun) == 2 and second.take() is not None
    third.release()
    assert turn.locked(), "a reading that never had the turn cannot give it away"
    second.release()
    assert not turn.locked()


def test_a_reading_that_nobody_needs_ends() -> None:
    steps = Steps()
    reading = InterruptedReading(steps.begin, 0.01, lambda: True, threading.Lock())
    thread = started(reading)
    until(lambda: len(steps.begun) == 1)
    reading.end()
    thread.join(30)
    assert not thread.is_alive()
    reading.release()
    assert steps.discarded == 1
