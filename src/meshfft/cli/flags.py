"""The flags that several commands share, and the names their values may have."""

from typing import Annotated

import typer

from ..dtypes import PRECISIONS
from ..moves import METHODS
from ..norms import NORMS

Mesh = Annotated[str, typer.Option(metavar="P,P,...", help="Devices along mesh axes x, y, z, w: 2,2,2.")]
Spec = Annotated[
    str | None,
    typer.Option(metavar="A,A,...", help="Mesh axes that cut each dimension: x,y,z; x+y for two, - for none."),
]
Axes = Annotated[str | None, typer.Option(metavar="D,D,...", help="Dimensions to transform: 0,1,2. By default all.")]
Method = Annotated[str, typer.Option(metavar="NAME", help=f"{', '.join(METHODS)}.")]
Order = Annotated[str, typer.Option(metavar="NAME", help="natural: laid out as it came; any: as is cheapest.")]
Norm = Annotated[str, typer.Option(metavar="NAME", help=f"{', '.join(NORMS)}: as in NumPy.")]
Kind = Annotated[str, typer.Option(metavar="NAME", help="fft; rfft of reals; hfft; dct-1 to dct-4, dst-1 to dst-4.")]
Precision = Annotated[str, typer.Option(metavar="NAME", help=f"{', '.join(PRECISIONS)}: of dense products.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
