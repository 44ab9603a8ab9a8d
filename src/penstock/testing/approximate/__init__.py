"""Approximate answers by their definitions: estimates over samples, sketches, load shedding. Part of the oracle."""
