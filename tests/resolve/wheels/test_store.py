"""The wheel cache against an index on loopback: finding, continuing, checking, and what goes wrong."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.servers.simple_index import SimpleIndex, serving, tiny_wheel
from training_imgtool.base.errors import CredentialsError, LocalFileError, TemporaryError, VerificationError
from training_imgtool.base.progress import Event, Note, Transfer
from training_imgtool.base.settings import Settings
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.wheels.index.index import Index
from training_imgtool.resolve.wheels.store import WheelStore
from training_imgtool.resolve.wheels.uv import Indexes

BODY = bytes(range(256)) * 8192  # 2 MiB


class Events(list[Event]):
    """A Progress that keeps what it is told."""

    def __call__(self, event: Event) -> None:
        self.append(event)


def settings(tmp_path: Path) -> Settings:
    return Settings(cache=tmp_path / "cache", mirrors={}, docker_config=tmp_path, proxies={}, environ={})


def store(
    tmp_path: Path, *urls: str, find_links: tuple[str, ...] = (), environ: dict[str, str] | None = None
) -> WheelStore:
    index = Index(lambda: Indexes(urls, find_links), environ=environ or {}, proxies={}, pause=lambda _: None)
    return WheelStore(settings(tmp_path), index=index)


def wheel(data: bytes, name: str = "big", version: str = "1.0") -> Wheel:
    file = f"{name}-{version}-py3-none-any.whl"
    return Wheel(name=name, version=version, file=file, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


BIG = wheel(BODY)


@pytest.fixture
def index() -> Iterator[SimpleIndex]:
    own = SimpleIndex()
    own.add("big", BIG.file, BODY)
    with serving(own):
        yield own


@pytest.mark.parametrize("options", [{}, {"as_json": False}, {"with_hashes": False}, {"redirect": True}])
def test_found_by_name_and_hash(tmp_path: Path, index: SimpleIndex, options: dict[str, Any]) -> None:
    for name, value in options.items():
        setattr(index, name, value)
    wheels = store(tmp_path, index.url)
    events = Events()
    wheels.fetch([BIG, BIG], events)
    path = wheels.require(BIG)
    assert path == tmp_path / "cache/wheels" / BIG.sha256[:2] / BIG.sha256 / BIG.file
    assert path.read_bytes() == BODY
    assert events[-1] == Transfer("wheels", BIG.file, len(BODY), len(BODY))
    before = index.requests.copy()
    wheels.fetch([BIG])
    assert index.requests == before  # nothing is asked again


def test_second_machine_uses_the_hint_first(tmp_path: Path, index: SimpleIndex) -> None:
    wheels = store(tmp_path, index.url)
    wheels.fetch([BIG])
    wheels.require(BIG).unlink()
    index.requests.clear()
    wheels.fetch([BIG])
    assert dict(index.requests) == {f"GET /files/big/{BIG.file}": 1}


def test_a_wrong_hint_costs_one_request(tmp_path: Path, index: SimpleIndex) -> None:
    wheels = store(tmp_path, index.url)
    wheels.remember(BIG.sha256, index.url.replace("/simple", "/files/gone/x.whl"))
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY


def test_broken_connection_is_continued_with_a_range(tmp_path: Path, index: SimpleIndex) -> None:
    index.cut_after = 1_000_000
    wheels = store(tmp_path, index.url)
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY
    assert len(index.ranges_asked) == 1
    assert 0 < int(index.ranges_asked[0].removeprefix("bytes=").rstrip("-")) <= 1_000_000


def test_server_without_ranges_begins_anew(tmp_path: Path, index: SimpleIndex) -> None:
    index.cut_after, index.ranges = 1_000_000, False
    wheels = store(tmp_path, index.url)
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY


def test_what_an_earlier_run_left_is_continued(tmp_path: Path, index: SimpleIndex) -> None:
    wheels = store(tmp_path, index.url)
    part = tmp_path / "cache/wheels" / BIG.sha256[:2] / BIG.sha256 / "part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY[:1_500_000])
    wheels.fetch([BIG])
    assert index.ranges_asked == ["bytes=1500000-"]
    assert wheels.require(BIG).read_bytes() == BODY
    assert not part.exists()


def test_the_next_place_is_read_from_the_start(tmp_path: Path, index: SimpleIndex) -> None:
    """The first has the file no longer, after an earlier run took a part of it from there."""
    wheels = store(tmp_path, index.url)
    wheels.remember(BIG.sha256, index.url.replace("/simple", "/files/gone/x.whl"))
    (tmp_path / "cache/wheels" / BIG.sha256[:2] / BIG.sha256 / "part").write_bytes(BODY[:1_500_000])
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY


def test_a_spoilt_beginning_is_noticed_and_thrown_away(tmp_path: Path, index: SimpleIndex) -> None:
    wheels = store(tmp_path, index.url)
    part = tmp_path / "cache/wheels" / BIG.sha256[:2] / BIG.sha256 / "part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1_500_000)
    with pytest.raises(VerificationError):
        wheels.fetch([BIG])
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY


def test_other_bytes_than_the_lock_says(tmp_path: Path, index: SimpleIndex) -> None:
    index.served[BIG.file] = b"y" + BODY[1:]
    wheels = store(tmp_path, index.url)
    with pytest.raises(VerificationError, match=f"{BIG.file}: got .* the lock says") as caught:
        wheels.fetch([BIG])
    assert caught.value.exit_code == 10
    assert wheels.path(BIG) is None


def test_a_download_stops_at_the_locked_size(tmp_path: Path, index: SimpleIndex) -> None:
    """An endless answer takes no more disk than the locked size, and the next download begins anew."""
    index.endless = True
    wheels = store(tmp_path, index.url)
    with pytest.raises(VerificationError, match=f"{BIG.file}: 127.0.0.1:.* more than the {BIG.size} bytes") as caught:
        wheels.fetch([BIG])
    assert caught.value.exit_code == 10
    assert sum(path.stat().st_size for path in tmp_path.rglob("part")) == 0
    index.endless = False
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY


@pytest.mark.parametrize("place", ["file:///etc/hostname", "ftp://127.0.0.1/x", "gopher:x"])
def test_a_redirect_to_something_else_than_http(tmp_path: Path, index: SimpleIndex, place: str) -> None:
    index.redirect, index.moved_to = True, place
    with pytest.raises(VerificationError, match="imgtool follows http and https only") as caught:
        store(tmp_path, index.url).fetch([BIG])
    assert caught.value.exit_code == 10
    assert sum(index.requests.values()) == 2


def test_a_page_that_drips(tmp_path: Path, index: SimpleIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training_imgtool.resolve.wheels.index.index._PAGE_SECONDS", 0.2)
    index.dripping = 0.01
    with pytest.raises(TemporaryError, match="took longer than 0 s to answer"):
        store(tmp_path, index.url).fetch([BIG])


def test_no_index_is_obeyed(tmp_path: Path, index: SimpleIndex) -> None:
    """With pip's no-index no request reaches the default index: folders only."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / BIG.file).write_bytes(BODY)
    config = f"[global]\nno-index = true\nindex-url = {index.url}\nfind-links = {tmp_path}/mine\n"
    (tmp_path / "pip.conf").write_text(config)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    own = replace(settings(tmp_path), environ=environ)
    wheels = WheelStore(own)
    wheels.fetch([BIG])
    with pytest.raises(VerificationError, match="no index of this machine has other"):
        wheels.fetch([wheel(b"other", "other")])
    assert not index.requests


def test_same_name_with_another_hash_is_not_taken(tmp_path: Path, index: SimpleIndex) -> None:
    index.files["big"][BIG.file] = b"another build"
    with pytest.raises(VerificationError, match="no index of this machine has big-1"):
        store(tmp_path, index.url).fetch([BIG])


def test_damaged_cache_entry_is_fetched_again_with_a_note(tmp_path: Path, index: SimpleIndex) -> None:
    wheels = store(tmp_path, index.url)
    wheels.fetch([BIG])
    wheels.require(BIG).write_bytes(BODY[:-1])
    assert wheels.path(BIG) is None
    events = Events()
    wheels.fetch([BIG], events)
    assert any(isinstance(event, Note) and "damaged" in event.text for event in events)
    assert wheels.require(BIG).read_bytes() == BODY


def test_passing_faults_are_retried(tmp_path: Path, index: SimpleIndex) -> None:
    index.faults = [503, 429, 500]
    wheels = store(tmp_path, index.url)
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY


def test_faults_that_stay(tmp_path: Path, index: SimpleIndex) -> None:
    index.faults = [503] * 9
    with pytest.raises(TemporaryError, match=r"the package index 127\.0\.0\.1:\d+ answered 503 five times") as caught:
        store(tmp_path, index.url).fetch([BIG])
    assert caught.value.exit_code == 8


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(TemporaryError, match=r"the package index 127\.0\.0\.1:9 does not answer: nothing answers"):
        store(tmp_path, "http://127.0.0.1:9/simple").fetch([BIG])


def test_login_from_the_url_is_used_and_never_kept_or_shown(tmp_path: Path, index: SimpleIndex) -> None:
    index.login = ("user", "s3cret")
    with pytest.raises(CredentialsError, match="refuses access") as caught:
        store(tmp_path, index.url).fetch([BIG])
    assert caught.value.exit_code == 7
    wheels = store(tmp_path, index.with_login())
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.name != BIG.file]
    assert kept
    assert all(b"s3cret" not in path.read_bytes() for path in kept)
    with pytest.raises(CredentialsError) as wrong:
        store(tmp_path / "other", index.url.replace("://", "://user:n0pe@")).fetch([BIG])
    assert "n0pe" not in str(wrong.value)


def test_login_from_netrc_and_from_named_indexes(tmp_path: Path, index: SimpleIndex) -> None:
    index.login = ("user", "s3cret")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password s3cret\n")
    netrc.chmod(0o600)
    store(tmp_path / "a", index.url, environ={"NETRC": str(netrc)}).fetch([BIG])
    named = {
        "UV_INDEX": f"my-corp={index.url}",
        "UV_INDEX_MY_CORP_USERNAME": "user",
        "UV_INDEX_MY_CORP_PASSWORD": "s3cret",
    }
    store(tmp_path / "b", index.url, environ=named).fetch([BIG])


def test_login_is_not_sent_to_another_host(tmp_path: Path, index: SimpleIndex) -> None:
    with serving(SimpleIndex(files=index.files, login=("user", "s3cret"))) as other:
        wheels = store(tmp_path, index.url.replace("://", "://user:s3cret@"))
        wheels.remember(BIG.sha256, other.url.replace("/simple", f"/files/big/{BIG.file}"))
        with pytest.raises(CredentialsError):
            wheels.fetch([BIG])


def test_folders_serve_too(tmp_path: Path) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / BIG.file).write_bytes(BODY)
    wheels = store(tmp_path, find_links=(str(folder),))
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY
    simple = tmp_path / "simple/big"
    simple.mkdir(parents=True)
    (simple / "index.html").write_text(f'<a href="../../links/{BIG.file}#sha256={BIG.sha256}">{BIG.file}</a>')
    store(tmp_path / "other", (tmp_path / "simple").as_uri()).fetch([BIG])


def test_another_build_of_the_same_name_in_a_folder_hides_nothing(tmp_path: Path, index: SimpleIndex) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / BIG.file).write_bytes(b"another build")
    wheels = store(tmp_path, index.url, find_links=(str(tmp_path / "mine"),))
    wheels.fetch([BIG])
    assert wheels.require(BIG).read_bytes() == BODY


def test_many_at_once_and_the_same_twice(tmp_path: Path, index: SimpleIndex) -> None:
    many = []
    for number in range(12):
        data = tiny_wheel(f"p{number}", "1.0", padding=50_000)
        index.add(f"p{number}", f"p{number}-1.0-py3-none-any.whl", data)
        many.append(wheel(data, f"p{number}"))
    stores = [store(tmp_path, index.url) for _ in range(3)]
    threads = [threading.Thread(target=one.fetch, args=(many,)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(stores[0].path(one) for one in many)
    assert all(index.requests[f"GET /files/{one.name}/{one.file}"] == 1 for one in many)
    assert not list((tmp_path / "cache").rglob("part"))


def test_cache_that_cannot_be_written(tmp_path: Path, index: SimpleIndex) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(LocalFileError) as caught:
        store(tmp_path, index.url).fetch([BIG])
    assert caught.value.exit_code == 9
