"""A stand-in for the authors' `dist_fft.py`, with the signature that the benchmark calls: not their program.

It gathers the whole dimension on every device, where theirs sends each device its part.
"""

import einops  # noqa: F401  # theirs imports it too
import jax
import jax.numpy as jnp
from jax import lax


class DistFFT:
    """Theirs has more methods, which the benchmark does not call."""

    def __init__(self, axis_names: tuple[str, ...], partition: tuple[int, int, int], backend: str = "tpu") -> None:
        if backend not in ("tpu", "gpu", "cpu"):
            raise ValueError(backend)
        self.names, self.partition = axis_names, partition

    def partitioned_fft_1d(
        self, partitioned_input: jax.Array, axis: int, inverse: bool = False, margin_width: int = 0
    ) -> jax.Array:
        """The transform along one dimension of a block (x, y, z) that `partition` cuts."""
        n, name = partitioned_input.shape[axis], self.names[axis]
        whole = jnp.fft.fft(lax.all_gather(partitioned_input, name, axis=axis, tiled=True), axis=axis)
        return lax.dynamic_slice_in_dim(whole, n * lax.axis_index(name), n, axis)
