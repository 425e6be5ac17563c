"""Numbers for people: with a prefix or rounded digits, never as 2e+02."""

import decimal
import math

PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")
LEAST = 1e-4  # smaller numbers use a power of ten


def quantity(value: float, unit: str = "") -> str:
    """Three digits and a decimal prefix: 16.8 M, 1.05 G."""
    prefixes = list(PREFIXES)
    while abs(value) >= 999.5 and len(prefixes) > 1:
        value, prefixes = value / 1000, prefixes[1:]
    digits = 0
    if prefixes[0]:
        value = float(f"{value:.3g}")
        digits = max(0, 3 - len(str(int(abs(value)))))
    return f"{value:.{digits}f} {prefixes[0]}{unit}".rstrip()


def plain(value: float, digits: int = 2) -> str:
    """A rounded number: 200, 1.2, 0.0035."""
    rounded = float(f"{value:.{digits}g}")
    if not math.isfinite(rounded) or abs(rounded) < LEAST:
        return f"{rounded:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def bound(value: float) -> str:
    """An upper bound rounded up: 0.00025 for 2.44e-4."""
    upward = decimal.Context(prec=2, rounding=decimal.ROUND_CEILING)
    return plain(float(upward.create_decimal_from_float(value)))
