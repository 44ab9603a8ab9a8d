"""What is known of sampled rows, and what is estimated from them."""
