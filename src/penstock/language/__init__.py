"""The language: text to statements, statements to algebra, and back. The only user of sqlglot."""
