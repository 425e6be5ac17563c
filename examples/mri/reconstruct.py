"""Magnetic resonance imaging: an image from few radial samples of its spectrum, seen by several coils.

A scanner samples the spectrum of an image x along lines, not on a grid, and each coil c sees x times a map S_c:

    d_cj = sum_n S_cn x_n exp(-2 pi i k_j . n) + noise

Conjugate gradients solve A^H A x = A^H d, with or without a ridge, for the x that fits the data best. ADMM finds an x
that is also piecewise smooth, by total variation or by wavelets. `mf.scattered_plan` transforms between image and
samples, and its `normal()` applies A^H A by two FFTs of twice the size, without the samples.

Image, maps and data are cut over eight devices along both dimensions; `--coils-cut` also cuts maps and data by coils.
The data are integrals of the Shepp-Logan phantom in closed form (`phantom.py`), so the program can print true errors,
|x - truth| / |truth|, by applications of A^H A. `--write` writes files that `meshfft reconstruct` reads (README.md).

    python examples/mri/reconstruct.py --noise 0.02 --pictures out                  # 128^2, golden-angle radial
    python examples/mri/reconstruct.py --trajectory koosh --size 64                 # a volume
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
from courses import Course, Way, follow
from jax import Array
from scan import TRAJECTORIES, Scan, scan, write
from sense import Problem, problem

from meshfft.nufft import solvers
from meshfft.nufft.penalties import PENALTIES

ROUNDS, INNER = 10, 5  # rounds of ADMM, and steps of conjugate gradients in each
RIDGE, RHO = 1e-3, 1e-3  # of the largest eigenvalue of the normal operator, where the image is about 1
WEIGHTS = {"tv": 1e-4, "wavelet": 1e-4}


def descents(at: Problem) -> Callable[..., Iterator[tuple[int, Array]]]:
    """Images of conjugate gradients from any start and with any ridge, by programs compiled once."""

    def ridged(ridge: Array) -> solvers.Operator:
        return lambda x: at.normal(x) + ridge * x

    begin = jax.jit(lambda start, ridge: solvers.begin(ridged(ridge), at.right, start))
    step = jax.jit(lambda now, ridge: solvers.step(ridged(ridge), now)[0])

    def descent(iterations: int, start: Array, ridge: float = 0) -> Iterator[tuple[int, Array]]:
        now = begin(start, ridge)
        for count in range(1, iterations + 1):
            now = step(now, ridge)
            yield count, now.image

    return descent


def splitting(at: Problem, name: str, rounds: int) -> Iterator[tuple[int, Array]]:
    """Images of ADMM with a penalty, after each round."""
    penalty = PENALTIES[name](at.right.ndim)
    normal, now = jax.jit(at.normal), solvers.split(at.start, penalty)
    for count in range(1, rounds + 1):
        now = solvers.round_(normal, at.right, now, penalty, WEIGHTS[name], RHO, INNER)
        yield count * (INNER + 1), now.image


def reconstruct(found: Scan, at: Problem, iterations: int, say: Callable[[str], None] = print) -> list[Course]:
    """All methods, in sequence."""
    descent, zero = descents(at), jnp.zeros_like(at.right)
    ways = [
        Way("density-compensated adjoint", iter([(0, at.start)])),
        Way("CG from zero", descent(iterations, zero)),
        Way("CG from the adjoint", descent(iterations, at.start)),
        Way("CG from the adjoint, ridge", descent(iterations, at.start, RIDGE)),
        Way("total variation", splitting(at, "tv", ROUNDS), all=True),
        Way("wavelets", splitting(at, "wavelet", ROUNDS), all=True),
    ]
    return [follow(found, way, say) for way in ways]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectory", choices=TRAJECTORIES, default="radial")
    parser.add_argument("--size", type=int, help="pixels along each dimension: 128 in 2-D, 32 in 3-D")
    parser.add_argument("--coils", type=int, default=4)
    parser.add_argument("--mesh", help="parts of each dimension: 2,4 in 2-D, 2,2,2 in 3-D")
    parser.add_argument("--coils-cut", action="store_true", help="cut the coils by the first part")
    parser.add_argument("--noise", type=float, default=0, help="relative to the root mean square of the data")
    parser.add_argument("--weighted", action="store_true", help="density weights in the norm")
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--pictures", type=Path, help="a folder for pictures; needs matplotlib")
    parser.add_argument(
        "--write", type=Path, help="a folder for traj.npy, kspace.npy, maps.npy and truth.npy; then end"
    )
    asked = parser.parse_args()
    dims = TRAJECTORIES[asked.trajectory][0]
    found = scan(asked.trajectory, asked.size or (128 if dims == 2 else 32), asked.coils, asked.noise)
    if asked.write:
        write(found, asked.write)
        return
    jax.config.update("jax_num_cpu_devices", 8)
    cuts = [int(part) for part in (asked.mesh or ("2,4" if dims == 2 and not asked.coils_cut else "2,2,2")).split(",")]
    print(f"{asked.trajectory}: {found.data[0].size} points, {asked.coils} coils, {found.truth.shape} pixels")
    courses = reconstruct(found, problem(found, cuts, asked.coils_cut, asked.tol, asked.weighted), asked.iterations)
    if asked.pictures:
        from pictures import draw

        draw(found, courses, asked.pictures)


if __name__ == "__main__":
    main()
