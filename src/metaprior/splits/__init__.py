"""Who may see what: folds, hold-outs, contexts; tasks to train on, to stop by and to judge by."""

from metaprior.splits.contexts import (
    Contexts,
    Doubling,
    FirstSizes,
    Given,
    LeftOut,
    RandomSizes,
    Until,
    both_sides,
    checked_contexts,
    default_contexts,
    default_sizes,
    drawn_contexts,
    first_sizes,
    random_sizes,
)
from metaprior.splits.roles import Fold, Roles, k_folds, one_fold, roles_of, some_of, spare, to_stop_by, within

__all__ = [
    "Contexts", "Doubling", "FirstSizes", "Fold", "Given", "LeftOut", "RandomSizes", "Roles", "Until", "both_sides",
    "checked_contexts", "default_contexts", "default_sizes", "drawn_contexts", "first_sizes", "k_folds", "one_fold",
    "random_sizes", "roles_of", "some_of", "spare", "to_stop_by", "within",
]  # fmt: skip
