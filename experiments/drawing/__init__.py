"""How figures become pictures: ``style`` draws (matplotlib), ``svg`` writes, ``manifest`` knows what is up to date."""
