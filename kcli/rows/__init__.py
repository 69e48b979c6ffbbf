"""-o: rows of declared, versioned shapes (shapes), in seven formats (row_formats), printed as they
arrive (listing).
"""
