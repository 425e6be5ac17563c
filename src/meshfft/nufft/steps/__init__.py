"""Steps of nonuniform transforms, between a fine grid of a spectrum and scattered points.

 step                 | needs                  | leaves                        | sends per device                     |
----------------------|------------------------|-------------------------------|--------------------------------------|
 Deconvolve(along)    | any layout             | the same                      | nothing                              |
 PhaseShift(along)    | any layout             | the same                      | nothing                              |
 TileBalance(along)   | blocks with their halo | lent tiles behind them        | those tiles, in a few permutes       |
 Interpolate(along)   | blocks with their halo | values at points, by owner    | nothing                              |
 ValueExchange        | values by owner        | values in the caller's layout | values, in one or two all-to-alls    |
 RingGrid(along)      | blocks with their halo | values at points              | (p-1) blocks and halos, p-1 hops     |
 PointExchange(along) | blocks with their halo | values at points              | points, values, in two all-to-alls   |
 RingPoints(along)    | any layout             | values at points              | (p-1) blocks in p-1 hops             |

Type 2 transforms the image to the fine grid between Deconvolve and PhaseShift. A Halo (steps/) follows, for
windows that cross the end of a block; it is on one side only (grid/binning.py). Type 1 is the adjoint.
"""

from .grid_steps import Deconvolve as Deconvolve
from .grid_steps import PhaseShift as PhaseShift
from .grid_steps import TileBalance as TileBalance
from .known_points import Interpolate as Interpolate
from .known_points import ValueExchange as ValueExchange
from .ring_points import RingPoints as RingPoints
from .traced_points import PointExchange as PointExchange
from .traced_points import RingGrid as RingGrid
