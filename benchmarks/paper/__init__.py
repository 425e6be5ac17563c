"""The paper's evaluation: its figures and its table as rows, each with how it is known; and its algorithms measured.

cases -> rows (cost model; with the TPU compiler, its cycles) -> JSON lines -> tables, figures
"""
