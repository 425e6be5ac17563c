"""What a process holds of a piece: the host's copies, the devices' peak, and the buffers of a transfer.

    bytes = a piece as it comes + one as it goes + devices x Plan.peak_bytes + 3 transfers in + 3 transfers out

Host integers only. Invariant: the larger a budget is, the more it leaves besides its buffers.
"""

import math

import numpy as np

from ..layout.layout import axis_sizes
from ..numerics.dtypes import real_dtype
from ..plans.plan import Plan
from .partition import least

TRANSFER_BYTES = 2**25  # larger ones are no faster


def transfer_bytes(budget: int) -> int:
    """How much a process with a budget reads or writes at a time."""
    return min(budget // 16, TRANSFER_BYTES)


def buffer_bytes(budget: int, chunk_bytes: int = 1) -> int:
    """Bytes of the buffers of such a process: on its way in, and on its way out, a transfer is held three times.

    Once as part of a piece, once in chunks, once as the bytes of these in a file. What is read is one chunk at least.
    """
    often = 3 * transfer_bytes(budget)
    return min(3 * budget // 8, 6 * TRANSFER_BYTES) + max(0, 3 * chunk_bytes - often)


def least_budget(held: int, chunk_bytes: int) -> int:
    """The least budget in which a process can hold `held` bytes besides its buffers."""
    return least(2 * (held + 3 * chunk_bytes) + 16, lambda budget: held + buffer_bytes(budget, chunk_bytes) <= budget)


def given_dtype(plan: Plan, dtype: np.dtype) -> np.dtype:
    """The type in which a plan is given numbers that are stored as `dtype`: a real one where they are real."""
    return plan.in_dtype if dtype.kind == "c" else real_dtype(plan.dtype)


def host_bytes(plan: Plan, dtype: np.dtype) -> int:
    """Bytes of the host's copies of a piece stored as `dtype`.

    It comes, and is converted where it has to be; the one before it may still be on its way out.
    """
    given = given_dtype(plan, dtype)
    comes = dtype.itemsize + (given.itemsize if given != dtype else 0)
    return math.prod(plan.shape) * comes + math.prod(plan.out_shape) * plan.out_dtype.itemsize


def peak_bytes(plan: Plan, dtype: np.dtype) -> int:
    """Those, and the modelled bytes of all devices at their peak."""
    return host_bytes(plan, dtype) + math.prod(axis_sizes(plan.mesh).values()) * plan.peak_bytes
