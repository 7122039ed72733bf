"""What a role answers to calls."""
