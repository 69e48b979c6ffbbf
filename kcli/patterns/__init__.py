"""Java's regular expressions in Python."""
