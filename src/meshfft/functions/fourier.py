"""numpy.fft's transforms of sharded arrays, and those of scipy.fft alone: complex, real, and Hermitian.

Mesh axes that do not divide a result move to dimensions that they divide; failing that, or for a PaddedArray, the
result is a PaddedArray. The halved dimension, the last of `axes`, is transformed first in `rfftn` and last in `irfftn`,
so that exchanges before or after it are real.
"""

from typing import Unpack

from ..layout.padded_array import AnyArray
from ..layout.padded_array import Transformed as Form
from ..plans.options import How, onto_real, with_options
from .calls import Ints, line, over


@with_options
def fftn(a: AnyArray, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[How]) -> Form:
    """The discrete Fourier transform of a sharded array, as numpy.fft.fftn.

        X[k] = scale sum_n a[n] exp(-2 pi i k n / N)   along every axis

    Args:
        a: a sharded, replicated or single-device array of any numeric type, or
            its real and imaginary parts (re, im).
        s: transform lengths; shorter crops, longer pads with zeros, -1 keeps.
        axes: dimensions; None means all, or the last len(s).
        norm: "backward" (scale 1), "ortho" (1 / sqrt(points)) or "forward"
            (1 / points), over all transformed points.
        method: "auto", "transpose", "cooley-tukey" (the paper's FFT) or "kdft"
            (the paper's KDFT).
        order: "natural": sharded as the array; "any": the cheapest layout
            ("natural" inside `jit` under Auto mesh axes).
        spec: PartitionSpec of the array, needed inside your own `shard_map`
            and, on TPUs, in `jit` under Auto mesh axes. In `shard_map`, `a` is
            a block, and `s` refers to the whole array.
        out_spec: PartitionSpec of the result, by default that of the array;
            sizes that it does not divide are padded (see `PaddedArray`). Not
            with order="any".
        precision: "float32" or "float64" instead of the array's; for dense
            products also the tiers of `kdftn`.
        ring: "one-way", "two-way" or "auto", as `kdftn`, if the plan has one.
        engine: of local FFTs: "auto", the cheapest (on TPUs also vector kernels
            that passed a trial there), or "xla".
        wire: encoding of all-to-alls and rings: "exact"; "int24" or "int16",
            integers with one power of two for up to 64 numbers of a line, 3/4
            or 1/2 of float32's bytes; "bfloat16", 1/2. {"outer": "int16"}
            rounds only messages between nodes, slices or hosts; {"inner":
            "int24", "outer": "int16"} sets both. A collective over both levels
            in one stage counts as "outer". The gradient in `a` uses the same
            encoding. `print(mf.plan(...))` has the error.
        donate: delete the array and store the result in its memory, as
            `jax.jit(donate_argnums=0)`. No effect inside `jit`, `grad` or
            `vmap`, or on a NumPy array.

    Returns:
        The spectrum in natural index order, complex64 for input of up to 32
        bits, complex128 for 64; as (re, im) if `a` is.

    Raises:
        ValueError, TypeError: an argument that does not fit, or donate=True if
            type, shape or block size changes; the message has the remedy.

    Costs 5 n log2 n flops for n points and, by transposes, at most two
    all-to-alls of (p - 1)/p of a device's block for each dimension cut into p;
    no all-gather or all-reduce.

    >>> mf.fftn(jnp.ones((2, 2))).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return over(a, "fft", s, axes, norm, how)


@with_options
def ifftn(a: AnyArray, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[How]) -> Form:
    """The inverse of `fftn`, as numpy.fft.ifftn: sign +, by default 1 / points.

    >>> mf.ifftn(mf.fftn(jnp.ones((2, 2)))).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return over(a, "fft", s, axes, norm, how, inverse=True)


@with_options
def fft2(a: AnyArray, s: Ints = None, axes: Ints = (-2, -1), norm: str | None = None, **how: Unpack[How]) -> Form:
    """`fftn` over the last two dimensions, as numpy.fft.fft2.

    >>> mf.fft2(jnp.ones((2, 2))).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return over(a, "fft", s, axes, norm, how)


@with_options
def ifft2(a: AnyArray, s: Ints = None, axes: Ints = (-2, -1), norm: str | None = None, **how: Unpack[How]) -> Form:
    """`ifftn` over the last two dimensions, as numpy.fft.ifft2.

    >>> mf.ifft2(4 * jnp.ones((2, 2))).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return over(a, "fft", s, axes, norm, how, inverse=True)


@with_options
def fft(a: AnyArray, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[How]) -> Form:
    """`fftn` along one dimension, as numpy.fft.fft.

    >>> mf.fft(jnp.ones(4)).real.tolist()
    [4.0, 0.0, 0.0, 0.0]
    """
    return over(a, "fft", *line(n, axis), norm, how)


@with_options
def ifft(a: AnyArray, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[How]) -> Form:
    """`ifftn` along one dimension, as numpy.fft.ifft.

    >>> mf.ifft(mf.fft(jnp.ones(4))).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return over(a, "fft", *line(n, axis), norm, how, inverse=True)


@with_options
def rfftn(a: AnyArray, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[How]) -> Form:
    """The half of a real array's spectrum that determines the rest, as
    numpy.fft.rfftn.

        X[k_1, ..., k_d] = scale sum_n a[n] exp(-2 pi i sum_j k_j n_j / N_j),
                           k_d = 0 ... N_d // 2

    Args:
        a: as `a` of `fftn`, but real; or a tuple (a,), which returns (re, im).
        s, axes, norm: as numpy.fft.rfftn; the last axis is the halved one.
        method, ..., donate: as `fftn`.

    Returns:
        The half spectrum, of NumPy's shape, sharded as `a` if the mesh axes
        that cut the last of `axes` divide N_d // 2 + 1. If not, they move to
        another dimension, in front of the mesh axes there; `mf.out_spec`
        returns the new spec. In a plan or `shard_map`, for a PaddedArray, or if
        no dimension takes them, they stay and the result is padded.

    Raises:
        ValueError, TypeError: as `fftn`; a complex array.

    Costs little more than half the flops, bytes and memory of `fftn`. A
    one-dimensional array in p shards is fastest if 2 p^2 divides its length.

    >>> mf.rfftn(jnp.ones((2, 4))).real.tolist()
    [[8.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return over(a, "rfft", s, axes, norm, how)


@with_options
def rfft2(a: AnyArray, s: Ints = None, axes: Ints = (-2, -1), norm: str | None = None, **how: Unpack[How]) -> Form:
    """`rfftn` over the last two dimensions, as numpy.fft.rfft2.

    >>> mf.rfft2(jnp.ones((2, 4))).real.tolist()
    [[8.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return over(a, "rfft", s, axes, norm, how)


@with_options
def rfft(a: AnyArray, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[How]) -> Form:
    """`rfftn` along one dimension, as numpy.fft.rfft.

    >>> mf.rfft(jnp.ones(4)).real.tolist()
    [4.0, 0.0, 0.0]
    """
    return over(a, "rfft", *line(n, axis), norm, how)


@onto_real
def irfftn(a: AnyArray, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[How]) -> Form:
    """The inverse of `rfftn`, as numpy.fft.irfftn.

        x[n] = scale sum over all k of a[k] exp(+2 pi i k n / N),
               a[N - k] the conjugate of a[k]

    Args:
        a: the half spectrum, or its parts (re, im).
        s: lengths of the result; by default 2 (m - 1) for m numbers along the
            last axis, so odd lengths need it.
        axes, norm, method, ..., donate: as `rfftn`.

    Returns:
        The real array, sharded as its spectrum. Mesh axes that `rfftn` moved to
        a cut dimension move back if the real array's spec names mesh axes in
        the mesh's order (else pass out_spec=). Imaginary parts of a[0] and
        a[N/2] are ignored, as in NumPy.

    Raises:
        ValueError, TypeError: as `rfftn`.

    >>> mf.irfftn(mf.rfftn(jnp.ones((2, 5))), (2, 5)).round(6).tolist()
    [[1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]]
    """
    return over(a, "rfft", s, axes, norm, how, inverse=True)


@onto_real
def irfft2(a: AnyArray, s: Ints = None, axes: Ints = (-2, -1), norm: str | None = None, **how: Unpack[How]) -> Form:
    """`irfftn` over the last two dimensions, as numpy.fft.irfft2.

    >>> mf.irfft2(mf.rfft2(jnp.ones((2, 4)))).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    return over(a, "rfft", s, axes, norm, how, inverse=True)


@onto_real
def irfft(a: AnyArray, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[How]) -> Form:
    """`irfftn` along one dimension, as numpy.fft.irfft; n: length of the
    result.

    >>> mf.irfft(mf.rfft(jnp.ones(5)), 5).round(6).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    return over(a, "rfft", *line(n, axis), norm, how, inverse=True)


@onto_real
def hfftn(a: AnyArray, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[How]) -> Form:
    """The real spectrum of a Hermitian array, given its first half, as
    scipy.fft.hfftn; a[-n] is the conjugate of a[n].

        X[k] = scale sum over all n of a[n] exp(-2 pi i k n / N)

    Arguments, result and cost as `irfftn`, with the other sign.

    >>> mf.hfftn(jnp.ones((2, 3))).tolist()
    [[8.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    return over(a, "hfft", s, axes, norm, how)


@onto_real
def hfft2(a: AnyArray, s: Ints = None, axes: Ints = (-2, -1), norm: str | None = None, **how: Unpack[How]) -> Form:
    """`hfftn` over the last two dimensions, as scipy.fft.hfft2.

    >>> mf.hfft2(jnp.ones((2, 3))).tolist()
    [[8.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    return over(a, "hfft", s, axes, norm, how)


@onto_real
def hfft(a: AnyArray, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[How]) -> Form:
    """`hfftn` along one dimension, as numpy.fft.hfft.

    >>> mf.hfft(jnp.ones(3)).tolist()
    [4.0, 0.0, 0.0, 0.0]
    """
    return over(a, "hfft", *line(n, axis), norm, how)


@with_options
def ihfftn(a: AnyArray, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[How]) -> Form:
    """The inverse of `hfftn`, as scipy.fft.ihfftn: `rfftn` with sign +, scaled.

    >>> mf.ihfftn(mf.hfftn(jnp.ones((2, 3)))).real.tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return over(a, "hfft", s, axes, norm, how, inverse=True)


@with_options
def ihfft2(a: AnyArray, s: Ints = None, axes: Ints = (-2, -1), norm: str | None = None, **how: Unpack[How]) -> Form:
    """`ihfftn` over the last two dimensions, as scipy.fft.ihfft2.

    >>> mf.ihfft2(mf.hfft2(jnp.ones((2, 3)))).real.tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return over(a, "hfft", s, axes, norm, how, inverse=True)


@with_options
def ihfft(a: AnyArray, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[How]) -> Form:
    """`ihfftn` along one dimension, as numpy.fft.ihfft.

    >>> mf.ihfft(jnp.array([4.0, 0.0, 0.0, 0.0])).real.tolist()
    [1.0, 1.0, 1.0]
    """
    return over(a, "hfft", *line(n, axis), norm, how, inverse=True)
