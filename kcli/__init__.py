"""The command `k` and the client library beneath it.

Where is ...?

    every command, exit statuses               main.py
    one command: options, words, differences   commands/<name>.py
    how words are read, --help                 command.py
    options that commands share                options.py
    the event loop, --timeout, refusals        running.py
    stdout, stderr, what a terminal is sent    output.py, progress.py
    -o: rows, their shapes and formats         listing.py, shapes.py, row_formats.py
    the manual pages                           manual.py
    lines in, records out; and back            sending.py, line_reader.py; reading.py, formatters.py
    completion in a shell                      completion.py, completion_values.py, cluster_names.py
    kafka_broker, the fixture of pytest        pytest_plugin.py; its brokers: broker_nursery.py
    a broker's files                           segment_files.py, old_messages.py, control_records.py
    ... as text and as rows                    segment_text.py; segment_rows.py, segment_shapes.py
    producer, consumer, admin                  client/
"""
