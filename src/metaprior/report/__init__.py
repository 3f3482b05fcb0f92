"""Pictures and tables of results: made from the result files alone."""

from metaprior.report.claims import terminal_claims
from metaprior.report.figures import draw_figures
from metaprior.report.page import write_page
from metaprior.report.tables import markdown_tables, terminal_tables

__all__ = ["draw_figures", "markdown_tables", "terminal_claims", "terminal_tables", "write_page"]
