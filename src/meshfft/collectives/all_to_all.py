"""The exchange behind every transpose: mesh axes leave one dimension of a block and cut another, in one all_to_all.

Knows nothing of Fourier. Moves (p - 1)/p of the block per device.
"""

import math

from jax import Array, lax


def exchange(block: Array, axis_names: tuple[str, ...], split_dim: int, concat_dim: int) -> Array:
    """Splits `split_dim` over the ring of mesh axes and joins the parts received along `concat_dim`, in ring order."""
    if math.prod(lax.axis_size(name) for name in axis_names) == 1:
        return block
    return lax.all_to_all(block, axis_names, split_dim, concat_dim, tiled=True)
