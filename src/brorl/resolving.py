"""From a name and arguments in a recipe to a function: the function's own signature is the schema."""

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from brorl.config import Ref
from brorl.errors import RecipeError


def resolve(ref: Ref, table: Mapping[str, Callable[..., Any]], where: str) -> Callable[..., Any]:
    """The named function with its arguments bound.

    Names without a colon are looked up in `table`; ``package.module:function`` is imported.

    Raises:
        RecipeError: an unknown name (with the nearest), a module that cannot be imported, or arguments that the
            function does not take; `where` is the recipe key to name.
    """
    function = _imported(ref.name, where) if ":" in ref.name else _listed(ref.name, table, where)
    return partial(function, **checked_arguments(function, ref.args, f"{where} {ref.name!r}")) if ref.args else function


def checked_arguments(function: Callable[..., Any], args: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Arguments that a function (or dataclass) takes by keyword, as its annotations say: finite, ``1e-4`` a number.

    Raises:
        RecipeError: an argument that it does not take, the message lists those it does; or a value of another type.
    """
    parameters = inspect.signature(function).parameters
    known = [name for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for name in args:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise RecipeError(f"{where} has no argument {name!r}; {takes}")
    return {name: _typed(value, parameters[name].annotation, f"{where}, {name}") for name, value in args.items()}


def _typed(value: Any, annotation: Any, where: str) -> Any:
    """The value as the annotation reads it; one that says nothing, or nothing of plain data, takes what there is."""
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return value
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=ConfigDict(allow_inf_nan=False))
    except PydanticUserError:
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise RecipeError(f"{where}: {error.errors()[0]['msg']} (it is {value!r})") from error


def _listed(name: str, table: Mapping[str, Callable[..., Any]], where: str) -> Callable[..., Any]:
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, list(table), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(table)}"
    raise RecipeError(f"{where}: unknown name {name!r}; {hint} (your own is package.module:function)")


def _imported(name: str, where: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise RecipeError(f"{where}: cannot import {module!r} ({error})") from error
    if attribute not in vars(found):
        raise RecipeError(f"{where}: module {module!r} has no {attribute!r}")
    return vars(found)[attribute]
