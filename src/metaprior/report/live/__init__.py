"""A page on which a model is conditioned by hand: what it needs of the model, and the scripts that compute with it."""

from metaprior.report.live.frame import LivePage
from metaprior.report.live.page import is_live_page, live_page, write_live_page

__all__ = ["LivePage", "is_live_page", "live_page", "write_live_page"]
