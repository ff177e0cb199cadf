"""How figures become pictures: ``style`` draws (matplotlib), ``svg`` writes."""
