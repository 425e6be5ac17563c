"""The report: one self-contained HTML page from rows of every kind, and the walk of a plan as a picture.

    files -> reading -> kinds -> scaling, peers, breakdowns, accuracy, models, others -> page -> HTML
    plan -> frames (blocks of each layout) -> panels (polygons) ----------------------^

Figures are SVG inside the page, and nothing is loaded from anywhere. What was modelled is called modelled.
"""
