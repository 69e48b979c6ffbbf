"""A broker's files, as dump-log reads them (segment_files) and prints them (segment_text,
segment_rows), including messages older than batches (old_messages).
"""
