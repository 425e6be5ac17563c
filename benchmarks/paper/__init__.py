"""The paper's evaluation: its figures and its table as rows, each with how it is known.

cases -> rows (cost model) -> JSON lines -> tables, figures
"""
