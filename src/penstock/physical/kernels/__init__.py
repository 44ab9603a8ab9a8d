"""Compiled and vectorised kernels: grouping, sorting, trees, heaps, encodings, arithmetic of ticks."""
