"""Groups of an aggregate: their rows, the changes of them, values and registers, and what they amount to."""
