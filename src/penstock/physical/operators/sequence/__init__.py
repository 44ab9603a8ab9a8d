"""The sequence model: frequency operators, and queries whose instants are single elements."""
