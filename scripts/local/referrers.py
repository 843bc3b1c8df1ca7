"""A registry with the referrers API, for tests: the one of Google's go-containerregistry, in memory.

`crane registry serve` is the same registry without that API, so this builds a program that turns it on.
"""

from __future__ import annotations

from local import go_programs, machine

REGISTRY = machine.STATE / "referrers" / "referrers-registry"  # tests/servers/registry_process.py starts it
_PACKAGES = ("golang-github-google-go-containerregistry-dev",)
_MAIN = """\
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	log.Fatal(http.ListenAndServe(os.Args[1], registry.New(registry.WithReferrersSupport(true))))
}
"""


def up() -> str:
    """Builds the registry once, in a minute and with 2 GB for a while; returns where it is. Raises UnavailableError."""
    if not REGISTRY.exists():
        go_programs.build("referrers", _PACKAGES, "referrers-registry", main=_MAIN)
    return f"{REGISTRY.relative_to(machine.CHECKOUT)}, for tests to start"
