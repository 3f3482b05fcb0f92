"""Options as data: frozen dataclasses whose fields are the options of whatever takes `**options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Self, TypeVar

from metaprior.errors import OptionError

Function = TypeVar("Function", bound=Callable[..., Any])

REMOVED_OPTIONS = {
    "fallback": "its intervals held far too few values. Such tasks keep the prediction of the prior; the column "
    "plausibility names them. Leave them out, or fit the model on past tasks that are like them."
}
"""Options of earlier versions, each with what to do instead."""


def check_removed(names: Iterable[str], prefix: str = "") -> None:
    """Raise an `OptionError` for an option that an earlier version had. prefix: as the user writes it, such as `--`."""
    for name in names:
        if name in REMOVED_OPTIONS:
            raise OptionError(f"{prefix}{name} was removed: {REMOVED_OPTIONS[name]}")


def names_of_options(*specs: type) -> tuple[str, ...]:
    """The options that some specifications have."""
    return tuple(one.name for spec in specs for one in fields(spec))


def states(
    *specs: type, leave_out: Collection[str] = (), defaults: Mapping[str, Any] | None = None
) -> Callable[[Function], Function]:
    """Let a signature say the fields of these in the place of `**options`: for help and for `get_params`.

    leave_out: fields that are no options here. defaults: where they are others than those of the fields.
    """

    def stating(function: Function) -> Function:
        plain = inspect.signature(function)
        named = {one.name: one for one in plain.parameters.values() if one.kind is not one.VAR_KEYWORD}
        for name, one in (pair for spec in specs for pair in inspect.signature(spec).parameters.items()):
            if name not in leave_out:
                usual = (defaults or {}).get(name, one.default)
                named.setdefault(name, one.replace(kind=one.KEYWORD_ONLY, default=usual))
        function.__signature__ = plain.replace(parameters=list(named.values()))  # type: ignore[attr-defined]
        return function

    return stating


def divided(given: Mapping[str, Any], *specs: type, of: str) -> list[dict[str, Any]]:
    """Options by the specification that has them; one that none has is told with those that there are."""
    known = names_of_options(*specs)
    wrong = [name for name in given if name not in known]
    if wrong:
        raise OptionError(f"{', '.join(wrong)}: no option of {of}. There are {', '.join(sorted(known))}.")
    return [{name: given[name] for name in names_of_options(spec) if name in given} for spec in specs]


def defaults_of(made: Callable[..., Any]) -> dict[str, Any]:
    """What a class or function takes by name, as its signature says it, with the defaults."""
    return {one.name: one.default for one in inspect.signature(made).parameters.values()}


def unusual(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are others than the usual ones. What is of another kind than the usual one is never equal to it:
    an array would have no one answer."""

    def same(value: Any, default: Any) -> bool:
        return value is default or (type(value) is type(default) and bool(value == default))

    return {name: value for name, value in values.items() if not same(value, usual[name])}


class Parameters:
    """`get_params` and `set_params`, as scikit-learn's `clone` and searches ask for them, and a short repr.

    Of a class whose constructor keeps every option as it was given, by its name.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every option with its value. deep: is part of the protocol; no option has options of its own."""
        return {name: getattr(self, name) for name in defaults_of(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Other values for some options. What was learned stays until the next `fit`."""
        known = defaults_of(type(self))
        wrong = [name for name in params if name not in known]
        if wrong:
            raise OptionError(f"{', '.join(wrong)}: no option of {type(self).__name__}. There are {', '.join(known)}.")
        made = type(self)(**(unusual(self.get_params(), known) | params))
        self.__dict__ |= vars(made)  # all of it or, where options do not go together, nothing
        return self

    def _effective_params(self) -> dict[str, Any]:
        """Every option with the value that it stands for, which the repr shows."""
        return self.get_params()

    def __repr__(self) -> str:
        said = unusual(self._effective_params(), defaults_of(type(self)))
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in said.items())})"
