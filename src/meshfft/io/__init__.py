"""Sharded array files: read by slices, written shard by shard."""

from .formats.ismrmrd import read_scan as read_scan
from .formats.labels import labelled as labelled
from .formats.record import Record as Record
from .formats.record import inverse_options as inverse_options
from .formats.record import record_of as record_of
from .formats.source import Source as Source
from .processes import identity as identity
from .reading import open_array as open_array
from .writing import check_disjoint as check_disjoint
from .writing import check_output as check_output
from .writing import write_array as write_array
