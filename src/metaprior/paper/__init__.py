"""The paper, run again: its published figures, experiments, theory and claims. Users' own tables do not need it."""

from metaprior.paper import additions as additions  # before the tables that draw on them
from metaprior.paper.chapters import CHAPTERS
from metaprior.paper.claims import judge
from metaprior.paper.experiments import EXPERIMENTS, ON_GPU, check_experiment, run_experiment
from metaprior.paper.options import Options
from metaprior.paper.page import terminal_claims, write_page
from metaprior.paper.published import PUBLISHED

__all__ = [
    "CHAPTERS", "EXPERIMENTS", "ON_GPU", "PUBLISHED", "Options", "check_experiment", "judge", "run_experiment",
    "terminal_claims", "write_page",
]  # fmt: skip
