"""The logical operators, one file per family, and the base class they share."""
