"""The admin address: its server, tokens, pages and metrics."""
