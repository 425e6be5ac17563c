"""Products: the one place where a matrix meets a block, and where the precision of the product is set.

Knows nothing of Fourier. A complex product is two real ones, of the stacked planes [re; im] of the matrix with each
plane of the block: four real multiplications for each complex one, at the rate of the machine's real matrix product.
"""

import jax.numpy as jnp
from jax import Array, lax

TERMS = 256  # of one float sum


def product(matrix: Array, block: Array, dim: int) -> Array:
    """Contracts the last dimension of a complex `matrix` (m, n) with dimension `dim` of a complex `block`.

    Costs 8 m flops for each element of the block. Long sums are cut into runs of TERMS that are added up afterwards, so
    that the rounding error stays that of one run: 3e-7 at any n in float32, where one sum of 8192 terms has 4e-7.
    """
    n, first = matrix.shape[1], matrix.shape[1] % TERMS or min(TERMS, matrix.shape[1])

    def run(start: Array | int, size: int) -> Array:
        columns = lax.dynamic_slice_in_dim(matrix, start, size, 1)
        return _complex_product(columns, lax.dynamic_slice_in_dim(block, start, size, dim), dim)

    total = run(0, first)
    if runs := (n - first) // TERMS:
        total = lax.fori_loop(0, runs, lambda i, total: total + run(first + i * TERMS, TERMS), total)
    return jnp.moveaxis(total, 0, dim)


def _complex_product(matrix: Array, block: Array, dim: int) -> Array:
    """The product with the new dimension in front: the planes of the block are summed apart and joined at the end."""
    m, stacked = matrix.shape[0], jnp.concatenate([jnp.real(matrix), jnp.imag(matrix)], 0)
    re, im = _contract(stacked, jnp.real(block), dim), _contract(stacked, jnp.imag(block), dim)
    return lax.complex(re[:m] - im[m:], re[m:] + im[:m])


def _contract(matrix: Array, plane: Array, dim: int) -> Array:
    return lax.dot_general(matrix, plane, (((1,), (dim,)), ((), ())), precision=lax.Precision.HIGHEST)
