"""From statements to algebra: names looked up, types and meaning checked, every error collected."""
