"""How figures become pictures (matplotlib)."""
