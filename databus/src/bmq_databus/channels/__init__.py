"""What applications write to by name, and where it goes."""
