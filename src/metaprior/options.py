"""Options as data: frozen dataclasses whose fields are the options of whatever takes `**options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from metaprior.errors import OptionError

Function = TypeVar("Function", bound=Callable[..., Any])


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
