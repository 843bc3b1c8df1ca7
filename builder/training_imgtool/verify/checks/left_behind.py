"""What does not belong in an image: secrets in its settings, history and layers, and caches; and its size."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from training_imgtool.context import secret_files
from training_imgtool.core.secret_text import detect_line_secret, detect_named_secret, detect_secret
from training_imgtool.verify.case import Case, shorten
from training_imgtool.verify.facts import Fields, Finding, read_env

_CERTIFICATES = (".pem", ".key")  # names for public parts too: what is in them decides
_SYSTEM = ("usr/", "etc/ssl/", "etc/apt/", "lib/")


def make_findings(case: Case) -> Iterator[Finding]:
    """Yields the checks of what is left over, and the sizes."""
    yield _check_settings(case)
    yield _check_files(case)
    yield _check_caches(case)
    yield _size(case)


def _check_settings(case: Case) -> Finding:
    """Values of secrets are never shown."""
    settings, allow = case.facts.settings, case.spec.allow_secrets
    inherited = read_env((case.facts.base_config or {}).get("config") or {})
    secrets = [
        f"{name} in the environment looks like {kind}"
        for name, value in case.facts.env.items()
        if (kind := detect_named_secret(name, value)) and inherited.get(name) != value and f"env.{name}" not in allow
    ]
    secrets += [
        f"the label {name} looks like {kind}"
        for name, value in (settings.get("Labels") or {}).items()
        if (kind := detect_secret(str(value)))
    ]
    own = [layer.history for layer in case.facts.layers if layer.own]
    secrets += [f"history: {_start(line)} holds {kind}" for line in own if (kind := detect_line_secret(line))]
    if secrets:
        return case.wrong("settings", shorten(secrets, 3), "no secret in the environment, labels or history")
    return case.ok("settings", "no secret in the environment, labels or history")


def _start(line: str) -> str:
    """Returns the instruction's own word and no more: what follows may be the secret."""
    words = line.removeprefix("|").split()
    return next((word for word in words if word.isupper() and word.isalpha()), "an instruction")


def _check_files(case: Case) -> Finding:
    secrets = []
    for number, listing in sorted(case.facts.listings.items()):
        if case.facts.layers[number].own:
            secrets += [f"/{item['path']} in layer {number + 1}" for item in listing.items if _is_secret(case, item)]
            secrets += [
                f"/{path}, which layer {number + 1} removes: the layers below still have it"
                for path in listing.removed
                if secret_files.by_name(path) and not _is_listed_below(case, path, number)
            ]
    seen = {text.partition(" ")[0].rstrip(",") for text in secrets}
    whole = [
        item for item in case.facts.tree.of("suspect") if _is_secret(case, item) and f"/{item['path']}" not in seen
    ]
    for item in whole:
        if item.get("layer") is None or case.facts.layers[item["layer"]].own:
            secrets.append(f"/{item['path']}")
    if secrets:
        return case.wrong("secrets", shorten(secrets, 3), "no file that looks like a secret")
    if case.facts.tree.complete:
        return case.ok("secrets", "no file that looks like a secret")
    if case.own_seen:
        return case.ok("secrets", "no file that looks like a secret above the base")
    return case.unseen("secrets", "not all layers above the base were read")


def _is_secret(case: Case, item: Fields) -> bool:
    """Judges by name or content, unless a package brought it or the spec allows it."""
    if item["kind"] != "suspect" or item.get("recorded") or not item["size"]:
        return False
    path = str(item["path"])
    if secret_files.allowed(path.removeprefix("app/"), case.spec.allow_secrets):
        return False
    head = base64.b64decode(item["head"])
    if secret_files.by_content(head) or (path.endswith("pip.conf") and detect_secret(head.decode("utf-8", "replace"))):
        return True
    if path.startswith(_SYSTEM) or path.lower().endswith(_CERTIFICATES[0]):
        return False
    return secret_files.by_name(path)


def _is_listed_below(case: Case, path: str, number: int) -> bool:
    """Returns whether a layer below that was read has the file: then it is reported there, if it is one."""
    listings = case.facts.listings
    return all(below in listings for below in range(number) if case.facts.layers[below].own) or any(
        item["path"] == path for below, listing in listings.items() if below < number for item in listing.items
    )


def _check_caches(case: Case) -> Finding:
    own = [listing for number, listing in case.facts.listings.items() if case.facts.layers[number].own]
    items = [item for listing in own for item in listing.items] or list(case.facts.tree.items.values())
    sizes: dict[str, int] = {}
    for item in items:
        if item["kind"] == "cache":
            folder = "/" + "/".join(str(item["path"]).split("/")[:4][:-1])
            sizes[folder] = sizes.get(folder, 0) + item["size"]
    if sizes:
        sizes_by_folder = [f"{folder} {size / 1e6:.1f} MB" for folder, size in sorted(sizes.items())]
        return case.warn("caches", shorten(sizes_by_folder), "none: they cost every machine that pulls the image")
    if case.own_seen:
        return case.ok("caches", "none of pip, uv, conda or apt")
    return case.unseen("caches", "not all layers above the base were read")


def _size(case: Case) -> Finding:
    layers, tree = case.facts.layers, case.facts.tree
    total = sum(layer.size for layer in layers)
    where = "compressed" if any(layer.digest for layer in layers) else "unpacked"
    unpacked = f", {tree.folders.get('', 0) / 1e6:.1f} MB of files" if tree.complete else ""
    return case.ok("size", f"{total / 1e6:.1f} MB {where} in {len(layers)} layers{unpacked}")
