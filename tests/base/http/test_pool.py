"""The pool's choices that need no network: which host goes through a proxy, what a bad CA file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.base.errors import LocalFileError, UsageError
from training_imgtool.base.http.addresses import is_loopback
from training_imgtool.base.http.pool import make_pool, proxy_for

PROXY = "http://proxy.example.com:3128"


@pytest.mark.parametrize(
    ("url", "no", "proxied"),
    [
        ("https://pypi.example.com/simple", "", True),
        ("https://pypi.example.com/simple", "*", False),
        ("https://pypi.example.com/simple", "example.com", False),
        ("https://pypi.example.com/simple", ".example.com", False),
        ("https://pypi.example.com/simple", "*.example.com", False),
        ("https://pypi.example.com/simple", "ample.com", True),
        ("https://pypi.example.com/simple", "other.com, pypi.example.com", False),
        ("https://PyPI.Example.com/simple", "pypi.example.com", False),
        ("https://pypi.example.com:8443/", "pypi.example.com:443", True),
        ("https://pypi.example.com:8443/", "pypi.example.com:8443", False),
        ("https://10.1.2.3/", "10.0.0.0/8", False),
        ("https://11.1.2.3/", "10.0.0.0/8", True),
        ("https://[2001:db8::1]/", "2001:db8::/32", False),
        ("http://pypi.example.com/", "", False),  # only https has a proxy here
        ("https://127.0.0.1:5000/", "", False),
        ("https://127.9.9.9/", "", False),
        ("https://[::1]:5000/", "", False),
        ("https://localhost:5000/", "", False),
        ("https://registry.localhost/", "", False),
    ],
)
def test_proxy_for(url: str, no: str, proxied: bool) -> None:
    assert proxy_for(url, {"https": PROXY, "no": no}) == (PROXY if proxied else None)


def test_loopback_is_by_address_not_by_prefix() -> None:
    assert is_loopback("127.0.0.1")
    assert not is_loopback("127.0.0.1.example.com")
    assert not is_loopback("localhost.example.com")


def test_proxy_credentials_become_a_header_only() -> None:
    pool = make_pool("https://pypi.example.com", proxies={"https": "http://user:s3cret@proxy.example.com:3128"})
    assert pool.proxy is not None
    assert pool.proxy.auth is None
    assert "s3cret" not in str(pool.proxy)


def test_ca_file_that_is_not_pem(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("not a certificate")
    with pytest.raises(LocalFileError, match=r"ca\.pem: not a PEM file"):
        make_pool("https://pypi.example.com", proxies={}, ca_file=path)
    with pytest.raises(LocalFileError, match="missing"):
        make_pool("https://pypi.example.com", proxies={}, ca_file=tmp_path / "missing")


@pytest.mark.parametrize("scheme", ["ftp", "socks5"])
def test_bad_proxy_is_named_and_shows_no_password(scheme: str) -> None:
    with pytest.raises(UsageError, match="HTTPS_PROXY is not") as caught:
        make_pool("https://pypi.example.com", proxies={"https": f"{scheme}://user:s3cret@proxy"})
    assert "s3cret" not in str(caught.value)
    assert "SOCKS" in str(caught.value.hint)
