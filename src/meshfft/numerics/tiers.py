"""Precision tiers: how real products inside a matrix product are made, and the error to expect of them.

A float32 number is a sum of three bfloat16 numbers, to the last bit: x = x1 + x2 + x3 with terms 2^-8 apart. A matrix
unit that multiplies bfloat16 and adds in float32 makes a product from

    bf16     x1 y1                                                     1 pass
    bf16x3   x1 y1 + x1 y2 + x2 y1                                     3 passes
    bf16x6   x1 y1 + x1 y2 + x2 y1 + x1 y3 + x2 y2 + x3 y1             6 passes, as good as float32

Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations" (arXiv:1904.06376), which Lu et al., section II-A, rely on.
"""

from typing import NamedTuple


class Tier(NamedTuple):
    """How real factors are multiplied.

    Attributes:
        terms: bfloat16 terms of each factor; 0 where the type itself is multiplied.
        passes: products of terms that are added up.
        error: relative L2 error of a complex product of up to 65536 terms, by real multiplications in each: 4 or 3.
            Held against measurements by tests/numerics/test_products.py; single short vectors may have half as much
            again.
    """

    terms: int
    passes: int
    error: dict[int, float]


TIERS = {
    "float32": Tier(0, 1, {4: 3.9e-7, 3: 5.5e-7}),
    "float64": Tier(0, 1, {4: 8e-16, 3: 1.2e-15}),
    "bf16x6": Tier(3, 6, {4: 2.5e-7, 3: 3.9e-7}),
    "bf16x3": Tier(2, 3, {4: 6e-6, 3: 9e-6}),
    "bf16": Tier(1, 1, {4: 3.2e-3, 3: 4.8e-3}),
}
# The largest error a tier's products may have where the plan chooses their form.
LIMITS = {"float32": 4e-7, "float64": 1e-15, "bf16x6": 4e-7, "bf16x3": 1e-5, "bf16": 5e-3}


class Dot(NamedTuple):
    """A way to multiply: the tier, and the real multiplications in a complex one.

    Four are (a + ib)(c + id) written out. Three (Gauss) are (a + b) c, a (d - c) and b (c + d), three quarters of the
    work for 1.4 times the error, and small imaginary parts lose relative accuracy.
    """

    tier: str
    multiplications: int

    @property
    def terms(self) -> int:
        """bfloat16 terms of each factor, or 0."""
        return TIERS[self.tier].terms

    @property
    def error(self) -> float:
        """The relative L2 error to expect of a complex matrix product."""
        return TIERS[self.tier].error[self.multiplications]

    @property
    def flops(self) -> int:
        """Real operations for one complex multiplication and addition, passes not counted."""
        return 2 * self.multiplications


def dots(tier: str, multiplications: int | None) -> tuple[Dot, ...]:
    """The ways the plan may choose from: those within the tier's limit, or the one asked for."""
    if multiplications is not None:
        return (Dot(tier, multiplications),)
    return tuple(dot for m in (4, 3) if (dot := Dot(tier, m)).error <= LIMITS[tier])
