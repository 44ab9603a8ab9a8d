"""The keys of posts in memory: the same as a dictionary, in a few bytes each."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from penstock.connectors.sources.posted_keys import KnownKeys, PostKey


@pytest.mark.parametrize("seed", range(3))
def test_they_are_a_dictionary(seed: int) -> None:
    draw, keys, model = random.Random(seed), KnownKeys(), dict[str, tuple[str, int]]()
    for at in range(4_000):
        key, action = f"k{draw.randrange(2_000)}", draw.random()
        if action < 0.85:
            digest = str(draw.randrange(5))
            keys.add(key, digest, at)
            model[key] = digest, at
        elif action < 0.995:
            keys.remove(key)
            model.pop(key, None)
        else:
            keys.expire(at - 1_500, at)
            model = {one: post for one, post in model.items() if post[1] >= at - 1_500}
        if at % 200 == 0:
            for one in [f"k{number}" for number in range(0, 2_000, 7)]:
                assert keys.at(one) == (model[one][1] if one in model else None)
                assert [keys.has(one, str(d)) for d in range(5)] == [
                    one in model and model[one][0] == str(d) for d in range(5)
                ]
    assert len(keys) == len(model) > 500
    assert len(keys._arrays) <= 6


def test_the_latest_post_with_a_key_counts() -> None:
    posts = [
        PostKey(2, "a", "new", 20),
        PostKey(1, "a", "old", 10),
        PostKey(3, "", "", 30),
        PostKey(4, "\ud800", "x", 40),
    ]
    keys = KnownKeys.of(posts)
    assert len(keys) == 2 and keys.at("a") == 20 and keys.has("a", "new") and not keys.has("a", "old")
    assert keys.at("\ud800") == 40 and keys.at("") is None


def test_a_key_takes_few_bytes() -> None:
    count = 5_000
    tracemalloc.start()
    try:
        keys = KnownKeys()
        for number in range(count):
            keys.add(f"producer {number:032x}", f"{number:064x}", number)
        taken = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    # As objects with their texts they took 500.
    assert taken < 60
    keys.expire(count, 2**62)
    assert len(keys) == 0 and keys._arrays == []
