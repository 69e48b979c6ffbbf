"""Every key of server.properties, one module per section, in the order of the man page."""
