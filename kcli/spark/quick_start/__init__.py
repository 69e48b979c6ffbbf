"""A directory for PYTHONPATH: what each Python that Spark starts runs first."""

from __future__ import annotations

import os

DIRECTORY = os.path.dirname(os.path.abspath(__file__))
