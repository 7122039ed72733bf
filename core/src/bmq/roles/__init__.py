"""What one role asks of another. In one process these are direct calls; between processes, the internal listener."""
