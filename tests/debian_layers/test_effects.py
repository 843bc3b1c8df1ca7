"""What known scripts leave behind: folders, links, copies, and conditions."""

from __future__ import annotations

import hashlib

import pytest

from imgtool_debian_layers import NeedsAptError, Node
from imgtool_debian_layers.effects import make_effect, replaced_path
from imgtool_debian_layers.package_file import PackedFile
from imgtool_debian_layers.scripts import Effect, EffectKind, find_script_effects, hash_script
from imgtool_debian_layers.unpack import Unpacking
from tests.debian_layers.packages import system


@pytest.mark.parametrize(
    ("effect", "made"),
    [
        (Effect(EffectKind.FOLDER, "/var/lib/x/y", mode=0o2775), ["var/lib/x", "var/lib/x/y"]),
        (Effect(EffectKind.LINK, "/lib/link", target="there"), ["usr/lib/link"]),
        (Effect(EffectKind.COPY, "/etc/copy", target="/usr/share/source"), ["etc/copy"]),
        (Effect(EffectKind.COPY, "/etc/passwd", target="/usr/share/source", keep=True), []),
        (Effect(EffectKind.LOCAL_FOLDER, "/usr/share"), []),
        (Effect(EffectKind.LOCAL_FOLDER, "/usr/local/lib/x"), ["usr/local", "usr/local/lib", "usr/local/lib/x"]),
        (Effect(EffectKind.PRESENT, "/etc/passwd"), []),
        (Effect(EffectKind.ABSENT, "/etc/nothing*"), []),
        (Effect(EffectKind.PRESENT, "/etc/nothing"), None),
        (Effect(EffectKind.ABSENT, "/etc/pass*"), None),
        (Effect(EffectKind.FILE, "/etc/passwd", text="x"), None),
        (Effect(EffectKind.FOLDER, "/var/lib/x", owner="root:staff"), None),
        (Effect(EffectKind.COPY, "/etc/copy", target="/usr/share/nothing"), None),
    ],
)
def test_effects_make_what_scripts_make_or_need_apt(effect: Effect, made: list[str] | None) -> None:
    unpacking = Unpacking(system())
    if made is None:
        with pytest.raises(NeedsAptError):
            list(make_effect(effect, unpacking, {}))
        return
    items = list(make_effect(effect, unpacking, {"/usr/share/source": b"data"}))
    assert [item.path for item in items] == made
    if effect.kind is EffectKind.FOLDER:
        assert [item.node for item in items] == [Node("d", 0o755), Node("d", 0o2775)]
    if effect.kind is EffectKind.LINK:
        assert items[-1].node == Node("l", 0o777, target="there")
    if made and effect.kind is EffectKind.COPY:
        assert items[-1][1:] == (Node("f", 0o644), b"data")
    if made and effect.kind is EffectKind.LOCAL_FOLDER:
        assert items[-1].node == Node("d", 0o755)


def test_a_script_writes_in_place_of_the_package_unless_it_keeps_what_is_there() -> None:
    file = PackedFile("/etc/x", "f", 0o644, "root:root")
    for keep, count in ((False, 0), (True, 1)):
        effect = Effect(EffectKind.LINK, "/etc/x", target="y", keep=keep)
        unpacking = Unpacking(system(), frozenset({replaced_path(effect)}))
        assert len([*unpacking.place("first", file)]) == count


def test_folders_below_usr_local_are_of_staff_where_the_base_says_so() -> None:
    nodes = {"/etc/staff-group-for-usr-local": Node("f")}
    unpacking = Unpacking(system({"/etc/group": "root:x:0:\nstaff:x:50:\n"}, nodes))
    *_, item = make_effect(Effect(EffectKind.LOCAL_FOLDER, "/usr/local/x"), unpacking, {})
    assert (item.node.mode, item.node.gid) == (0o2755, 50)


def test_pythons_version_is_no_difference_between_scripts() -> None:
    scripts = [f"files=$(dpkg -L libpython3.{minor}-stdlib)\n/usr/bin/python3.{minor} x\n" for minor in (10, 12)]
    assert {hash_script(text)[0] for text in scripts} == {hash_script(scripts[0])[0]}
    assert [hash_script(text)[1] for text in scripts] == ["10", "12"]
    assert hash_script("python3.10\npython3.12\n")[1] == ""
    assert hash_script("#!/bin/sh\nset -e\n# comment\n\nexit 0\n") == ("", "")
    assert hash_script("a\nexit 0\nb\n") != hash_script("a\nb\n"), "an exit in the middle counts"
    assert hash_script("cat <<EOF\n# kept\nEOF\n")[0] == hashlib.sha256(b"cat <<EOF\n# kept\nEOF").hexdigest()


def test_an_unknown_script_is_named_with_its_package() -> None:
    with pytest.raises(NeedsAptError, match="the package openssh-server has a postinst script"):
        find_script_effects("openssh-server", "postinst", b"#!/bin/sh\nssh-keygen -A\n")
