"""Numbers and tables in README.md and docs/, remade from rows.

results -> series, tables -> marked texts of pages
"""
