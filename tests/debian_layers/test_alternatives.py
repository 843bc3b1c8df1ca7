"""Groups of alternatives, compared with what update-alternatives of this machine writes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from imgtool_debian_layers.alternatives import Choice, Group, make_alternatives, parse_group
from imgtool_debian_layers.base_system import Node
from imgtool_debian_layers.errors import NeedsAptError
from imgtool_debian_layers.scripts import Effect, EffectKind
from imgtool_debian_layers.unpack import Unpacking
from tests.debian_layers.packages import system

_GROUPS = Path("/var/lib/dpkg/alternatives")
_CASES: tuple[tuple[str, int, dict[str, str]], ...] = (
    ("b", 20, {}),
    ("a", 20, {"two": "a.two"}),
    ("c", 10, {"one": "c.one", "two": "c.two"}),
    ("b", 5, {"one": "b.one"}),
)


def current(name: str) -> str:
    return str((Path("/etc/alternatives") / name).readlink())


@pytest.mark.skipif(not _GROUPS.is_dir(), reason="this machine has no alternatives")
def test_this_machines_groups_are_written_again_as_they_are() -> None:
    texts = {path.name: path.read_text() for path in _GROUPS.iterdir()}
    groups = {name: parse_group(text, name, current(name)) for name, text in texts.items() if text.startswith("auto\n")}
    assert {name: group.text() for name, group in groups.items()} == {name: texts[name] for name in groups}


@pytest.mark.skipif(not shutil.which("update-alternatives"), reason="update-alternatives is not installed")
def test_a_group_becomes_what_update_alternatives_makes_of_it(tmp_path: Path) -> None:
    for folder in ("links", "admin", "bin"):
        (tmp_path / folder).mkdir()
    files, links = tmp_path / "files", tmp_path / "bin"
    files.mkdir()
    group = Group(link=f"{links}/tool")
    for path, priority, slaves in _CASES:
        for name in (path, *slaves.values()):
            (files / name).touch()
        command = ["update-alternatives", "--quiet", "--altdir", f"{tmp_path}/links", "--admindir", f"{tmp_path}/admin"]
        command += ["--log", "/dev/null", "--install", group.link, "tool", f"{files}/{path}", str(priority)]
        for name, file in slaves.items():
            command += ["--slave", f"{links}/{name}", name, f"{files}/{file}"]
        subprocess.run(command, check=True)
        choice = Choice(priority, {name: f"{files}/{file}" for name, file in slaves.items()})
        group = group.with_choice(f"{files}/{path}", choice, {name: f"{links}/{name}" for name in slaves})
        text = (tmp_path / "admin/tool").read_text()
        assert group.text() == text
        assert parse_group(text, "tool", str((tmp_path / "links/tool").readlink())) == group
        assert group.best == str((tmp_path / "links/tool").readlink())


def alternative(target: str, priority: int, *slaves: tuple[str, str, str]) -> Effect:
    return Effect(
        EffectKind.ALTERNATIVE, "/bin/tool", target=target, name="tool", priority=priority, slaves=tuple(slaves)
    )


def test_an_alternative_replaces_a_worse_one_of_the_base() -> None:
    text = "auto\n/bin/tool\n\n/usr/bin/old\n5\n\n"
    nodes = {path: Node("f") for path in ("/usr/bin/old", "/usr/bin/new", "/usr/share/new.1")}
    nodes |= {"/usr/bin/tool": Node("l", target="/etc/alternatives/tool")}
    nodes |= {"/etc/alternatives/tool": Node("l", target="/usr/bin/old")}
    unpacking = Unpacking(system({"/var/lib/dpkg/alternatives/tool": text}, nodes))
    slaves = (("/usr/share/tool.1", "tool.1", "/usr/share/new.1"), ("/usr/share/de.1", "de.1", "/usr/share/no.1"))
    made = {item.path: item for item in make_alternatives([alternative("/usr/bin/new", 9, *slaves)], unpacking)}
    targets = {path: item.node.target for path, item in made.items() if item.node.target}
    assert targets == {
        "etc/alternatives/tool": "/usr/bin/new",
        "usr/bin/tool": "/etc/alternatives/tool",
        "etc/alternatives/tool.1": "/usr/share/new.1",
        "usr/share/tool.1": "/etc/alternatives/tool.1",
    }
    expected = "auto\n/bin/tool\nde.1\n/usr/share/de.1\ntool.1\n/usr/share/tool.1\n\n/usr/bin/new\n9\n"
    expected += "/usr/share/no.1\n/usr/share/new.1\n/usr/bin/old\n5\n\n\n\n"
    assert made["var/lib/dpkg/alternatives/tool"].data.decode() == expected


@pytest.mark.parametrize(
    ("text", "nodes", "reason"),
    [
        ("manual\n/bin/tool\n\n/usr/bin/old\n5\n\n", {}, "were chosen by hand"),
        ("auto\n/usr/bin/tool\n\n/usr/bin/old\n5\n\n", {}, "with other links"),
        ("", {"/usr/bin/tool": Node("f")}, "already has /bin/tool"),
        ("", {"/usr/bin/new": Node("l", target="gone")}, "the image lacks /usr/bin/new"),
        (
            "auto\n/bin/tool\nx\n/bin/x\n\n/usr/bin/old\n5\n/old/x\n\n",
            {"/usr/bin/x": Node("f")},
            "already has /bin/x",
        ),
    ],
)
def test_what_update_alternatives_would_not_do_needs_apt(text: str, nodes: dict[str, Node], reason: str) -> None:
    texts = {"/var/lib/dpkg/alternatives/tool": text} if text else {}
    link = Node("l", target="/usr/bin/old")
    unpacking = Unpacking(system(texts, {"/usr/bin/new": Node("f"), "/etc/alternatives/tool": link, **nodes}))
    with pytest.raises(NeedsAptError, match=reason):
        list(make_alternatives([alternative("/usr/bin/new", 9)], unpacking))
