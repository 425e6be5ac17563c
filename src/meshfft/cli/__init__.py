"""The command line: the only place that prints, reads flags or the environment, or sets devices up."""
