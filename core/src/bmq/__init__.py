"""bmq's shared kernel: what two or more services need."""
