"""Definitions of what is approximate, carried out naively: sketches, samples and their estimates, and load shedding."""
