"""Sharded array files, read by slices and written shard by shard. Importing the module of a format registers it."""

from . import flat as flat
from . import hdf5_writer as hdf5_writer
from . import nifti as nifti
from . import zarr as zarr
from .ismrmrd import read_scan as read_scan
from .labels import labelled as labelled
from .labels import left_out as left_out
from .record import Record as Record
from .record import inverse_options as inverse_options
from .record import record_of as record_of
from .source import Source as Source
from .source import identity as identity
from .source import open_array as open_array
from .writing import check_disjoint as check_disjoint
from .writing import check_output as check_output
from .writing import write_array as write_array
