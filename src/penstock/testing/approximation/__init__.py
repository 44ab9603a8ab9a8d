"""Load shedding carried out naively."""
