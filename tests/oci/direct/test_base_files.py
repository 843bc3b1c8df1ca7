"""What a base has where: layers' archives as trees, merged, recorded; and archives that nobody should believe."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.measure import peak_memory
from tests.oci.direct.tars import archive, raw_archive, raw_header
from training_imgtool.base.errors import NeedsEngineError, VerificationError
from training_imgtool.oci.direct import base_files, tree
from training_imgtool.oci.direct.base_files import BaseReader
from training_imgtool.oci.direct.files import Files
from training_imgtool.oci.direct.tree import UNKNOWN, ClosedFolderError, Kind, Node, find_node, make_folder
from training_imgtool.oci.layers.codecs import decompress
from training_imgtool.oci.layers.layer_cache import RECORDS, LayerCache, Record, read_records
from training_imgtool.oci.layers.tar_reader import read_layer_tree
from training_imgtool.oci.registry.manifests import OCI_LAYER_GZIP, Descriptor, sha256_digest

DEBIAN = "docker.io/library/python:3.11-slim-bookworm"


def listed_alone(layer: bytes) -> Node:
    """The tree of one layer, with what it removes from those below it."""
    return read_layer_tree(iter((layer,)))


def listed(*layers: bytes) -> Node:
    """The tree of layers, lowest first."""
    whole = tree.make_folder()
    for layer in layers:
        whole = tree.merge(whole, read_layer_tree(layer[at : at + 700] for at in range(0, len(layer), 700)))
    return whole


def shown(root: Node, path: str) -> str | None:
    """A node in one word."""
    node = find_node(root, path)
    if node is None:
        return None
    own = node.attributes
    shape = f"{own.mode:o} {own.uid}:{own.gid}" if own else "?"
    return {Kind.FOLDER: shape, Kind.LINK: f"-> {node.target}"}.get(node.kind, "file")


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_an_archive_of_either_form(form: int) -> None:
    long = "/".join(["folder" * 8] * 8)
    root = listed(archive("./", "./a/ 700 5 2097152", f"a/{long}", f"l -> {long}", "/abs", "ü", form=form))
    assert shown(root, "/a") == "700 5:2097152"
    assert shown(root, f"/a/{long}") == "file"
    assert (shown(root, "/l"), shown(root, "/abs"), shown(root, "/ü")) == (f"-> {long}", "file", "file")
    assert shown(root, "/b") is None
    assert tree.dump(tree.parse(tree.dump(root))) == tree.dump(root)


@pytest.mark.parametrize("text", ['"f"', '["l", "a"]', '["d", null]', '["x", null, {}]', '["l", 1]', "[", "7", "{}"])
def test_a_listing_that_is_no_folder_is_refused(text: str) -> None:
    with pytest.raises(VerificationError, match="a stored tree of a base's files"):
        tree.parse(text)


def test_a_listing_keeps_what_a_layer_does_to_those_below_it() -> None:
    """Layers are listed one by one and merged later: a record without its whiteouts would bring files back."""
    lower, upper = (
        listed_alone(archive(*names)) for names in (("o/x", "d/x", "e"), ("o/.wh..wh..opq", "o/y", ".wh.e"))
    )
    kept = tree.merge(*(tree.parse(tree.dump(layer)) for layer in (lower, upper)))
    assert {path: shown(kept, path) for path in ("/o/x", "/o/y", "/d/x", "/e")} == {
        "/o/x": None,
        "/o/y": "file",
        "/d/x": "file",
        "/e": None,
    }


def test_layers_on_top_of_each_other() -> None:
    lower = archive("d/ 700 1 1", "d/x", "e/", "e/x", "f", "l -> d", "o/", "o/x", "p/ 700")
    upper = archive("d/ 750", "d/.wh.x", ".wh.e", "f/", "f/y", "l/", "o/.wh..wh..opq", "o/y", "p/z")
    root = listed(lower, upper)
    expected = {"/d": "750 0:0", "/d/x": None, "/e": None, "/e/x": None, "/f/y": "file", "/l": "755 0:0"}
    expected |= {"/o/x": None, "/o/y": "file", "/p": "?", "/p/z": "file"}
    assert {path: shown(root, path) for path in expected} == expected


def test_what_is_removed_twice_is_gone() -> None:
    assert shown(listed(archive("a"), archive(".wh.a", ".wh.a")), "/a") is None


@pytest.mark.parametrize(("prefix", "path"), [("17", "/x"), ("srv", "/srv/x"), ("1 2", "/1 2/x"), ("sü", "/x")])
def test_a_prefix_in_gnus_format_is_a_time_where_it_can_be(prefix: str, path: str) -> None:
    root = listed(raw_archive(raw_header("x", prefix=prefix, gnu=True)))
    assert shown(root, path) == "file"


@pytest.mark.parametrize("prefix", ["srv", "s" * 155])
def test_a_prefix_of_a_posix_header_goes_before_the_name(prefix: str) -> None:
    assert shown(listed(raw_archive(raw_header("x", prefix=prefix))), f"/{prefix}/x") == "file"


def test_an_entry_of_a_tar_without_types_is_a_folder_by_its_name() -> None:
    root = listed(raw_archive(raw_header("d/", kind="\0"), raw_header("d/x", kind="\0")))
    assert (shown(root, "/d"), shown(root, "/d/x")) == ("644 0:0", "file")


def test_a_hard_link_is_what_it_links_to() -> None:
    root = listed(archive("d/", "l -> d", "h => l", "f", "g => f"))
    assert {path: shown(root, path) for path in ("/h", "/g")} == {"/h": shown(root, "/l"), "/g": "file"}


def test_where_engines_differ_a_folder_is_closed() -> None:
    for layer in (archive("a -> b", "a/x"), archive("a", "a/x"), archive(".wh.a", "a/x"), archive("a/", ".wh.a")):
        root = listed(layer)
        with pytest.raises(ClosedFolderError):
            find_node(root, "/a/y")
        assert shown(root, "/a") == "?"


@pytest.mark.parametrize("path", ["/opt", "/opt/x"])
def test_what_another_tree_has_to_tell_is_closed(path: str) -> None:
    with pytest.raises(ClosedFolderError, match="/opt"):
        find_node(make_folder(children={"opt": UNKNOWN}), path)


def test_a_large_folder_is_closed() -> None:
    root = read_layer_tree((archive(*(f"usr/lib/many/{number}" for number in range(1500)), "usr/lib/few/x"),))
    assert shown(root, "/usr/lib/few/x") == "file"
    assert shown(root, "/usr/lib/few/y") is None
    with pytest.raises(ClosedFolderError, match="/usr/lib/many"):
        find_node(root, "/usr/lib/many/1")
    files = Files((lambda: root,))
    with pytest.raises(NeedsEngineError, match="too many files in /usr"):
        files.node("/usr/lib/many/1")


GOOD = archive("a/", "a/file")
HEADER = bytearray(GOOD[512:1024])


def broken(at: int, data: bytes, *, right_sum: bool = True) -> bytes:
    """The good archive with other bytes in its second header."""
    header = bytearray(HEADER)
    header[at : at + len(data)] = data
    if right_sum:
        header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    return GOOD[:512] + bytes(header) + GOOD[1024:]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"not a tar" * 100, "where a number belongs"),
        (GOOD[:700], "middle of a header"),
        (GOOD[:1500], "middle of a file"),
        (GOOD[:512] + bytes(512) + GOOD[512:], "zeros before its end"),
        (broken(0, b"b", right_sum=False), "not a tar archive"),
        (broken(124, b"\x80" + b"\xff" * 11), "middle of a file"),
        (broken(124, b"\xff" * 12), "a negative size, -1"),
        (broken(124, b"99999999999\0"), "where a number belongs"),
        (broken(108, b"zzzzzzz\0"), "where a number belongs"),
        (broken(156, b"7"), "the type '7'"),
        (broken(156, b"x"), "damaged pax header"),
        (broken(156, b"L")[:1024] + bytes(100), "middle of a header"),
        (broken(124, b"00077777777\0L".ljust(32, b"\0") + b"L"), "extended header of"),
        (archive("x" * 5000), "too long or contains a NUL"),
    ],
)
def test_hostile_archives_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(VerificationError, match=says):
        listed(data)


def test_a_bomb_takes_time_and_no_memory() -> None:
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as packed:
        header = tarfile.TarInfo("big")
        header.size = 400 << 20
        packed.write(header.tobuf())
        for _ in range(400):
            packed.write(bytes(1 << 20))
    with peak_memory() as peak:
        assert shown(read_layer_tree(decompress((stream.getvalue(),))), "/big") == "file"
    assert peak.bytes < 20 << 20


class Base:
    """A base's layers, and how often each was read."""

    def __init__(self, *layers: bytes) -> None:
        packed = [gzip.compress(layer) for layer in layers]
        self.blobs = {sha256_digest(data): data for data in packed}
        self.reads = 0

    def layers(self) -> tuple[Descriptor, ...]:
        """Their descriptors."""
        return tuple(Descriptor(OCI_LAYER_GZIP, digest, len(data)) for digest, data in self.blobs.items())

    def read(self, layer: Descriptor) -> Iterator[bytes]:
        """One of them."""
        self.reads += 1
        yield self.blobs[layer.digest]


def reader(folder: Path) -> BaseReader:
    """A machine of its own."""
    return BaseReader(LayerCache(folder))


def test_each_machine_reads_each_layer_once(tmp_path: Path) -> None:
    base, first = Base(archive("app/ 700 5 5"), archive("app/x")), reader(tmp_path / "one")
    files = first.files(None, base.layers, base.read)
    assert base.reads == 0
    assert files.node("/app") is not None
    assert base.reads == 2
    assert files.node("/other") is None
    more = Base(archive("app/ 700 5 5"), archive("app/x"), archive("top"))
    assert reader(tmp_path / "one").files(None, more.layers, more.read).node("/top")
    assert more.reads == 1
    assert reader(tmp_path / "two").files("example.com/base:1", base.layers, base.read).node("/app/x") is not None
    assert base.reads == 4


@pytest.mark.parametrize("harm", ["{", "[]", '{"a": 1}', '{"a": "{}"}', "null"])
def test_damaged_records_of_a_manifest_count_as_none(harm: str) -> None:
    assert read_records({RECORDS: harm}) == {}
    assert read_records(harm) == {}


def test_a_tree_that_is_damaged_is_read_again(tmp_path: Path) -> None:
    base, cache = Base(archive("app/")), LayerCache(tmp_path)
    BaseReader(cache).files(None, base.layers, base.read).node("/app")
    for path in tmp_path.rglob("*.json"):
        cache.keep(path.stem, Record((), {"files": "AAAA"}))
    assert reader(tmp_path).files(None, base.layers, base.read).node("/app")
    assert base.reads == 2


def test_the_bases_of_the_matrix_are_not_read_for_what_is_sure(tmp_path: Path) -> None:
    base = Base(archive("etc/", "etc/x/ 700 5 5", "opt/", "app/"))
    files = reader(tmp_path).files(DEBIAN, base.layers, base.read)
    assert [files.node(path) for path in ("/app", "/opt/venv", "/srv/x", "/any")] == [None] * 4
    assert files.resolve("/app/deep") == "/app/deep"
    assert base.reads == 0
    inner = files.node("/etc/x")
    assert inner
    assert inner.attributes == tree.Attributes(0o700, 5, 5)
    assert base.reads == 1
    for name in (
        "127.0.0.1:5000/library/python:3.11-slim-bookworm",
        "docker.io/library/python:3.11",
        "docker.io/me/x:1",
    ):
        assert base_files.find_matrix_tree(name) is None


def test_what_an_engine_added_to_a_base_is_read(tmp_path: Path) -> None:
    base, added = Base(archive("app/ 700")), Base(archive("srv/", "srv/x", "opt/venv/", ".wh.srv2"))
    machine = reader(tmp_path)
    files = machine.files_on_top(machine.files(DEBIAN, base.layers, base.read), added.layers, added.read)
    assert files.node("/srv/x") is not None
    assert files.node("/opt/venv") is not None
    assert files.node("/srv/y") is None
    assert (base.reads, added.reads) == (0, 1)


def test_a_hostile_layer_is_named(tmp_path: Path) -> None:
    base = Base(b"not a tar" * 100)
    with pytest.raises(VerificationError, match=f"layer {base.layers()[0].short} of the base: it has"):
        reader(tmp_path).files(None, base.layers, base.read).node("/app")


def test_a_layer_must_be_what_the_config_says(tmp_path: Path) -> None:
    data = archive("app/")
    base = Base(data)
    right, wrong = f"sha256:{hashlib.sha256(data).hexdigest()}", f"sha256:{'0' * 64}"
    with pytest.raises(
        VerificationError, match=f"the content has the digest {right[:19]}, but the base's config names {wrong[:19]}"
    ):
        reader(tmp_path / "wrong").files(None, base.layers, base.read, lambda: (wrong,)).node("/app")
    assert reader(tmp_path / "right").files(None, base.layers, base.read, lambda: (right,)).node("/app")


def test_an_empty_block_does_not_end_a_layer(tmp_path: Path) -> None:
    data = archive("app/", "app/x", "srv/")
    files = reader(tmp_path).files(None, Base(data).layers, lambda _: iter((data[:512], b"", data[512:])))
    assert files.node("/srv")


def test_the_first_bytes_say_how_a_layer_is_compressed(tmp_path: Path) -> None:
    base = Base()
    base.blobs = {sha256_digest(data): data for data in (archive("app/"), gzip.compress(archive("srv/")))}
    files = reader(tmp_path).files(None, base.layers, base.read)
    assert files.node("/app")
    assert files.node("/srv")


@pytest.mark.parametrize("count", [40, 41])
def test_as_many_links_are_followed_as_linux_follows(count: int) -> None:
    links = {str(number): Node(Kind.LINK, target=f"/{number + 1}") for number in range(count)}
    files = Files((lambda: make_folder(children=links),))
    with nullcontext() if count == 40 else pytest.raises(NeedsEngineError, match="/0: too many links"):
        assert files.resolve("/0") == f"/{count}"
