"""One file format each, read by slices behind one record, `Source`."""
