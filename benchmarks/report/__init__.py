"""The report: one HTML page of rows of every kind, and the walk of a plan as a picture.

files -> rows by kind (`reading`) -> sections of figures and tables (`measured`, `modelled`) -> `page`
"""
