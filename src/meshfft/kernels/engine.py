"""The contract of an engine: how one device transforms dimensions that no mesh axis cuts.

    X[k] = sum_n x[n] exp(sign 2 pi i k n / N)     along each dimension, unscaled

An engine says which dimensions it takes, what they cost and how large their error is, and transforms them. Engines are
frozen records, which plans keep and compare. A new engine is a file with a subclass of Engine that is registered.
"""

import abc
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from jax import Array

from ..collectives.all_to_all import Grid
from ..collectives.pieces import Came, Pieces, Rows
from ..collectives.wire import Coded, Wire
from ..kept_verdicts import Trial
from ..machine.chip import Chip
from ..machine.machine import Machine
from ..machine.work import Work
from ..numerics.dtypes import Dot, Error, unit_of
from ..numerics.split_complex import Block, Planes
from .bluestein import is_awkward, padded_length, prime_factors

SUMMED, LARGEST_SUM = 0.14, 131  # roundings for each term of a sum that is all of one sign; terms, at most
ODD = 1.2  # roundings of equal numbers by odd radices: at most 4.1 at N = 121, 3.6 at 105, 2.8 at 1000


class Lines(NamedTuple):
    """Dimensions of one device's block that are to be transformed."""

    block: tuple[int, ...]  # as it arrives: its dimensions may be longer or shorter than the transforms
    dims: tuple[int, ...]
    lengths: tuple[int, ...]  # N of each

    @property
    def shape(self) -> tuple[int, ...]:
        """The block with every dimension as long as its transform."""
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        return tuple(lengths.get(d, n) for d, n in enumerate(self.block))

    @property
    def points(self) -> int:
        """Numbers of that block."""
        return math.prod(self.shape)

    def only(self, dims: tuple[int, ...]) -> "Lines":
        """The same for some of the dimensions."""
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        return Lines(self.block, dims, tuple(lengths[d] for d in dims))


class Site(NamedTuple):
    """What an engine may ask before it offers itself."""

    machine: Machine
    itemsize: int  # bytes of a complex number
    dots: tuple[Dot, ...]  # the ways to multiply that the precision allows
    large: bool  # the block exceeds the caches that devices share
    alone: bool  # one device, which has all cores of its host
    xla: bool  # only XLA's engines are wanted


F = TypeVar("F", Array, Planes)  # the form of a block that an engine takes


class Engine(abc.ABC, Generic[F]):
    """One way to transform lines. `lines` are those that it was given, or some of those that it offered to take."""

    planar: ClassVar[bool] = False  # it transforms split complex blocks
    chunked: ClassVar[bool] = False  # it works on the chunks that exchanges beside it cut and join
    slices: ClassVar[bool] = False  # it multiplies float64 by slices, where matrix units have no float64

    @classmethod
    @abc.abstractmethod
    def offers(cls, lines: Lines, site: Site) -> "Iterator[Offer]":
        """Engines of this kind, each with the dimensions that it takes."""

    @classmethod
    def least(cls, rows: int, points: float, nbytes: int, site: Site) -> Work | None:
        """A lower bound on the work of one dimension in any block of a walk; None where other engines' are below it.

        Args:
            rows: N.
            points: complex numbers along the dimension, at least; a real number is half of one.
            nbytes: bytes of the block, at least.
            site: for the array as it came.
        """
        return None

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The word that tables print."""

    @property
    def dots(self) -> tuple[Dot, ...]:
        """How it multiplies matrices, if it does."""
        return ()

    @property
    def sender(self) -> "Sender | None":
        """The engine, if it writes what is sent and reads what arrived itself."""
        return None

    def error(self, length: int, itemsize: int) -> Error:
        """The relative L2 error of one dimension, in complex numbers of `itemsize` bytes."""
        return fft_error(length, itemsize)

    @abc.abstractmethod
    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        """What it costs one device."""

    def scratch(self, lines: Lines, itemsize: int) -> int | None:
        """Bytes that it works on at a time, if it needs no second block."""
        return None

    @abc.abstractmethod
    def apply(self, block: F, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> F:
        """Transforms a block whose dimensions are as long as the transforms.

        Args:
            block: planes for a planar engine, else one complex array.
            dims, sign: as above.
            grid: the chunks for a chunked engine.
            first: the block is one array, and not joined from such chunks.
        """

    def trials(self, lines: Lines, came: Came | None) -> tuple[Trial, ...]:
        """Its kernels, to be tried before they are used; `came` says which pieces they read."""
        return ()


Offer = tuple[Engine[Any], tuple[int, ...]]  # an engine, and the dimensions that it takes


class RealEngine(abc.ABC):
    """One way to transform between real lines and half spectra, of which the last of the dimensions has half.

    half   X[k] = sum_n x[n] exp(sign 2 pi i k n / N),   0 <= k <= N // 2 along that dimension
    real   x[n] = Re sum_{k=0}^{N // 2} X[k] exp(sign 2 pi i k n / N),   its transpose: nothing is doubled
    """

    @classmethod
    @abc.abstractmethod
    def offers(cls, lines: Lines, onto_real: bool, site: Site) -> Iterator[tuple["RealEngine", tuple[int, ...]]]:
        """Engines of this kind for real lines, each with the dimensions that it takes; the last is among them."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The word that tables print."""

    @abc.abstractmethod
    def work(self, lines: Lines, onto_real: bool, itemsize: int, chip: Chip) -> Work:
        """What it costs one device; `itemsize` is that of the real numbers."""

    @abc.abstractmethod
    def half(self, block: Block, dims: tuple[int, ...], sign: int) -> Block:
        """Half spectra of a real block, an array or its one plane, in the same form."""

    @abc.abstractmethod
    def real(self, block: Block, dims: tuple[int, ...], length: int, sign: int) -> Block:
        """Real lines of `length` points of half spectra, an array or two planes, in the same form."""

    def trials(self, lines: Lines) -> tuple[Trial, ...]:
        """Its kernels, to be tried before they are used."""
        return ()


class Sender(Engine[Planes]):
    """An engine beside all-to-alls: it writes the parts that are sent and reads the pieces that arrived."""

    room: int  # bytes of fast memory for its kernels

    @abc.abstractmethod
    def writes(self, block: tuple[int, ...], dims: tuple[int, ...], rows: Rows, target: int, parts: int) -> bool:
        """Whether it reads some rows of a block and writes the parts itself; else it copies them."""

    @abc.abstractmethod
    def reads(self, block: tuple[int, ...], dims: tuple[int, ...], came: Came) -> bool:
        """Whether it reads a block in pieces as they lie; else it joins them first."""

    @abc.abstractmethod
    def keeps_order(self, block: tuple[int, ...]) -> bool:
        """Whether such a block is stored in the order of its dimensions, in which parts are written."""

    @abc.abstractmethod
    def to_parts(
        self, given: Planes | Pieces, dims: tuple[int, ...], sign: int, rows: Rows, target: int, parts: int
    ) -> Array:
        """Transforms some rows of a block, and divides dimension `target` into parts: (parts, planes, *sizes)."""

    @abc.abstractmethod
    def of_pieces(self, given: Pieces, dims: tuple[int, ...], sign: int) -> Planes:
        """Transforms a block that lies in pieces."""

    @abc.abstractmethod
    def trials_of_rows(
        self, block: tuple[int, ...], dims: tuple[int, ...], rows: Rows, came: Came | None, target: int, parts: int
    ) -> tuple[Trial, ...]:
        """The kernels of `to_parts`."""

    @abc.abstractmethod
    def wire_trials(self, share: tuple[int, ...], wire: Wire) -> tuple[Trial, ...]:
        """The kernels that write and read the words of such shares, both planes in one message."""

    @abc.abstractmethod
    def wire_cycles(self, share: tuple[int, ...], wire: Coded, reals: int, chip: Chip) -> int:
        """Cycles of these kernels for as many real numbers."""


def fft_error(length: int, itemsize: int) -> Error:
    """The relative L2 error of one dimension: of noise half a bit of rounding for each of log2 N stages, in the mean.
    Equal numbers are rounded by odd radices alone.

    Lengths with large primes go through longer transforms, and have twice as much. XLA on a CPU adds up the terms of a
    prime up to 131 one after the other. Of a constant line, or a wave, they grow to a sum p times as large, and 0.14 p
    roundings are the most that was measured.
    """
    if length == 1:
        return Error()
    prime, odd = max(prime_factors(length)), length // (length & -length)
    stages = math.sqrt(max(math.log2(length), 4.0)) * (2 if prime > 64 else 1)
    if prime > LARGEST_SUM:
        return Error(unit_of(itemsize) * stages, unit_of(itemsize) * stages)
    noise, equal = math.hypot(stages, SUMMED * prime), (SUMMED * prime + ODD * math.sqrt(math.log2(odd))) * (odd > 1)
    return Error(unit_of(itemsize) * noise, unit_of(itemsize) * equal)


def flops_of(length: int) -> float:
    """Flops for each point of a line: 5 log2 N, and more where it goes through a longer one."""
    if not is_awkward(length):
        return 5 * math.log2(max(length, 1))
    size = padded_length(length)
    return (4 * 5 * math.log2(size) + 12) * size / length + 26
