"""Transforms of arrays larger than memory, in passes over the disk."""

from .journal import left_of as left_of
from .journal import recorded_budgets as recorded_budgets
from .journal import recorded_devices as recorded_devices
from .run import run_passes as run_passes
from .transfer import chunk_of as chunk_of
