"""What may be decided by a clock, and waiting by one."""
