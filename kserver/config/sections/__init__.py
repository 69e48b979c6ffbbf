"""Every key of server.properties, a module per section, in the order of the man page."""
