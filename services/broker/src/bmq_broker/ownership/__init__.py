"""Which partitions a broker owns: opened, inherited, moved away, handed over."""
