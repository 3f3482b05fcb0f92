"""Pictures and tables of results: made from the result files alone."""

from metaprior.report.claims import terminal_claims
from metaprior.report.figures import draw_figures
from metaprior.report.figures.common import write_figure
from metaprior.report.figures.model import model_figures, task_figure
from metaprior.report.page import write_model_page, write_page
from metaprior.report.tables import markdown_tables, terminal_tables

__all__ = [
    "draw_figures",
    "markdown_tables",
    "model_figures",
    "task_figure",
    "terminal_claims",
    "terminal_tables",
    "write_figure",
    "write_model_page",
    "write_page",
]
