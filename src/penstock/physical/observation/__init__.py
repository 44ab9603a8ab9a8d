"""What is seen of streams beside the answers of queries."""
