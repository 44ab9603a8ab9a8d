"""What a run decides by measuring, once for each round: the deciders, and what they are given."""
