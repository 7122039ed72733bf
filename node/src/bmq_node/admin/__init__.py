"""The admin address: its server, pages and metrics."""
