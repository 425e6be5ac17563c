"""Error of a reconstruction method by applications of the normal operator."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jax import Array
from scan import Scan

SHOWN = (0, 5, 10, 20, 40)


class Way(NamedTuple):
    """A method: its name, and its images with their numbers of applications of the normal operator."""

    name: str
    images: Iterator[tuple[int, Array]]
    all: bool = False  # whether all images are kept and printed


class Course(NamedTuple):
    """Course of a method: applications, errors, and images (those at SHOWN, or all)."""

    name: str
    counts: list[int]
    errors: list[float]
    images: dict[int, np.ndarray]


def follow(found: Scan, way: Way, say: Callable[[str], None] = print) -> Course:
    """Runs a method to its end, and returns its course."""
    course = Course(way.name, [], [], {})
    for count, image in way.images:
        course.counts.append(count)
        course.errors.append(found.error(np.asarray(image)))
        if count in SHOWN or way.all:
            course.images[count] = np.asarray(image)
            say(f"  {way.name:36s} {count:3d}   {course.errors[-1]:.4f}")
    return course
