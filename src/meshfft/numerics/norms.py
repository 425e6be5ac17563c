"""Norms: where the factor of a transform of N points goes, as numpy.fft and scipy.fft say it.

forward, inverse = (1, 1/N) "backward"   (1/sqrt N, 1/sqrt N) "ortho"   (1/N, 1) "forward"
"""

NORMS = ("backward", "ortho", "forward")


def factor(points: int, norm: str | None, inverse: bool) -> float:
    """The factor of a transform of so many points.

    Raises:
        ValueError: the norm is unknown.
    """
    if norm not in (None, *NORMS):
        raise ValueError(f"norm {norm!r} is unknown: use 'backward', 'ortho' or 'forward'")
    scaled = {"ortho": points**-0.5 if points else 1.0, "forward": 1.0 if inverse else 1.0 / max(points, 1)}
    return scaled.get(norm or "backward", 1.0 / points if inverse else 1.0)
