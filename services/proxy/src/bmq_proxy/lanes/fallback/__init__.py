"""Lanes that fall back: what nobody in them consumes goes on to the base (docs/decisions/0052)."""
