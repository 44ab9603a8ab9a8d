"""From statements to algebra: resolves names, checks types and meaning, collects every error."""
