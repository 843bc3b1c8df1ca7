"""Frozen dataclasses that cost a start little: `from training_imgtool.core.records import dataclass`.

The standard library compiles six methods for every class, 0.4 ms each time a process starts, and loads the readers of
Python's own source for it, another 5 ms; a run with nothing to do needs seventy classes. Here all classes share one set
of methods that look the fields up. Whatever reads dataclasses (`dataclasses.fields`, `asdict`, mypy) finds one: the
standard library's description of a class is made when it is first asked for. Making an object takes twice as long, but
for the classes that are also `quick`, which are those whose objects are made by the ten thousand.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

MISSING: Any = object()
"""In place of a default that a field does not have."""


class Field:
    """One field of a record: its name, its annotation as written, and what may be left out.

    `default` is the value itself and `default_factory` makes one; both are MISSING when the field must be given.
    """

    __slots__ = ("default", "default_factory", "kw_only", "metadata", "name", "type")

    def __init__(self, default: Any, default_factory: Any, metadata: Mapping[str, Any] | None) -> None:
        self.name = ""
        self.type: Any = None
        self.kw_only = False
        self.default = default
        self.default_factory = default_factory
        self.metadata: Mapping[str, Any] = MappingProxyType({} if metadata is None else metadata)

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING and self.default_factory is MISSING


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 checkers know these
    from dataclasses import field as field  # noqa: PLC0414
    from dataclasses import replace as replace  # noqa: PLC0414
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False, order: bool = False) -> Callable[[type], type]:
        """As `dataclasses.dataclass` with these arguments; both `frozen` and `slots` have to be true."""
        if not (frozen and slots):
            raise TypeError("a class that is not frozen or has no slots is for dataclasses.dataclass")
        methods = {**_METHODS, **_ORDER} if order else _METHODS
        return lambda cls: _made(cls, methods, kw_only=kw_only)

    def field(*, default: Any = MISSING, default_factory: Any = MISSING, metadata: Any = None) -> Any:
        """As `dataclasses.field` with these arguments."""
        return Field(default, default_factory, metadata)

    def replace(record: Any, /, **changes: Any) -> Any:
        """As `dataclasses.replace`, for records."""
        return type(record)(**{**_state(record), **changes})


def quick(cls: type[T]) -> type[T]:
    """Compiles a method that makes the objects of a record's class: above `dataclass`, where there are many."""
    before: list[str] = []
    named: list[str] = []
    names: dict[str, Any] = {"_set": _set, "MISSING": MISSING}
    body: list[str] = []
    for one in fields(cls):
        default = ""
        if not one.required:
            names[f"_default_{one.name}"] = one.default
            default = f"=_default_{one.name}"
        if one.default_factory is not MISSING:
            names[f"_factory_{one.name}"] = one.default_factory
            body.append(f"if {one.name} is MISSING: {one.name} = _factory_{one.name}()")
        body.append(f"_set(self, {one.name!r}, {one.name})")
        (named if one.kw_only else before).append(one.name + default)
    if vars(cls)["__record__"][3]:
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *before, *(["*", *named] if named else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), names)  # noqa: S102 as dataclasses does
    type.__setattr__(cls, "__init__", names["__init__"])
    return cls


def is_record(kind: object) -> bool:
    """Whether `kind` is a class that `dataclass` of this module made."""
    return isinstance(kind, type) and hasattr(kind, "__record__")


def fields(kind: type) -> tuple[Field, ...]:
    """The fields of a record's class, in order."""
    found: tuple[Field, ...] = vars(kind)["__record_fields__"]
    return found


_set = object.__setattr__


def _made(cls: type, methods: Mapping[str, Any], *, kw_only: bool) -> type:
    body = dict(cls.__dict__)
    if "__slots__" in body:
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    inherited = [one for base in cls.__mro__[:0:-1] for one in base.__dict__.get("__record_fields__", ())]
    own = [
        _field(name, annotation, body.pop(name, MISSING), kw_only=kw_only)
        for name, annotation in body.get("__annotations__", {}).items()
        if not (isinstance(annotation, str) and annotation.startswith("ClassVar"))
    ]
    found = tuple({one.name: one for one in [*inherited, *own]}.values())
    positional = tuple(one.name for one in found if not one.kw_only)
    _check_order(cls, found)
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    slots_below = {one.name for one in inherited}
    body["__slots__"] = tuple(one.name for one in own if one.name not in slots_below)
    body["__qualname__"] = cls.__qualname__
    body["__doc__"] = cls.__doc__ or cls.__name__
    body.setdefault("__match_args__", positional)
    body["__record_fields__"] = found
    body["__dataclass_fields__"], body["__dataclass_params__"] = _Described("fields"), _Described("params")
    for name, method in methods.items():
        if body.get(name) is None:  # a class with its own __eq__ has None as its __hash__
            body[name] = method
    body["__record__"] = (
        tuple(one.name for one in found),
        positional,
        tuple(one for one in found if not one.required),
        "__post_init__" in body or hasattr(cls, "__post_init__"),
    )
    return type(cls)(cls.__name__, cls.__bases__, body)


def _field(name: str, annotation: Any, value: Any, *, kw_only: bool) -> Field:
    """The field of an annotation; `value` is what the class's body gives for it, MISSING for nothing."""
    standard = sys.modules.get("dataclasses")
    if isinstance(value, Field):
        one = value
    elif standard is not None and isinstance(value, standard.Field):
        default, factory = (MISSING if v is standard.MISSING else v for v in (value.default, value.default_factory))
        one = Field(default, factory, value.metadata)
    else:
        one = Field(value, MISSING, None)
    one.name, one.type, one.kw_only = name, annotation, kw_only
    if one.default.__class__.__hash__ is None:
        raise ValueError(f"mutable default {type(one.default)} for field {name} is not allowed: use default_factory")
    return one


def _check_order(cls: type, found: tuple[Field, ...]) -> None:
    optional = ""
    for one in found:
        if not one.kw_only and not one.required:
            optional = one.name
        elif not one.kw_only and optional:
            raise TypeError(f"{cls.__name__}: {one.name} has no default and follows {optional}, which has one")


class _Described:
    """The standard library's description of a record's class, made when something reads it: few runs do."""

    def __init__(self, part: str) -> None:
        self._name = f"__dataclass_{part}__"

    def __get__(self, record: object, cls: type) -> Any:
        import dataclasses

        found = fields(cls)
        body: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        body["__annotations__"] = {one.name: one.type for one in found}
        for one in found:
            options: dict[str, Any] = {"metadata": one.metadata, "kw_only": one.kw_only}
            if one.default is not MISSING:
                options["default"] = one.default
            if one.default_factory is not MISSING:
                options["default_factory"] = one.default_factory
            body[one.name] = dataclasses.field(**options)
        described: type = dataclasses.dataclass(init=False, repr=False, eq=False)(type(cls.__name__, (), body))
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            type.__setattr__(cls, name, getattr(described, name))
        return getattr(described, self._name)


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
                named[one.name] = one.default_factory() if default is MISSING else default
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
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r} of {type(self).__name__}")


def _no_delete(self: Any, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r} of {type(self).__name__}")


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
