"""One thread for numerical libraries: a run has a process for every CPU, and its matrices are small.

Where the CPUs are busy, a library's threads wait for each other: factoring a 256 x 256 matrix took 12 ms of CPU
instead of 0.25.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

ONE_THREAD: Final[Mapping[str, str]] = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Variables of the environment that say so."""


def one_thread() -> None:
    """Say so in this process, unless its user said otherwise. Works before NumPy is imported, not afterwards."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
