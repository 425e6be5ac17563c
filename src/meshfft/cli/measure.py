"""`meshfft bench fft` and its kin: measured here and now, meshfft beside its peers."""

from typing import Annotated

import typer

from . import flags, speed
from .guard import guarded


@guarded
def fft(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")],
    mesh: speed.Meshes = None,
    kind: flags.Kind = "fft",
    dtype: speed.Dtype = None,
    method: speed.Methods = "auto",
    order: speed.Orders = "natural,any",
    precision: speed.Precisions = "default",
    peers: speed.Peers = "all",
    rounds: speed.Rounds = 15,
    rows: speed.Rows = None,
    as_json: flags.Json = False,
) -> None:
    """Measure transforms of one array: meshfft on each mesh, and what else there is.

    Calls take turns in an order shuffled anew every round. Without --mesh: slab, pencil and block of all devices; on
    the CPU eight that share its cores. Rows that are there are replaced.
    """
    speed.check_flags(rounds, rows)
    task = speed.task_of(shape, dtype, kind)
    how = speed.how_of(method, order, precision)
    others = speed.peers_of(peers, task.what)
    devices, layouts = speed.layouts_of(mesh, len(task.shape))
    found = speed.run(speed.cases_of(task, layouts, how, others), devices, rounds)
    speed.keep(found, rows)
    speed.tell(found, f"{kind} of {' x '.join(map(str, task.shape))} {task.dtype}", as_json, rows)
