"""Results as data, and the tables, figures and pages that are made of them."""

from metaprior.report.cells import BETTER, WORSE, make_grids
from metaprior.report.chapters import COMPARISON, Chapter, Picture, draw_figures
from metaprior.report.figures.common import Curves, named, new_figure, write_figure
from metaprior.report.figures.model import model_figures, task_figure
from metaprior.report.figures.performance import performance
from metaprior.report.html import Html, join, tag
from metaprior.report.methods import GREY, Row, colour_of, references
from metaprior.report.page import mark_sign, read_found, section, write_comparison, write_html, write_model_page
from metaprior.report.results import Results
from metaprior.report.tables import markdown_tables, terminal_tables
