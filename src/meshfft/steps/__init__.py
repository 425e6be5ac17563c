"""The steps that a walk is made of. Each is a pure function on one device's block and knows the layout it leaves.

| step            | needs                             | leaves           | sends per device (V a block, p the ring)    |
|-----------------|-----------------------------------|------------------|---------------------------------------------|
| LocalFFT(dims)  | dims that no mesh axis cuts       | the same axes    | nothing                                     |
| RealFFT(dims)   | dims that no mesh axis cuts       | the same axes    | nothing                                     |
| LocalTrig(dim)  | a dim that no mesh axis cuts      | the same axes    | nothing                                     |
| Exchange(moves) | axes that are innermost of theirs | them elsewhere   | (p-1)/p V, one all-to-all, or one a chunk   |
| RingDense(dim)  | any                               | the same axes    | (p-1) V in p-1 hops, under the products     |
| PhaseFFT(dim)   | a dim that is cut                 | the same axes    | (p-1)/p V gathered, then (p-1) V ring       |
| SixStep(dim)    | p^2 divides n                     | the same layout  | 3 (p-1)/p V in three all-to-alls            |
| PackedFFT(dim)  | p^2 divides n / 2                 | the same axes    | of a complex line half, and a block         |
| InPlace(...)    | equal blocks and chunks           | the same layout  | 2 (p-1)/p V in two all-to-alls a chunk      |
| Pipeline(...)   | a dimension to cut into chunks    | as its steps     | as its exchange, under its local steps      |
| Margin(widths)  | equal blocks                      | another size     | nothing                                     |
| Roll(dim, by)   | equal blocks                      | the same layout  | at most V, in two permutes                  |
| Bands(dim, ..)  | any                               | another size     | rows that change devices, in a few permutes |

What a step answers is the contract, `Step` in base.

A Fourier step multiplies one dimension by V[k, n] = exp(sign 2 pi i k n / N), unscaled: `length` is N, it reads the
first N positions and leaves `size` of them. So its transpose is the same step with the sizes exchanged, its adjoint has
the other sign too, and its inverse is the adjoint over N. None of them is written twice.
"""

from .axis_moves import AxisMove as AxisMove
from .base import Step as Step
from .exchange import Exchange as Exchange
from .in_place import InPlace as InPlace
from .local_fft import LocalFFT as LocalFFT
from .local_fft import LocalTrig as LocalTrig
from .margin import Margin as Margin
from .phase_fft import PhaseFFT as PhaseFFT
from .pipeline import Pipeline as Pipeline
from .problem import Problem as Problem
from .real_fft import PackedFFT as PackedFFT
from .real_fft import RealFFT as RealFFT
from .ring_dense import RingDense as RingDense
from .rows import Band as Band
from .rows import Bands as Bands
from .rows import Roll as Roll
from .six_step import SixStep as SixStep
