"""Plots fit for a paper, and the numbers behind them. The only package that imports matplotlib, on the first drawing.

A *picture* is a frozen dataclass that holds every number it shows; it can draw itself into a figure one column wide
and give its numbers as a table. `save` writes both. What a picture shows comes from `evo.report.series`.
"""

from evo.plots.picture import Picture, Table, as_csv, save
from evo.plots.speedup import Generation, History, SeedLine, summarise

__all__ = ["Generation", "History", "Picture", "SeedLine", "Table", "as_csv", "save", "summarise"]
