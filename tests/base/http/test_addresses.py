from __future__ import annotations

import pytest

from training_imgtool.base.errors import RegistryRefusedError
from training_imgtool.base.http.addresses import (
    next_url,
    origin_of,
    redact,
    speaks_http,
)

PUBLIC = origin_of("https://registry.example.com")


@pytest.mark.parametrize(
    ("host", "insecure", "http"),
    [
        ("127.0.0.1:5000", (), True),
        ("localhost", (), True),
        ("[::1]:5000", (), True),
        ("registry.example.com", (), False),
        ("registry:5000", ("registry:5000",), True),
        ("registry:5000", ("registry",), True),
        ("localhost.example.com", (), False),
        ("10.0.0.1:5000", (), False),
    ],
)
def test_who_is_spoken_to_without_tls(host: str, insecure: tuple[str, ...], http: bool) -> None:
    assert speaks_http(host, insecure) is http


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/v2/a/blobs/uploads/1?_state=x%2Fy", "https://registry.example.com/v2/a/blobs/uploads/1?_state=x%2Fy"),
        ("uploads/1", "https://registry.example.com/v2/a/uploads/1"),
        ("https://storage.example.net/b?sig=a%2Bb", "https://storage.example.net/b?sig=a%2Bb"),
        ("https://registry.example.com:8443/x", "https://registry.example.com:8443/x"),
        ("//storage.example.net/b", "https://storage.example.net/b"),
        ("/x#fragment", "https://registry.example.com/x"),
        ("https://8.8.8.8/x", "https://8.8.8.8/x"),
    ],
)
def test_r23_where_a_registry_may_send_us(location: str, expected: str) -> None:
    assert next_url("https://registry.example.com/v2/a/x", location, PUBLIC, "x") == expected


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("http://registry.example.com/x", "from https to http"),
        ("https://169.254.169.254/computeMetadata", "link-local address"),
        ("https://10.1.2.3/x", "private address"),
        ("https://127.0.0.1/x", "private address"),
        ("https://[fe80::1]/x", "link-local address"),
        ("https://[::ffff:10.0.0.1]/x", "private address"),
        ("https://localhost/x", "private address"),
        ("https://metadata.google.internal/x", "link-local address"),
        ("https://ann:pw@storage.example.net/x", "credentials in it"),
        ("https://127.1/x", "private address"),
        ("https://0x7f000001/x", "private address"),
        ("https://host:port/x", "not an http or https URL"),
    ],
)
def test_r22_r23_where_it_may_not(location: str, says: str) -> None:
    with pytest.raises(RegistryRefusedError, match=says) as caught:
        next_url("https://registry.example.com/v2/a/x", location, PUBLIC, "reading a")
    assert str(caught.value).startswith("reading a: ")
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("registry", ["http://127.0.0.1:5000", "https://10.0.0.2", "https://registry"])
def test_a_private_registry_may_name_private_addresses(registry: str) -> None:
    origin = origin_of(registry)
    location = f"{origin.scheme}://10.0.0.9:9000/bucket"
    assert next_url(f"{registry}/v2/a", location, origin, "x") == location


@pytest.mark.parametrize("registry", ["http://127.0.0.1:5000", "http://10.0.0.2", "http://registry"])
@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "metadata", "[::ffff:169.254.1.1]"]
)
def test_nobody_may_name_a_metadata_service(registry: str, host: str) -> None:
    with pytest.raises(RegistryRefusedError, match="link-local address"):
        next_url(f"{registry}/v2/", f"http://{host}/token", origin_of(registry), "logging in")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "https://ann:pw@host:5/p?digest=sha256:a&X-Amz-Signature=canary",
            "https://host:5/p?digest=sha256:a&X-Amz-Signature=…",
        ),
        ("https://host/p?token=canary", "https://host/p?token=…"),
        ("https://[::1]:5000/p", "https://[::1]:5000/p"),
        ("https://host:bad/p", "an address that cannot be read"),
    ],
)
def test_o7_urls_are_redacted(url: str, shown: str) -> None:
    assert redact(url) == shown
