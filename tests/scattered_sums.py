"""Truth at scattered points: direct sums in float64, and random coordinates."""

import numpy as np
from reference import powers


def coordinates(shape: tuple[int, ...], dims: int, seed: int = 0, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, (*shape, dims)).astype(dtype)


def factors(k: np.ndarray, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """Matrices V_m[j, n] of every dimension m, in float64, at the flattened points."""
    return [powers(line, None, n) for line, n in zip(k.reshape(-1, k.shape[-1]).T, sizes, strict=True)]


def direct(x: np.ndarray, k: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The sum over the axes at every point, batch dimensions first."""
    moved = np.moveaxis(x.astype(complex), axes, range(x.ndim - len(axes), x.ndim))
    batch, sizes = moved.shape[: x.ndim - len(axes)], moved.shape[x.ndim - len(axes) :]
    letters = "abc"[: len(axes)]
    rows = ",".join("j" + c for c in letters)
    y = np.einsum(f"z{letters},{rows}->zj", moved.reshape(-1, *sizes), *factors(k, sizes), optimize=True)
    return y.reshape(*batch, *k.shape[:-1])


def direct_back(c: np.ndarray, k: np.ndarray, axes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """The transpose of `direct`."""
    sizes, letters = tuple(shape[d] for d in axes), "abc"[: len(axes)]
    rows = ",".join("j" + c for c in letters)
    batch = c.shape[: c.ndim - k.ndim + 1]
    flat = c.astype(complex).reshape(-1, k[..., 0].size)
    y = np.einsum(f"zj,{rows}->z{letters}", flat, *factors(k, sizes), optimize=True).reshape(*batch, *sizes)
    return np.moveaxis(y, range(y.ndim - len(axes), y.ndim), axes)
