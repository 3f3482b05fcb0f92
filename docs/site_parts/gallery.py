"""The gallery: an example's first picture is its answer, and stands at the top of its page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ORDER = (
    "growth_chart", "year_of_temperatures", "drug_level", "new_shop", "new_tree", "task_covariates",
    "kinds_of_tasks", "image_completion", "unfinished_training", "bayesian_optimisation", "functional_pca",
)  # fmt: skip
"""From what everybody knows to what needs explaining; an example that is not named here comes last."""


def in_order(name: str) -> tuple[int, str]:
    """By what an example's file is sorted."""
    stem = Path(name).stem
    return (ORDER.index(stem) if stem in ORDER else len(ORDER), stem)


def all_but_the_first(block: Any, variables: dict[str, Any], settings: dict[str, Any]) -> str:
    """Sphinx-Gallery's scraper: keep a block's pictures, and show them in its place, but for an example's first."""
    from sphinx_gallery.scrapers import matplotlib_scraper  # the order above is known without it

    first = not variables["image_path_iterator"].paths
    shown: str = matplotlib_scraper(block, variables, settings)
    return "" if first and shown.count("image-sg::") == 1 else shown


def first_on_top(app: Any, page: str, source: list[str]) -> None:
    """Sphinx' event `source-read`: put that first picture under the title."""
    folder, _, name = page.partition("/")
    picture = Path(app.srcdir, "gallery", "images", f"sphx_glr_{name}_001.png")
    if folder == "gallery" and picture.exists():
        shown = f"\n.. image:: /gallery/images/{picture.name}\n   :alt: The answer, as a picture\n   :class: answer\n"
        source[0] = re.sub(r"^(={3,}|-{3,})\n", lambda line: line[0] + shown, source[0], count=1, flags=re.MULTILINE)
