"""Profiles: where the time of a plan goes, by step and by kind of work.

    measured    a run under jax.profiler -> events -> slices of each device's time -> a breakdown
    modelled    a program compiled for a TPU that is only described -> cycles, and waits for links -> a breakdown

`kinds` says what an instruction does, `slices` shares out a device's time, `trace` reads what the profiler left,
`breakdown` sums it, `modelled` makes the same of a compiled text, `running` runs, `perfetto` and `figure` draw.
"""
