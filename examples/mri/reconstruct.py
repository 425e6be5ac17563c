"""Reconstructs the phantom from its k-space along a trajectory, on eight devices: python examples/mri/reconstruct.py

Prints the error |x - truth| / |truth| after so many applications of the normal operator, of the density-compensated
adjoint, conjugate gradients from zero and from that, with a ridge, and total variation. README.md has what it prints.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import solvers
from jax import Array
from scan import TRAJECTORIES, Scan, scan, write
from sense import Problem, problem

ROUNDS, INNER = 10, 5  # of ADMM, and of conjugate gradients in each
SHOWN = (0, 5, 10, 20, 40)
RIDGE, STRENGTH, RHO = 1e-3, 1e-4, 1e-3  # of the largest eigenvalue of the normal operator, where the image is about 1


class Way(NamedTuple):
    """A way to the image: its name, and the images after so many applications of the normal operator."""

    name: str
    images: Iterator[tuple[int, Array]]


class Course(NamedTuple):
    """How a way went: applications, errors, and images at the numbers of SHOWN, or all of total variation's."""

    name: str
    counts: list[int]
    errors: list[float]
    images: dict[int, np.ndarray]


def descents(at: Problem) -> Callable[..., Iterator[tuple[int, Array]]]:
    """Conjugate gradients, image by image, from any start and with any ridge: compiled once."""

    def ridged(ridge: Array) -> solvers.Operator:
        return lambda x: at.normal(x) + ridge * x

    begin = jax.jit(lambda start, ridge: solvers.begin(ridged(ridge), at.right, start))
    step = jax.jit(lambda now, ridge: solvers.step(ridged(ridge), now))

    def descent(iterations: int, start: Array, ridge: float = 0) -> Iterator[tuple[int, Array]]:
        now = begin(start, ridge)
        for count in range(1, iterations + 1):
            now = step(now, ridge)
            yield count, now.image

    return descent


def variation(at: Problem, rounds: int) -> Iterator[tuple[int, Array]]:
    """Total variation, round by round."""
    normal, now = jax.jit(at.normal), solvers.split(at.start)
    for count in range(1, rounds + 1):
        now = solvers.round_(normal, at.right, now, STRENGTH, RHO, INNER)
        yield count * (INNER + 1), now.image


def follow(found: Scan, way: Way, say: Callable[[str], None] = print) -> Course:
    """Takes a way to its end, and says the error of each image."""
    course = Course(way.name, [], [], {})
    for count, image in way.images:
        course.counts.append(count)
        course.errors.append(found.error(np.asarray(image)))
        if count in SHOWN or way.name == "total variation":
            course.images[count] = np.asarray(image)
            say(f"  {way.name:36s} {count:3d}   {course.errors[-1]:.4f}")
    return course


def reconstruct(found: Scan, at: Problem, iterations: int, say: Callable[[str], None] = print) -> list[Course]:
    """All ways, one after the other."""
    descent, zero = descents(at), jnp.zeros_like(at.right)
    ways = [
        Way("density-compensated adjoint", iter([(0, at.start)])),
        Way("CG from zero", descent(iterations, zero)),
        Way("CG from the adjoint", descent(iterations, at.start)),
        Way("CG from the adjoint, ridge", descent(iterations, at.start, RIDGE)),
        Way("total variation", variation(at, ROUNDS)),
    ]
    return [follow(found, way, say) for way in ways]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectory", choices=TRAJECTORIES, default="radial")
    parser.add_argument("--size", type=int, help="pixels along each dimension: 128 in 2-D, 32 in 3-D")
    parser.add_argument("--coils", type=int, default=4)
    parser.add_argument("--mesh", help="parts of each dimension: 2,4 in 2-D, 2,2,2 in 3-D")
    parser.add_argument("--coils-cut", action="store_true", help="the first part is of the coils")
    parser.add_argument("--noise", type=float, default=0, help="of the root mean square of the data")
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
