"""Reading an `afterSeq` leniently."""

from __future__ import annotations

import math
from typing import Any

_MOST = (1 << 63) - 1
NOT_A_SEQ = -1
"""What stands for an afterSeq that is not a non-negative integer."""


def after_seq(value: Any) -> int:
    """An `afterSeq` that is present: the integer, or NOT_A_SEQ."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return NOT_A_SEQ
    if isinstance(value, float) and not (math.isfinite(value) and value.is_integer()):
        return NOT_A_SEQ
    return NOT_A_SEQ if value < 0 else min(int(value), _MOST)
