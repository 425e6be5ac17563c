"""Sharded array files: read by slices, written shard by shard."""

from .carrying import chunk_of as chunk_of
from .identity import identity as identity
from .journal import left_of as left_of
from .journal import recorded_budgets as recorded_budgets
from .labels import labelled as labelled
from .passing import run_passes as run_passes
from .reading import open_array as open_array
from .record import Record as Record
from .record import inverse_options as inverse_options
from .record import record_of as record_of
from .source import Source as Source
from .writing import check_apart as check_apart
from .writing import check_output as check_output
from .writing import write_array as write_array
