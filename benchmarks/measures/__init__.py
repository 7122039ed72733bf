"""One module per topic of the table; each yields rows."""
