"""`meshfft plan`: what a transform would take on a mesh, without its devices."""

from typing import Annotated

import typer

from ..dtypes import PRECISIONS
from . import flags, parse
from .guard import guarded
from .show import print_json

DTYPES = ("complex64", "complex128")


@guarded
def plan(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 8192,8192,8192.")],
    mesh: flags.Mesh,
    spec: flags.Spec = None,
    axes: flags.Axes = None,
    method: flags.Method = "auto",
    order: flags.Order = "natural",
    norm: flags.Norm = "backward",
    dtype: Annotated[str, typer.Option(metavar="NAME", help=f"{' or '.join(DTYPES)}.")] = "complex64",
    precision: flags.Precision = "default",
    inverse: Annotated[bool, typer.Option("--inverse", help="Plan the inverse transform.")] = False,
    as_json: flags.Json = False,
) -> None:
    """Show the steps, memory and traffic of a transform.

    No device is needed: a laptop can plan for any pod.
    """
    import meshfft

    from .devices import describe_mesh, use_float64

    lengths, sizes = parse.sizes(shape, "the shape", "8192,8192,8192"), parse.mesh(mesh)
    wide = parse.choice(precision, PRECISIONS, "--precision") == "float64"
    if parse.choice(dtype, DTYPES, "--dtype") == "complex128" or wide:
        use_float64()
    made = meshfft.plan(
        lengths,
        mesh=describe_mesh(sizes),
        spec=parse.spec(spec, sizes, len(lengths)),
        dtype=dtype,
        precision=precision,
        **parse.options(axes, method, order, norm, inverse),
    )
    if as_json:
        print_json(made.to_dict())
    else:
        typer.echo(str(made))
