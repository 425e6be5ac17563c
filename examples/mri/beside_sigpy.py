"""The same data through sigpy: python examples/mri/beside_sigpy.py --trajectory radial

Conjugate gradients from zero with sigpy's SENSE operator, gridded and Toeplitz, in complex64, on one process. sigpy
counts pixels from the middle and points in cycles per field of view, and divides by sqrt(N^d).
"""

import argparse
import time

import numpy as np
import sigpy
from scan import TRAJECTORIES, Scan, scan

SHOWN = (5, 10, 20, 40)


def encoding(found: Scan, toeplitz: bool, oversampled: float, width: int) -> sigpy.linop.Linop:
    """Map times image, then sigpy's NUFFT."""
    size = np.array(found.truth.shape)
    multiply = sigpy.linop.Multiply(found.truth.shape, found.maps.astype(np.complex64))
    coord = (found.turns * size).astype(np.float32)
    return sigpy.linop.NUFFT(multiply.oshape, coord, oversampled, width, toeplitz) * multiply


def data(found: Scan) -> np.ndarray:
    """The data with sigpy's origin and scale."""
    size = np.array(found.truth.shape)
    phase = np.exp(2j * np.pi * (found.turns @ (size // 2)))
    return (found.data * phase / np.sqrt(size.prod())).astype(np.complex64)


def normal_of(found: Scan, encode: sigpy.linop.Linop, toeplitz: bool) -> sigpy.linop.Linop:
    """A^H A. sigpy's Toeplitz operator covers the NUFFT alone, so the maps and their conjugates go around it."""
    if not toeplitz:
        return encode.H * encode
    nufft, multiply = encode.linops
    return multiply.H * nufft.N * multiply


def course(found: Scan, toeplitz: bool, oversampled: float, width: int) -> tuple[list[float], float]:
    """Errors at SHOWN, and the CPU milliseconds of an iteration."""
    encode = encoding(found, toeplitz, oversampled, width)
    normal, right = normal_of(found, encode, toeplitz), encode.H * data(found)
    normal * right  # compiles
    solver = sigpy.alg.ConjugateGradient(normal, right, np.zeros_like(right), max_iter=max(SHOWN))
    errors, begun = [], time.process_time()
    while not solver.done():
        solver.update()
        if solver.iter in SHOWN:
            errors.append(found.error(solver.x))
    return errors, (time.process_time() - begun) / solver.iter * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectory", choices=TRAJECTORIES, default="radial")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--coils", type=int, default=4)
    asked = parser.parse_args()
    found = scan(asked.trajectory, asked.size, asked.coils)
    print("sigpy", sigpy.__version__, asked.trajectory, "CG", *SHOWN, "CPU ms an iteration")
    for toeplitz in (False, True):
        for oversampled, width in ((1.25, 4), (2.0, 6)):
            errors, spent = course(found, toeplitz, oversampled, width)
            name = f"{'Toeplitz' if toeplitz else 'gridded'}, {oversampled:g} x, width {width}"
            print(f"  {name:24s}", *(f"{one:.4f}" for one in errors), f"{spent:8.0f}")


if __name__ == "__main__":
    main()
