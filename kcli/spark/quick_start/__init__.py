"""A directory for PYTHONPATH: its sitecustomize runs first in each Python that Spark starts."""

from __future__ import annotations

import os

DIRECTORY = os.path.dirname(os.path.abspath(__file__))
