"""Results as data, and the tables, figures and pages that are made of them."""

from metaprior.report.cells import BETTER, WORSE, make_grids
from metaprior.report.chapters import COMPARISON, Chapter, Picture, draw_figures
from metaprior.report.facts import described, facts_of, figure_text
from metaprior.report.figures.common import Curves, drawn_before, key_line, key_patch, named, new_figure, write_figure
from metaprior.report.figures.model import model_figures, suggestion_figure, task_figure
from metaprior.report.figures.performance import performance
from metaprior.report.html import Html, join, tag
from metaprior.report.live import LivePage, is_live_page, live_page, write_live_page
from metaprior.report.methods import GREY, Row, colour_of, references
from metaprior.report.page import (
    html_page,
    is_model_page,
    live_link,
    mark_sign,
    model_page,
    read_found,
    section,
    write_comparison,
    write_html,
    write_model_page,
)
from metaprior.report.results import LIVE, MODEL, Results, among_results
from metaprior.report.tables import markdown_tables, terminal_tables

__all__ = [
    "BETTER", "COMPARISON", "GREY", "LIVE", "MODEL", "WORSE", "Chapter", "Curves", "Html", "LivePage", "Picture",
    "Results", "Row", "among_results", "colour_of", "described", "draw_figures", "drawn_before", "facts_of",
    "figure_text", "html_page", "is_live_page", "is_model_page", "join", "key_line", "key_patch", "live_link",
    "live_page", "make_grids", "mark_sign", "markdown_tables", "model_figures", "model_page", "named", "new_figure",
    "performance", "read_found", "references", "section", "suggestion_figure", "tag",
    "task_figure", "terminal_tables", "write_comparison", "write_figure", "write_html", "write_live_page",
    "write_model_page",
]  # fmt: skip
