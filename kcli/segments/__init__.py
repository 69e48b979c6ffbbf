"""A broker's files, as dump-log reads them (segment_files) and prints them (segment_text,
segment_rows), messages older than batches among them (old_messages)."""
