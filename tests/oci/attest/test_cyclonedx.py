"""The bill of materials: valid by CycloneDX' own schema, with the Debian packages that imgtool lays out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from tests import plans
from training_imgtool.make.attach import FORMAT
from training_imgtool.model.lock import DebianPackage
from training_imgtool.oci.attest.cyclonedx import describe_variant
from training_imgtool.oci.attest.provenance import encode, make_provenance

GIT = DebianPackage(
    name="git",
    version="1:2.39.5-0+deb12u2",
    architecture="amd64",
    file="pool/main/g/git/git_2.39.5-0+deb12u2_amd64.deb",
    sha256="a" * 64,
    size=7_260_000,
)


def test_debian_packages_have_name_version_hash_and_package_url() -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    document = describe_variant("mnist", plans.recipe(), (), (GIT,))
    assert not JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(document))
    component = {"type": "application", "name": "imgtool"}
    assert document["metadata"]["tools"] == {"components": [component]}
    assert "timestamp" not in document["metadata"]
    (git,) = (part for part in document["components"] if part["name"] == "git")
    assert git == {
        "type": "library",
        "bom-ref": "deb:git:amd64:1:2.39.5-0+deb12u2",
        "name": "git",
        "version": "1:2.39.5-0+deb12u2",
        "purl": "pkg:deb/debian/git@1%3A2.39.5-0%2Bdeb12u2?arch=amd64&distro=debian-12",
        "supplier": {"name": "Debian"},
        "hashes": [{"alg": "SHA-256", "content": "a" * 64}],
    }
    assert git["bom-ref"] in document["dependencies"][0]["dependsOn"]
    base = next(part for part in document["components"] if part["type"] == "container")
    assert document["compositions"] == [{"aggregate": "incomplete", "assemblies": [base["bom-ref"]]}]


def test_packages_that_an_engine_installs_leave_the_bill_open() -> None:
    bill = describe_variant("mnist", plans.recipe(), ("git",), ())
    assert bill["metadata"]["component"]["bom-ref"] in bill["compositions"][0]["assemblies"]


def test_a_base_of_an_unknown_distribution_gives_no_package_url() -> None:
    locked = plans.locked()
    recipe = plans.recipe(locked_variant=replace(locked, variant=replace(locked.variant, os=None)))
    (git,) = (part for part in describe_variant("mnist", recipe, (), (GIT,))["components"] if part["name"] == "git")
    assert "purl" not in git


def test_what_the_documents_say_has_a_number() -> None:
    """Where this fails, give `make.attach.FORMAT` another number: else `verify` calls every older document forged."""
    recipe = plans.recipe()
    documents = (describe_variant("mnist", recipe, (), (GIT,)), make_provenance(recipe, {}, key="a" * 64, bill=b""))
    assert (FORMAT, hashlib.sha256(b"".join(map(encode, documents))).hexdigest()[:12]) == ("1", "7c7e948e98c1")
