"""console-producer and console-consumer: records between a pipe and a topic.

lines and envelopes in     input, line_reader, envelope_input, encodings; a record: incoming
... to a topic             sending, at a rate: pace
ranges to read             offset_range (the grammar), extent (in the log)
records out                reading, record_filter, formatters, format_strings, envelopes
"""
