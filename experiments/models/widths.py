"""Widths that are not integers, as counts."""

from __future__ import annotations

import torch
from torch import Tensor


def rounded_up(width: Tensor, K: int) -> Tensor:
    """Round a width up to a count from 1 to K: int64.

    An excess of 1e-9 is ignored, so that an initial width of 16 stays 16 in spite of rounding errors.
    """
    return torch.ceil((width - 1e-9).clamp(1, K)).to(torch.int64)
