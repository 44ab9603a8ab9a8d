"""What a start or a change of a run begins, keeps and ends, and the past that its new queries read before it."""
