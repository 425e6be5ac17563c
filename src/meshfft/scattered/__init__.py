"""Steps of nonuniform transforms."""

from .ring_points import RingPoints as RingPoints
