"""One file per API key; table.py lists them."""
