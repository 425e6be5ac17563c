"""The steps of a walk: pure functions of one device's block that know the layout they leave (`Step` in base).

    step             needs                         leaves           sends per device (V a block, p shards)

    LocalFFT(dims)   uncut dims                    the same axes    nothing
    RealFFT(dims)    uncut dims                    the same axes    nothing
    LocalTrig(dim)   an uncut dim                  the same axes    nothing
    Exchange(moves)  innermost axes of dims        moved axes       (p-1)/p V in one all-to-all per chunk
    RingDense(dim)   any                           the same axes    (p-1) V in p-1 hops, under the products
    KeptDense(dim)   rows made before              the same axes    as RingDense
    PhaseFFT(dim)    a cut dim                     the same axes    (p-1)/p V gathered, then (p-1) V ring
    SixStep(dim)     p^2 divides n                 the same layout  3 (p-1)/p V in three all-to-alls
    PackedFFT(dim)   p^2 divides n / 2             the same axes    as PhaseFFT, plus V
    InPlace(...)     equal chunks                  same, or goal's  2 (p-1)/p V in two all-to-alls per chunk
    Pipeline(...)    a dimension to cut in chunks  as its steps     as its exchange, under local steps
    Margin(widths)   equal blocks                  another size     nothing
    Halo(dim, ..)    equal blocks, the last less   another size     the halos, in two permutes or a few
    Roll(dim, by)    equal blocks                  the same layout  at most V in two permutes; twice if padded
    Bands(dim, ..)   any                           another size     rows that change devices, in a few permutes

A Fourier step multiplies one dimension by V[k, n] = exp(sign 2 pi i k n / N), unscaled. It reads the first N positions
(`length`) and leaves `size`; local FFTs have `lengths` and `sizes` of several dimensions. The transpose swaps the
sizes, the adjoint also flips the sign, and the inverse is the adjoint over N.
"""

from ..layout.moves import AxisMove as AxisMove
from .base import Step as Step
from .exchange import Exchange as Exchange
from .halo import Halo as Halo
from .kept_dense import KeptDense as KeptDense
from .local_fft import LocalFFT as LocalFFT
from .local_fft import LocalTrig as LocalTrig
from .local_fft import Margin as Margin
from .phase_fft import PhaseFFT as PhaseFFT
from .pipeline import Pipeline as Pipeline
from .problem import Problem as Problem
from .real_fft import PackedFFT as PackedFFT
from .real_fft import RealFFT as RealFFT
from .ring_dense import RingDense as RingDense
from .rows import Band as Band
from .rows import Bands as Bands
from .rows import Roll as Roll
from .shared_memory import InPlace as InPlace
from .shared_memory import SixStep as SixStep
