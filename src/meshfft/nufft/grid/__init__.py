"""Points on a grid: the window, in which order points are taken, and both directions on one device."""
