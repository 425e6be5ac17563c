"""The contract of an engine: how one device transforms dimensions that no mesh axis cuts.

    X[k] = sum_n x[n] exp(sign 2 pi i k n / N)     along each dimension, unscaled

Engines are frozen records.
"""

import abc
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from jax import Array

from ..collectives.all_to_all import PLANES, Grid, Pieces, Ports
from ..collectives.wires import Tiled
from ..kept import Trial
from ..machine.chip import Chip
from ..machine.machine import Machine, Work
from ..numerics.dtypes import Dot, Error, unit_of
from ..numerics.split_complex import Block, Planes
from .bluestein import is_awkward, padded_length, prime_factors

SUMMED, LARGEST_SUM = 0.14, 131  # roundings per term of a sum of one sign; most terms
ODD = 1.2  # roundings of equal numbers by odd radices


class Lines(NamedTuple):
    """Dimensions of one device's block to transform."""

    block: tuple[int, ...]  # dimensions may be longer or shorter than the transforms
    dims: tuple[int, ...]
    lengths: tuple[int, ...]  # N of each
    onto_real: bool = False  # half spectra of real lines are transformed back

    @property
    def shape(self) -> tuple[int, ...]:
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        return tuple(lengths.get(d, n) for d, n in enumerate(self.block))

    @property
    def points(self) -> int:
        return math.prod(self.shape)

    @property
    def behind(self) -> int:
        """Dimensions behind the first line that are not transformed."""
        return sum(d not in self.dims for d in range(min(self.dims), len(self.block)))

    def only(self, dims: tuple[int, ...]) -> "Lines":
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        return self._replace(dims=dims, lengths=tuple(lengths[d] for d in dims))


class Site(NamedTuple):
    machine: Machine
    itemsize: int  # bytes of a complex number
    dots: tuple[Dot, ...]  # products that meet the precision
    large: bool  # beyond the shared caches
    alone: bool  # one device has all cores
    xla: bool  # only XLA's engines


F = TypeVar("F", Array, Planes)  # form of an engine's block


class LocalEngine(abc.ABC):
    """An engine. In all methods but `offers`, `lines` has only dimensions that it takes."""

    of_reals: ClassVar[bool] = False  # transforms real lines (RealEngine)
    slices: ClassVar[bool] = False  # float64 by slices, if matrix units have no float64
    by_xla: ClassVar[bool] = False  # kept if only XLA's engines are wanted

    @classmethod
    @abc.abstractmethod
    def offers(cls, lines: Lines, site: Site) -> "Iterator[Offer]":
        """Engines of this kind with the dimensions each takes; for real lines, the last dimension included."""

    @classmethod
    def least(cls, rows: int, points: float, nbytes: int, site: Site) -> Work | None:
        """A lower bound on the work of one dimension of N = `rows` in any block of a walk; None if another engine's is
        lower. Lines have at least `points` complex numbers in all, a real one counted half; the block has `nbytes`."""
        return None

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its word in tables."""

    @abc.abstractmethod
    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        """Cost on one device; `itemsize` is that of complex numbers, for real lines that of real ones."""

    def trials(self, lines: Lines, ports: Ports = PLANES) -> tuple[Trial, ...]:
        """Its kernels to try before use; `ports` are their inputs and outputs."""
        return ()


Offer = tuple[Any, tuple[int, ...]]  # an engine and its dimensions


class Engine(LocalEngine, Generic[F]):
    """One way to transform complex lines."""

    planar: ClassVar[bool] = False  # transforms split complex blocks
    chunked: ClassVar[bool] = False  # works on the chunks of neighbouring exchanges

    @property
    def dots(self) -> tuple[Dot, ...]:
        return ()

    def error(self, length: int, itemsize: int) -> Error:
        return fft_error(length, itemsize)

    def scratch(self, lines: Lines, itemsize: int) -> int | None:
        """Bytes it works on at a time; None if it needs a second block."""
        return None

    @abc.abstractmethod
    def apply(self, block: F, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> F:
        """Transforms a block, an array or planes, whose dimensions have the transforms' lengths. `grid`: its chunks,
        for a chunked engine; `first`: it is one array, not joined from them."""


class RealEngine(LocalEngine):
    """One way to transform between real lines and half spectra; the last dimension is halved.

    half   X[k] = sum_n x[n] exp(sign 2 pi i k n / N),   0 <= k <= N // 2 along that dimension
    real   x[n] = Re sum_{k=0}^{N // 2} X[k] exp(sign 2 pi i k n / N),   its transpose
    """

    of_reals: ClassVar[bool] = True
    products: bool = True  # on a matrix unit

    @abc.abstractmethod
    def half(self, block: Block, dims: tuple[int, ...], sign: int) -> Block:
        """Half spectra of a real block, an array or one plane."""

    @abc.abstractmethod
    def real(self, block: Block, dims: tuple[int, ...], length: int, sign: int) -> Block:
        """Real lines of `length` points from half spectra, an array or two planes."""


class Sender(Engine[Planes]):
    """An engine that writes the parts all-to-alls send and reads the pieces they leave."""

    room: int  # bytes of fast memory for kernels

    @abc.abstractmethod
    def direct(self, block: tuple[int, ...], dims: tuple[int, ...], ports: Ports) -> bool:
        """Whether its kernels read and write such a block; others are copied."""

    @abc.abstractmethod
    def keeps_order(self, block: tuple[int, ...]) -> bool:
        """Whether such a block is stored in the order of its dimensions."""

    @abc.abstractmethod
    def between(self, given: Planes | Pieces, dims: tuple[int, ...], sign: int, ports: Ports = PLANES) -> Planes:
        """Transforms a block, or some rows, to planes, or to one array (parts, planes, *sizes) to send."""

    @abc.abstractmethod
    def form_trials(self, form: Tiled) -> tuple[Trial, ...]:
        """Trials of kernels that encode and decode shares of this form."""

    @abc.abstractmethod
    def form_cycles(self, form: Tiled, reals: int, chip: Chip) -> int:
        """Cycles of these kernels for `reals` numbers."""


def fft_error(length: int, itemsize: int) -> Error:
    """Relative L2 error of one dimension. Noise is half a bit of rounding for each of log2 N stages, in mean square,
    and twice that for large primes, whose transforms are longer. Equal numbers are rounded by odd radices only. XLA on
    a CPU adds up the terms of a prime up to 131, with at most 0.14 roundings each."""
    if length == 1:
        return Error()
    prime, odd = max(prime_factors(length)), length // (length & -length)
    stages = math.sqrt(max(math.log2(length), 4.0)) * (2 if prime > 64 else 1)
    if prime > LARGEST_SUM:
        return Error(unit_of(itemsize) * stages, unit_of(itemsize) * stages)
    noise, equal = math.hypot(stages, SUMMED * prime), (SUMMED * prime + ODD * math.sqrt(math.log2(odd))) * (odd > 1)
    return Error(unit_of(itemsize) * noise, unit_of(itemsize) * equal)


def flops_of(length: int) -> float:
    """Flops per point of a line: 5 log2 N, or those of its longer line."""
    if not is_awkward(length):
        return 5 * math.log2(max(length, 1))
    size = padded_length(length)
    return (4 * 5 * math.log2(size) + 12) * size / length + 26
