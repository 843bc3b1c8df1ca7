"""Frozen dataclasses that cost a start little: `from builder.records import dataclass`.

The standard library compiles six methods for every class, 0.4 ms each time a process starts; a run with nothing to do
needs seventy classes, which was a quarter of its time. Here all classes share one set of methods that look the fields
up. Whatever reads dataclasses (`replace`, `fields`, `asdict`, mypy) finds one. Making an object takes twice as long, so
what is made by the ten thousand stays with the standard library.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 checkers know this one
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False, order: bool = False) -> Callable[[type], type]:
        """As `dataclasses.dataclass` with these arguments; both `frozen` and `slots` have to be true."""
        if not (frozen and slots):
            raise TypeError("a class that is not frozen or has no slots is for dataclasses.dataclass")
        methods = {**_METHODS, **_ORDER} if order else _METHODS
        plain = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)
        return lambda cls: _finished(plain(_described(cls)), methods)


_set = object.__setattr__


def _described(cls: type) -> type:
    """Gives a class without a text one: the standard library would work out its signature, for 1.4 ms."""
    cls.__doc__ = cls.__doc__ or cls.__name__
    return cls


def _finished(cls: type, methods: dict[str, Any]) -> type:
    found = dataclasses.fields(cls)
    optional = tuple(
        one for one in found if one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING
    )
    cls.__record__ = (  # type: ignore[attr-defined]
        tuple(one.name for one in found),
        tuple(one.name for one in found if not one.kw_only),
        optional,
        hasattr(cls, "__post_init__"),
    )
    own = cls.__dict__
    for name, method in methods.items():
        if name not in own or (name == "__hash__" and own[name] is None):
            setattr(cls, name, method)
    return cls


def _init(self: Any, *values: Any, **named: Any) -> None:
    names, positional, optional, checks = self.__record__
    if values:
        given = dict(zip(positional, values, strict=False))
        if len(values) > len(positional) or not named.keys().isdisjoint(given):
            raise TypeError(f"{type(self).__name__}: takes {', '.join(positional) or 'nothing'} by position, once")
        named.update(given)
    if len(named) != len(names):
        for one in optional:
            if one.name not in named:
                default = one.default
                named[one.name] = one.default_factory() if default is dataclasses.MISSING else default
    if named.keys() != frozenset(names):
        raise TypeError(f"{type(self).__name__}: has the fields {', '.join(names)}, found {', '.join(named)}")
    for name, value in named.items():
        _set(self, name, value)
    if checks:
        self.__post_init__()


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__record__[0]])


def _repr(self: Any) -> str:
    pairs = zip(self.__record__[0], _values(self), strict=True)
    return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"


def _eq(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    return lambda self, other: (
        compare(_values(self), _values(other)) if other.__class__ is self.__class__ else NotImplemented
    )


def _no_set(self: Any, name: str, value: object) -> None:  # noqa: ARG001 the value is refused
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r} of {type(self).__name__}")


def _no_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r} of {type(self).__name__}")


def _state(self: Any) -> dict[str, Any]:
    return dict(zip(self.__record__[0], _values(self), strict=True))


def _set_state(self: Any, state: dict[str, Any]) -> None:
    for name, value in state.items():
        _set(self, name, value)


_METHODS: dict[str, Any] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _no_set,
    "__delattr__": _no_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
_ORDER = {f"__{one.__name__}__": _compared(one) for one in (operator.lt, operator.le, operator.gt, operator.ge)}
