"""The steps that a walk is made of. Each is a pure function on one device's block and knows the layout it leaves
behind.

| step           | needs                            | leaves           | sends per device (V a block, p the ring) |
|----------------|----------------------------------|------------------|------------------------------------------|
| LocalFFT(dims) | dims whole on each device        | the same axes    | nothing                                  |
| Swap(from, to) | axes that are innermost of from  | them inside `to` | (p-1)/p V, one all_to_all                |
| Exchange(swaps) | of each swap its own          | as all its swaps | (p-1)/p V in all, one all_to_all         |
| RealFFT(dims)  | dims whole on each device        | the same axes    | nothing                                  |
| LocalTrig(dim) | dim whole on each device         | the same axes    | nothing                                  |
| RingDense(dim) | any                              | the same axes    | (p-1) V in p-1 hops, under the products  |
| PhaseFFT(dim)  | p^2 divides n                    | the same layout  | (p-1)/p V gathered, then (p-1) V ring    |
| SixStep(dim)   | p^2 divides n                    | the same layout  | 3 (p-1)/p V in three all_to_alls         |
| PackedFFT(dim) | p^2 divides n / 2                | the same axes    | of a complex line half, and a block      |
| Pipeline(...)  | a dimension its steps leave whole | as its steps     | as its swap, under its local steps       |
| Roll(dim, by)  | equal blocks                     | the same layout  | at most V, in two permutes               |
| Bands(dim, ..) | any                              | another size     | rows that change devices, in a few permutes |

A Fourier step multiplies one dimension by V[k, n] = exp(sign 2 pi i k n / N), unscaled: `length` is N, it reads the
first N positions and leaves `size` of them. So its transpose is the same step with the sizes exchanged, its adjoint has
the other sign too, and its inverse is the adjoint over N. None of them is written twice.
"""

from .bands import Band as Band
from .bands import Bands as Bands
from .base import Step as Step
from .base import turned as turned
from .exchange import Exchange as Exchange
from .local_fft import LocalFFT as LocalFFT
from .local_trig import LocalTrig as LocalTrig
from .packed_fft import PackedFFT as PackedFFT
from .phase_fft import PhaseFFT as PhaseFFT
from .pipeline import Pipeline as Pipeline
from .real_fft import RealFFT as RealFFT
from .ring_dense import RingDense as RingDense
from .roll import Roll as Roll
from .six_step import SixStep as SixStep
from .swap import Swap as Swap
