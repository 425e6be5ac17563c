"""The flags that several commands share, and the names their values may have.

Where a file may know, a flag that was not given is None.
"""

from typing import Annotated

import typer

from ..numerics.dtypes import PRECISIONS
from ..operators.transform import NORMS
from ..walks.candidates import METHODS

MESH = typer.Option(metavar="P,P,...", help="Devices along mesh axes x, y, z, w: 2,2,2.")
METHOD = typer.Option(metavar="NAME", help=f"{', '.join(METHODS)}.")
ORDER = typer.Option(metavar="NAME", help="natural: laid out as it came; any: as is cheapest.")
NORM = typer.Option(metavar="NAME", help=f"{', '.join(NORMS)}: as in NumPy.")
KIND = typer.Option(metavar="NAME", help="fft; rfft of reals; hfft; dct-1 to dct-4, dst-1 to dst-4.")
PRECISION = typer.Option(metavar="NAME", help=f"{', '.join(PRECISIONS)}: of dense products.")
Mesh = Annotated[str, MESH]
KnownMesh = Annotated[str | None, MESH]
Method = Annotated[str, METHOD]
KnownMethod = Annotated[str | None, METHOD]
Order = Annotated[str, ORDER]
KnownOrder = Annotated[str | None, ORDER]
Norm = Annotated[str, NORM]
KnownNorm = Annotated[str | None, NORM]
Kind = Annotated[str, KIND]
KnownKind = Annotated[str | None, KIND]
Precision = Annotated[str, PRECISION]
KnownPrecision = Annotated[str | None, PRECISION]
Spec = Annotated[
    str | None,
    typer.Option(metavar="A,A,...", help="Mesh axes that cut each dimension: x,y,z; x+y for two, - for none."),
]
Axes = Annotated[str | None, typer.Option(metavar="D,D,...", help="Dimensions to transform: 0,1,2. By default all.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
