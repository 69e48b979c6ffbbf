#!/bin/sh
# Make ./.venv with all that the tests need from Python, and run them in two processes.
#
#     sh tests/run.sh [--quick | --second] [PYTEST ARGUMENTS]
#
# --quick runs what is fast, --second what is left out otherwise: Spark, Apache's brokers and scripts
# beside ours, a gigabyte reassigned, a hundred more simulated clusters, and the contract of the wire
# protocol held to Apache's brokers.  Files that are named run in any case.  What else is installed
# (Java, Maven, Node, Go, Rust's Cargo, kcat, zsh, fish) is used; what is not is named at the end with
# the line that installs it.  With CI set, absence fails; a Cargo older than the clients need is only
# named.  Tests that failed run once more, alone (tests/stage.py).
set -eu
cd "$(dirname "$0")/.."
stage=first
case "${1-}" in
--quick | --second)
    stage=${1#--}
    shift
    ;;
esac
for word; do
    case $word in tests/*) stage= ;; esac
done
python=${PYTHON:-python3}
venv=${VENV:-.venv}
if [ ! -x "$venv/bin/python" ]; then
    "$python" -m venv "$venv" || {
        echo 'python3 cannot make a virtual environment; on Debian: apt-get install python3-venv' >&2
        exit 1
    }
fi
# The tests start thousands of processes: without bytecode each compiles the packages anew, for longer
# than it runs.
unset PYTHONDONTWRITEBYTECODE
"$venv/bin/pip" install --quiet --disable-pip-version-check -e '.[test,spark]'
"$venv/bin/python" tests/stage.py ${stage:+--stage="$stage"} "$@"
if [ "$stage" = second ]; then
    BROKERS='3.9.2 4.3.1' "$venv/bin/python" tests/stage.py "$@" tests/contract/api
fi
