"""`python -m benchmarks tables`: every table and number of README.md and docs/ that is measured or modelled here.

parts (commands) -> rows in results/ -> tables and series -> marked texts of pages
"""
