"""Base of all commands: words, options, work, output, exit statuses."""
