"""`python -m kserver [server.properties] [--override k=v ...]`: the same as `k server-start`."""

from __future__ import annotations

import argparse
import sys

from kserver.errors import ConfigError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m kserver", description="Start a broker.")
    parser.add_argument("properties", nargs="?", help="as Kafka's server.properties")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="wins over the file"
    )
    given = parser.parse_args(arguments)
    from kserver.broker.process import load, run

    try:
        config = load(given.properties, given.override)
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return run(config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
