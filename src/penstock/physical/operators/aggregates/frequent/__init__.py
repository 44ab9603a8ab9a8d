"""Frequent items: the lists of complete panes, and the items that are frequent in all live lists `[golab 6]`."""
