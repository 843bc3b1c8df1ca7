"""Claims: never silent about a clash that the files themselves show, and quiet about what packages usually share."""

from __future__ import annotations

import random

import pytest

from training_imgtool.base.errors import NeedsEngineError
from training_imgtool.oci.layers.path_conflicts import find_claims, find_overlaps
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry, Kind
from training_imgtool.oci.wheel_layers.wheel_items import merge

SITE = "venv/site"


def _file(path: str, data: bytes = b"x", mode: int = 0o644) -> Item:
    return Item(Entry(path=path, kind=Kind.FILE, mode=mode, size=len(data)), data=data)


def _claims(*items: Item) -> dict[str, str]:
    return find_claims(items, f"/{SITE}")


def test_a_package_is_one_claim() -> None:
    tree = [f"{SITE}/tensor/{name}" for name in ("__init__.py", "a.py", "deep/b.py", "deep/er/c.so")]
    assert _claims(*map(_file, tree)) == {f"{SITE}/tensor/": ""}


def test_what_is_shared_is_claimed_piece_by_piece() -> None:
    claims = _claims(
        *(_file(f"{SITE}/{name}") for name in ("nvidia/__init__.py", "nvidia/cudnn/lib/x.so", "six.py")),
        _file("venv/bin/go", mode=0o755),
        _file("venv/share/man/man1/go.1"),
    )
    assert set(claims) == {
        f"{SITE}/nvidia/__init__.py",
        f"{SITE}/nvidia/cudnn/lib/x.so",
        f"{SITE}/six.py",
        "venv/bin/go",
        "venv/share/man/man1/go.1",
    }


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ([_file(f"{SITE}/a/x.py")], [_file(f"{SITE}/b/x.py")], False),
        ([_file(f"{SITE}/n/__init__.py"), _file(f"{SITE}/n/a/x")], [_file(f"{SITE}/n/__init__.py")], False),
        ([_file(f"{SITE}/n/__init__.py", b"1")], [_file(f"{SITE}/n/__init__.py", b"2")], True),
        ([_file(f"{SITE}/six.py")], [_file(f"{SITE}/six.py", mode=0o755)], True),
        ([_file(f"{SITE}/a/x.py")], [_file(f"{SITE}/a/y.py")], True),  # both say that the folder is theirs
        ([_file(f"{SITE}/a/x.py")], [_file(f"{SITE}/a/b/c/y.py")], True),
        ([_file(f"{SITE}/n/lib/x")], [_file(f"{SITE}/n/lib/y"), _file(f"{SITE}/n/lib/z/x")], False),  # NVIDIA's wheels
        ([_file(f"{SITE}/n/lib/x")], [_file(f"{SITE}/n/lib/x")], True),  # nobody has compared them
        ([_file("venv/bin")], [_file("venv/bin/go")], True),
        (
            [Item(Entry(path="venv/l", kind=Kind.LINK, mode=0o777, target="a"))],
            [Item(Entry(path="venv/l", kind=Kind.LINK, mode=0o777, target="b"))],
            True,
        ),
    ],
)
def test_two(one: list[Item], other: list[Item], overlap: bool) -> None:
    third = _claims(_file(f"{SITE}/elsewhere/z"))
    found = find_overlaps({"one": _claims(*one), "other": _claims(*other), "third": third})
    assert found == ({"one", "other"} if overlap else set())


@pytest.mark.parametrize("other", [_file("venv/bin/go", mode=0o755), _file("venv/bin/go", b"y")])
def test_files_of_one_name_are_alike_in_bytes_and_mode(other: Item) -> None:
    files, owners = dict[str, Item](), dict[str, str]()
    for _ in range(2):
        merge(files, _file("venv/bin/go"), owners, "one")
    with pytest.raises(NeedsEngineError, match="one and two have /venv/bin/go"):
        merge(files, other, owners, "two")


def test_no_clash_goes_unseen() -> None:
    """Every pair whose files clash, among many made at random, overlaps by its claims."""
    dice = random.Random(7)
    names = ["a", "b", "__init__.py", "c.py"]
    clashes = 0
    for _ in range(4000):
        groups = {}
        for name in ("one", "other"):
            paths = {"/".join(dice.choices(names, k=dice.randint(1, 4))) for _ in range(dice.randint(1, 4))}
            kept = [p for p in paths if not any(q.startswith(f"{p}/") for q in paths)]
            top = dice.choice((SITE, SITE, "venv"))
            groups[name] = [_file(f"{top}/{path}", dice.choice((b"1", b"2"))) for path in kept]
        if _clash(groups["one"], groups["other"]):
            clashes += 1
            assert find_overlaps({name: _claims(*items) for name, items in groups.items()}) == {"one", "other"}
    assert clashes > 200


def _clash(one: list[Item], other: list[Item]) -> bool:
    found: dict[str, Item] = {}
    try:
        for item in (*one, *other):
            merge(found, item, {}, "")
    except NeedsEngineError:
        return True
    return any(path.startswith(f"{above}/") for path in found for above in found)
