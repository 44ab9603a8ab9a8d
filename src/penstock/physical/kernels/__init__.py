"""Compiled and vectorised building blocks: grouping, sorting, trees, heaps, encodings, arithmetic of ticks."""
