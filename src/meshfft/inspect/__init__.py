"""Compiled programs: their text, their schedules, and compiling for machines that are only described."""
