"""Group commit: what partitions append becomes WAL objects."""
