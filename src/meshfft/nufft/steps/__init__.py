"""Steps of nonuniform transforms: a fine grid of a spectrum, and points between its cells.

| step               | needs                   | leaves                        | sends per device                     |
|--------------------|-------------------------|-------------------------------|--------------------------------------|
| Deconvolve(along)  | any layout              | the same                      | nothing                              |
| Twist(along)       | any layout              | the same                      | nothing                              |
| Halo(dim, cells)   | equal blocks            | blocks with cells of the next | those cells, in one permute or a few |
| Lend(along)        | blocks with their halo  | tiles of others behind them   | those tiles, in a few permutes       |
| Interpolate(along) | blocks with their halo  | values at points, by owner    | nothing                              |
| Route              | values by owner         | values as the caller has them | values, in one all-to-all            |
| RingGrid(along)    | blocks with their halo  | values at points              | (p-1) blocks and halos, p-1 hops     |
| Deal(along)        | blocks with their halo  | values at points              | points and values, in two all-to-alls |
| RingPoints(along)  | any layout              | values at points              | (p-1) blocks in p-1 hops             |

A walk of a transform at scattered points (type 2) is these, with a transform of the image to the fine grid between
Deconvolve and Twist. The way back (type 1) is the adjoint of each: halos are added to the blocks they came from, and
Spread is the transpose of Interpolate.
"""

from .deal import Deal as Deal
from .deconvolve import Deconvolve as Deconvolve
from .halo import Halo as Halo
from .interpolate import Interpolate as Interpolate
from .interpolate import Spread as Spread
from .lend import Lend as Lend
from .ring_grid import RingGrid as RingGrid
from .ring_points import RingPoints as RingPoints
from .route import Route as Route
from .twist import Twist as Twist
