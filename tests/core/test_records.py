"""The light dataclass decorator against the standard library's: the same behaviour, class by class."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from training_imgtool.core import records


def classes(decorator: Any) -> tuple[type, type, type]:
    """The same three classes by either decorator."""

    @decorator(frozen=True, slots=True)
    class Point:
        """Positional."""

        x: int
        y: int = 2
        names: tuple[str, ...] = dataclasses.field(default_factory=tuple)
        kind: ClassVar[str] = "point"

        @property
        def both(self) -> tuple[int, int]:
            return self.x, self.y

    @decorator(frozen=True, slots=True, kw_only=True)
    class Named:
        """Keywords, checked."""

        name: str
        size: int = 0

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("no name")

        def __repr__(self) -> str:
            return "Named(***)"

    @decorator(frozen=True, slots=True, order=True)
    class Version:
        """Ordered, and a text of its own."""

        major: int
        minor: int

        def __str__(self) -> str:
            return f"{self.major}.{self.minor}"

    return Point, Named, Version


def quick(**options: Any) -> Any:
    return lambda cls: records.quick(records.dataclass(**options)(cls))


OURS, THEIRS = classes(records.dataclass), classes(dataclasses.dataclass)
QUICK = classes(quick)


@records.dataclass(frozen=True, slots=True)
class Kept:
    """Importable, so that it can be pickled."""

    x: int
    y: str = "a"


@pytest.mark.parametrize(
    "call",
    [
        lambda point, *_: repr(point(1)).split(".")[-1],
        lambda point, *_: (point(1) == point(1, 2), point(1) == point(2), point(1) == (1, 2, ()), point(1) != point(1)),
        lambda point, *_: (hash(point(1)) == hash(point(1)), len({point(1), point(1), point(3)})),
        lambda point, *_: point(y=5, x=4).both,
        lambda point, *_: (point.kind, point(1, names=("a",)).names, point(1).names),
        lambda point, *_: repr(dataclasses.replace(point(1), y=7)).split(".")[-1],
        lambda point, *_: dataclasses.asdict(point(1)),
        lambda point, *_: [one.name for one in dataclasses.fields(point)],
        lambda point, *_: point.__match_args__,
        lambda point, *_: repr(copy.copy(point(9))).split(".")[-1],
        lambda point, *_: copy.deepcopy(point(9)) == point(9),
        lambda _, named, __: (repr(named(name="a")), named(name="a").size, named(name="a") == named(name="a", size=0)),
        lambda *three: min(three[2](2, 1), three[2](1, 9)).minor,
        lambda *three: (three[2](1, 2) <= three[2](1, 2), three[2](1, 2) > three[2](1, 3), str(three[2](3, 11))),
    ],
)
def test_the_same(call: Any) -> None:
    assert call(*OURS) == call(*THEIRS)
    assert call(*QUICK) == call(*THEIRS)


@pytest.mark.parametrize(
    "call",
    [
        lambda point, *_: point(),
        lambda point, *_: point(1, 2, (), 4),
        lambda point, *_: point(1, x=1),
        lambda point, *_: point(1, z=1),
        lambda point, *_: setattr(point(1), "x", 2),
        lambda point, *_: delattr(point(1), "x"),
        lambda _, named, __: named("a"),
        lambda _, named, __: named(name=""),
        lambda *three: three[2](1, 2) < three[0](1),
    ],
)
def test_the_same_error(call: Any) -> None:
    found = []
    for three in (OURS, THEIRS, QUICK):
        with pytest.raises(Exception) as caught:  # noqa: PT011 they are compared
            call(*three)
        found.append(caught.type)
    assert found[0] is found[1] is found[2]


def test_no_dict_and_no_class_it_cannot_make() -> None:
    assert not hasattr(OURS[0](1), "__dict__")
    with pytest.raises(TypeError, match="frozen"):
        records.dataclass(frozen=False, slots=True)


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(Kept(3))) == Kept(3)


def test_the_standard_library_finds_what_the_class_says() -> None:
    for ours, theirs in zip(OURS, THEIRS, strict=True):
        assert dataclasses.is_dataclass(ours)
        assert [(one.name, one.type, one.kw_only, one.metadata) for one in dataclasses.fields(ours)] == [
            (one.name, one.type, one.kw_only, one.metadata) for one in dataclasses.fields(theirs)
        ]
        assert [(one.default, one.default_factory) for one in dataclasses.fields(ours)] == [
            (one.default, one.default_factory) for one in dataclasses.fields(theirs)
        ]
        assert ours.__doc__ == theirs.__doc__
        assert ours.__qualname__ == theirs.__qualname__
        assert vars(ours)["__slots__"] == vars(theirs)["__slots__"]


def test_a_record_knows_its_fields_without_the_standard_library() -> None:
    assert records.is_record(OURS[0])
    assert not records.is_record(THEIRS[0])
    assert not records.is_record(OURS[0](1))
    assert [(one.name, one.required) for one in records.fields(OURS[0])] == [
        ("x", True),
        ("y", False),
        ("names", False),
    ]
    assert records.replace(OURS[0](1), y=7) == OURS[0](1, 7)
    with pytest.raises(TypeError):
        records.replace(OURS[0](1), z=7)


def test_a_field_with_more_to_say() -> None:
    @records.dataclass(frozen=True, slots=True, kw_only=True)
    class Key:
        """A key."""

        name: str = records.field(metadata={"doc": "a name"})
        items: tuple[int, ...] = records.field(default_factory=tuple)
        size: int = records.field(default=3, metadata={"minimum": 1})

    assert (Key(name="a").items, Key(name="a").size) == ((), 3)
    assert [dict(one.metadata) for one in records.fields(Key)] == [{"doc": "a name"}, {}, {"minimum": 1}]
    assert [dict(one.metadata) for one in dataclasses.fields(Key)] == [{"doc": "a name"}, {}, {"minimum": 1}]
    with pytest.raises(TypeError):
        Key()  # type: ignore[call-arg]


def test_a_record_below_another() -> None:
    def pair(decorator: Any) -> Any:
        @decorator(frozen=True, slots=True)
        class Base:
            """Below."""

            x: int

        @decorator(frozen=True, slots=True)
        class Above(Base):
            """Above."""

            y: int = 0

        return Above

    ours, theirs = pair(records.dataclass), pair(dataclasses.dataclass)
    assert dataclasses.asdict(ours(1)) == dataclasses.asdict(theirs(1)) == {"x": 1, "y": 0}
    assert ours.__match_args__ == theirs.__match_args__
    assert vars(ours)["__slots__"] == vars(theirs)["__slots__"]
    assert [one.name for one in dataclasses.fields(ours)] == ["x", "y"]


def test_what_the_standard_library_refuses() -> None:
    for decorator in (records.dataclass, dataclasses.dataclass):
        with pytest.raises(ValueError, match="mutable default"):

            @decorator(frozen=True, slots=True)
            class Mutable:
                x: list[int] = []  # noqa: RUF012

        with pytest.raises(TypeError):

            @decorator(frozen=True, slots=True)
            class Order:
                x: int = 1
                y: int

        with pytest.raises(TypeError):

            @decorator(frozen=True, slots=True)
            class Slots:
                __slots__ = ("x",)
                x: int
