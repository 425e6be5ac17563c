"""The steps that a walk is made of. Each is a pure function on one device's block and knows the layout it leaves.

| step            | needs                             | leaves           | sends per device (V a block, p the ring)    |
|-----------------|-----------------------------------|------------------|---------------------------------------------|
| LocalFFT(dims)  | dims whole on each device         | the same axes    | nothing                                     |
| RealFFT(dims)   | dims whole on each device         | the same axes    | nothing                                     |
| LocalTrig(dim)  | dim whole on each device          | the same axes    | nothing                                     |
| Exchange(swaps) | axes that are innermost of theirs | them elsewhere   | (p-1)/p V, one all_to_all, or one a chunk   |
| RingDense(dim)  | any                               | the same axes    | (p-1) V in p-1 hops, under the products     |
| PhaseFFT(dim)   | p^2 divides n                     | the same layout  | (p-1)/p V gathered, then (p-1) V ring       |
| SixStep(dim)    | p^2 divides n                     | the same layout  | 3 (p-1)/p V in three all_to_alls            |
| PackedFFT(dim)  | p^2 divides n / 2                 | the same axes    | of a complex line half, and a block         |
| Pipeline(...)   | a dimension its steps leave whole | as its steps     | as its exchange, under its local steps      |
| Roll(dim, by)   | equal blocks                      | the same layout  | at most V, in two permutes                  |
| Bands(dim, ..)  | any                               | another size     | rows that change devices, in a few permutes |

What a step answers, so that nobody else need know which steps there are (`Step` in base):

| asked by       | question                              | answer                                                      |
|----------------|---------------------------------------|-------------------------------------------------------------|
| search         | offers(problem, layout, todo)         | the steps of its kind that may be taken from a layout       |
|                | least(problem)                        | lower bounds on the seconds of any of them                  |
|                | dims, after(layout), becomes          | what is done then, and the layout and numbers it leaves     |
|                | work(layout, itemsize, chip)          | what it costs one device                                    |
| fusion         | sent, in_chunks, taken, joined, fuse  | itself, as it is best done beside its neighbours            |
| walk           | transpose, conjugate, invert          | the step of another matrix, forward or back                 |
|                | insert(dim), planar, error, name      | itself in a batch; on planes or not; how exact; in words    |
|                | held, scratch                         | the arrays it makes, for memory that the host keeps         |
| executor       | apply(block, layout, operand)         | one device's new block                                      |
|                | slot, operand, operand_spec, tabled   | what it needs besides the array, and how that is sharded    |
|                | linear, slopes                        | how it is differentiated in that                            |

A Fourier step multiplies one dimension by V[k, n] = exp(sign 2 pi i k n / N), unscaled: `length` is N, it reads the
first N positions and leaves `size` of them. So its transpose is the same step with the sizes exchanged, its adjoint has
the other sign too, and its inverse is the adjoint over N. None of them is written twice.
"""

from .bands import Band as Band
from .bands import Bands as Bands
from .base import Problem as Problem
from .base import Step as Step
from .base import turned as turned
from .exchange import Exchange as Exchange
from .exchange import Swap as Swap
from .local_fft import LocalFFT as LocalFFT
from .local_fft import LocalTrig as LocalTrig
from .packed_fft import PackedFFT as PackedFFT
from .phase_fft import PhaseFFT as PhaseFFT
from .pipeline import Pipeline as Pipeline
from .real_fft import RealFFT as RealFFT
from .ring_dense import RingDense as RingDense
from .roll import Roll as Roll
from .six_step import SixStep as SixStep
