"""The write-ahead log: every object of every stream, and where streams end."""
