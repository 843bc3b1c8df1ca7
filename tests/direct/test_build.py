"""Stages on a made-up base: what their instructions put into layers and settings, and what is an engine's work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.direct.builds import BASE, LOCKED, PATH, Maker, debian, make_parent, read_settings, read_tree
from training_imgtool.context.context import Context, scan
from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.build import build_image, plan_stages
from training_imgtool.direct.debian_layer import OpenedLibraries
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.links import DependsOnBaseError
from training_imgtool.direct.stage_plan import StageInputs, split_stages
from training_imgtool.direct.tree import FILE, Attributes, Kind, Node, make_folder
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.dockerfile import apt_step, install_step
from training_imgtool.dockerfile.parse import parse
from training_imgtool.plan import LockedDebian
from training_imgtool.registry.manifests import OCI_LAYER_GZIP, Descriptor

LAYER = Descriptor(OCI_LAYER_GZIP, f"sha256:{'c' * 64}", 9)
OTHER = f"docker.io/library/other@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("CMD echo hi", {}, {"Cmd": ["/bin/sh", "-c", "echo hi"]}),
        ('SHELL ["bash", "-c"]\nCMD echo hi', {}, {"Shell": ["bash", "-c"], "Cmd": ["bash", "-c", "echo hi"]}),
        ('ENTRYPOINT ["x"]', {}, {"Entrypoint": ["x"], "Cmd": None}),
        ('CMD ["y"]\nENTRYPOINT ["x"]', {}, {"Entrypoint": ["x"], "Cmd": ["y"]}),
        ("USER 1000:1000", {}, {"User": "1000:1000"}),
        ("EXPOSE 80 90-91/udp", {}, {"ExposedPorts": {"80/tcp": {}, "90/udp": {}, "91/udp": {}}}),
        ("EXPOSE 80", {"ExposedPorts": {"1/tcp": {}}}, {"ExposedPorts": {"1/tcp": {}, "80/tcp": {}}}),
        ("VOLUME /a /b", {}, {"Volumes": {"/a": {}, "/b": {}}}),
        ("VOLUME /a", {"WorkingDir": "/usr", "Volumes": {"/usr": {}}}, {"Volumes": {"/a": {}, "/usr": {}}}),
        ("STOPSIGNAL 9", {}, {"StopSignal": "9"}),
        ("HEALTHCHECK NONE", {}, {"Healthcheck": {"Test": ["NONE"]}}),
        (
            'HEALTHCHECK --interval=1h2m3.5s --retries=4 CMD ["a", "b"]',
            {},
            {"Healthcheck": {"Test": ["CMD", "a", "b"], "Interval": 3_723_500_000_000, "Retries": 4}},
        ),
        ("HEALTHCHECK CMD a b", {}, {"Healthcheck": {"Test": ["CMD-SHELL", "a b"]}}),
        (
            "HEALTHCHECK --timeout=9s CMD a",
            {"Healthcheck": {"Test": ["CMD", "y"], "Timeout": 5, "Interval": 0}},
            {"Healthcheck": {"Test": ["CMD-SHELL", "a"], "Timeout": 9_000_000_000}},
        ),
        (
            "HEALTHCHECK --timeout=9223372036.854775807s CMD a",
            {},
            {"Healthcheck": {"Test": ["CMD-SHELL", "a"], "Timeout": 2**63 - 1}},
        ),
        ("WORKDIR /root\nWORKDIR ..", {}, {"WorkingDir": "/"}),
        ("LABEL a=1 b=2", {"Labels": {"b": "0", "c": "3"}}, {"Labels": {"a": "1", "b": "2", "c": "3"}}),
        ("ENV PATH=/opt/venv/bin:$PATH", {}, {"Env": ["PATH=/opt/venv/bin:/usr/bin:/bin", "A=1"]}),
        ("ARG x=1\nENV y=$x", {"Env": ["PATH=/p"]}, {"Env": ["PATH=/p", "y=1"]}),
        ("ENV A=$PATH:x", {"Env": None}, {"Env": [f"PATH={PATH}", f"A={PATH}:x"]}),
    ],
)  # fmt: skip
def test_settings(make: Maker, text: str, settings: dict[str, Any], expected: dict[str, Any]) -> None:
    image = make(text + "\n", settings)
    assert {key: read_settings(image).get(key) for key in expected} == expected
    assert not image.layers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("COPY code/ /app/", {"/app": 0o755, "/app/a.py": 0o644, "/app/sub": 0o755, "/app/sub/run.sh": 0o755}),
        ("COPY code/sub /app/x/y", {"/app": 0o755, "/app/x": 0o755, "/app/x/y": 0o755, "/app/x/y/run.sh": 0o755}),
        ("COPY b.txt code/a.py /opt/two/", {"/opt/two": 0o755, "/opt/two/a.py": 0o644, "/opt/two/b.txt": 0o644}),
        ("COPY c*/a.* /opt", {"/opt/a.py": 0o644}),
        ("WORKDIR /app/deep\nCOPY b.txt .", {"/app": 0o755, "/app/deep": 0o755, "/app/deep/b.txt": 0o644}),
        ("WORKDIR /app\nCOPY b.txt name", {"/app": 0o755, "/app/name": 0o644}),
        ("COPY b.txt /root/", {"/root": 0o700, "/root/b.txt": 0o644}),
        ("COPY b.txt /tmp/", {"/tmp": 0o1777, "/tmp/b.txt": 0o644}),
        ("ADD code/a.py /srv/", {"/srv/a.py": 0o644}),
        ('COPY ["b.txt", "/with space/"]', {"/with space": 0o755, "/with space/b.txt": 0o644}),
        ("COPY --chmod=600 b.txt /opt/", {"/opt/b.txt": 0o600}),
    ],
)
def test_files(make: Maker, text: str, expected: dict[str, int]) -> None:
    assert {path: node.mode for path, node in read_tree(make(text + "\n")).items()} == expected


def test_owners(make: Maker) -> None:
    found = read_tree(make("COPY --chown=7:8 code/sub /mine\nCOPY b.txt /mine/\nCOPY --chown=9 b.txt /opt/\n"))
    owners = {path: node.owner for path, node in found.items()}
    assert owners == {"/mine": (7, 8), "/mine/run.sh": (7, 8), "/mine/b.txt": (0, 0), "/opt/b.txt": (9, 9)}


def test_the_root_of_a_base_that_is_only_listed(make: Maker) -> None:
    files = make_folder(children={"passwd": FILE, "group": FILE})
    with pytest.raises(NeedsEngineError, match="only an engine reads the base's /etc/passwd; 0 is for root"):
        make("COPY --chown=root b.txt /opt/\n", tree=debian(etc=files))


@pytest.mark.parametrize(
    ("text", "settings", "why"),
    [
        ("RUN true", {}, "line 3: RUN"),
        ("COPY --chown=me b.txt /app/", {}, "only an engine knows"),
        ("COPY --parents b.txt /app/", {}, "--parents"),
        ("COPY --chmod=u+x b.txt /app/", {}, "only octal modes are known here"),
        ("COPY <<EOF /app/x\nhi\nEOF", {}, "heredoc"),
        ("COPY b.txt /app/.", {}, "engines differ"),
        ("COPY b.txt /usr/lib/x/", {}, "/usr/lib is too much"),
        ("COPY b.txt /lib/x/", {}, "/usr/lib is too much"),
        ("COPY b.txt /dev/x/", {}, "/dev"),
        ("COPY b.txt /opt/f\nCOPY code /opt/f", {}, "is a file"),
        ("COPY b.txt /opt/f\nCOPY b.txt /opt/f/", {}, "/opt/f is a file, no folder"),
        ("COPY b.txt /opt/f\nWORKDIR /opt/f", {}, "is a file"),
        ("COPY b.txt /opt/sub\nCOPY code /opt", {}, "is a file or a link"),
        ("COPY code /opt/b.txt\nCOPY b.txt /opt/", {}, "is a folder"),
        ("COPY code/*.py b.txt /opt", {}, "several sources"),
        ("COPY code//*.py /opt/", {}, "engines differ in how they clean a pattern"),
        ("VOLUME /opt/v\nCOPY b.txt /opt/v/", {}, "volume"),
        ("COPY --chown=5 code/sub /new/x", {}, "COPY --chown makes"),
        ("ADD packed.tar /app/", {}, "unpacks"),
        ("ADD https://example.com/x /app/", {}, "build context"),
        ("COPY nothing /app/", {}, "build context"),
        ("COPY --from=base /etc /app/", {}, "only /opt/venv"),
        ("USER 5\nWORKDIR /new", {}, "as 5"),
        ("ONBUILD ENV a=b", {}, "ONBUILD"),
        ("EXPOSE 99999", {}, "EXPOSE"),
        ("WORKDIR $UNSET", {}, "WORKDIR is empty"),
        ("USER $UNSET", {}, "USER is empty"),
        ("VOLUME $UNSET", {}, "VOLUME is empty"),
        ("VOLUME /a", {"WorkingDir": "/none"}, "no folder /none, which is its WORKDIR"),
        ("VOLUME /a", {"WorkingDir": "srv"}, "srv, the base's WORKDIR, is not an absolute path"),
        ("VOLUME /a", {"Volumes": {"/usr/local/bin/python3.11": {}}}, "is a volume, and a file"),
        ("STOPSIGNAL ${A}x", {}, "STOPSIGNAL 1x"),
        ("ENV S=d\nARG S=g\nENV T=$S", {}, "ARG S: engines disagree"),
        ("ARG TARGETARCH\nENV T=x$TARGETARCH", {}, "TARGETARCH: only BuildKit finds this ARG"),
        ("CMD", {}, "empty CMD"),
        ("ENTRYPOINT []", {}, "empty ENTRYPOINT"),
        ("HEALTHCHECK --timeout=2562048h CMD x", {}, "--timeout: a duration that needs an engine"),
        ("HEALTHCHECK --interval=1.0000001ms CMD x", {}, "--interval: a duration that needs an engine"),
        ("HEALTHCHECK CMD x", {"Healthcheck": {"Test": ["CMD", "y"], "Interval": 9}}, "what is left"),
        ("HEALTHCHECK --retries=2 CMD x\nHEALTHCHECK NONE", {}, "what is left"),
        ("ENV a=b", {"OnBuild": ["RUN x"]}, "ONBUILD"),
        ("ENV a=b", {"Env": ["A=1", "B"]}, "without a value"),
        ("ENV a=b", {"Env": ["=x"]}, "without a value"),
        ("LABEL a=$A", {"Env": ["A=1", "B=2", "A=3"]}, "a variable twice"),
        ("COPY --chown=0:root b.txt /opt/", {}, "has no /etc/group"),
        ("ENV a=b", {"WorkingDir": "/gone"}, "no folder /gone"),
        ("COPY --chown=root b.txt /opt/", {}, "has no /etc/passwd"),
    ],
)
def test_what_is_for_an_engine(make: Maker, text: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(NeedsEngineError, match=why):
        make(text + "\n", settings)


BASES = {
    "link": {"app": Node(Kind.LINK, target="real"), "real": make_folder(Attributes(0o750, 5, 6))},
    "owned": {"app": make_folder(Attributes(0o700, 5, 5), children={"sub": make_folder(Attributes(0o777, 9, 9))})},
    "file": {"app": FILE},
    "dangling": {"app": Node(Kind.LINK, target="/no/where")},
    "loop": {"app": Node(Kind.LINK, target="app")},
    "unsure": {"app": make_folder(None)},
    "setgid": {"app": make_folder(Attributes(0o2755))},
}


@pytest.mark.parametrize(
    ("base", "text", "expected"),
    [
        ("link", "COPY code /app", {"/real": (0o750, (5, 6)), "/real/sub": (0o755, (0, 0))}),
        ("link", "COPY b.txt /app", {"/real": (0o750, (5, 6)), "/real/b.txt": (0o644, (0, 0))}),
        ("link", "WORKDIR /app/w", {"/real": (0o750, (5, 6)), "/real/w": (0o755, (0, 0))}),
        ("owned", "COPY --chown=7:8 code /app", {"/app": (0o700, (5, 5)), "/app/sub": (0o755, (7, 8))}),
        ("owned", "WORKDIR /app\nCOPY b.txt sub", {"/app/sub": (0o777, (9, 9)), "/app/sub/b.txt": (0o644, (0, 0))}),
        ("dangling", "COPY code /app", {"/no": (0o755, (0, 0)), "/no/where": (0o755, (0, 0))}),
    ],
)
def test_a_base_that_has_the_place(make: Maker, base: str, text: str, expected: dict[str, Any]) -> None:
    found = read_tree(make(text + "\n", tree=debian(**BASES[base])))
    assert {path: (found[path].mode, found[path].owner) for path in expected} == expected
    assert not any(path.startswith("/app") for path in found) or base == "owned"


@pytest.mark.parametrize(
    ("base", "text", "why"),
    [
        ("file", "COPY code /app", "folder onto /app, which is a file"),
        ("file", "COPY b.txt /app/", "/app is a file, no folder"),
        ("file", "WORKDIR /app", "/app is a file"),
        ("file", "COPY b.txt /app/x/y", "/app/x/y: /app is a file"),
        ("dangling", "COPY b.txt /app", "/app is a link, and not to a folder"),
        ("setgid", "COPY code /app/", "/app/sub would be made in a folder with the set-group-ID bit"),
        ("setgid", "WORKDIR /app/x", "/app/x would be made in a folder with the set-group-ID bit"),
        ("file", "VOLUME /app", "/app is a volume, and a file"),
        ("loop", "COPY b.txt /app/", "/app: too many links"),
        ("unsure", "COPY b.txt /app/", "engines differ in the mode of the base's /app"),
    ],
)
def test_a_base_on_which_engines_fail_or_differ(make: Maker, base: str, text: str, why: str) -> None:
    with pytest.raises(NeedsEngineError, match=why):
        make(text + "\n", tree=debian(**BASES[base]))


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (debian(opt=make_folder(children={"venv": make_folder()})), "there already"),
        (debian(opt=Node(Kind.LINK, target="data"), data=make_folder()), "link"),
        (debian(opt=make_folder(Attributes(0o700))), "mode 755"),
        (debian(wheels=FILE), "/wheels is a file"),
        (debian(usr=make_folder()), "has no /usr/local/bin/python3.11"),
    ],
)
def test_a_base_without_room_for_the_environment(context: Context, tree: Node, why: str) -> None:
    text = (
        BASE + f"FROM base AS wheels\nCOPY {install_step.context_folder(LOCKED)}/ /wheels/\n"
        f"RUN {install_step.install_script(LOCKED)}\nFROM base AS role\nCOPY --from=wheels /opt/venv /opt/venv\n"
    )
    dockerfile, inputs = parse(text), StageInputs(context=context, locked=LOCKED)
    assert split_stages(dockerfile, "role", inputs).base
    with pytest.raises(NeedsEngineError, match=why):
        plan_stages(dockerfile, (dockerfile.stage("role"),), inputs, make_parent(tree=tree))
    for volume in ("/", "/opt", "/opt/venv/", "/opt/venv/lib", "/wheels/cpu"):
        with pytest.raises(NeedsEngineError, match=f"{volume} is a volume"):
            plan_stages(dockerfile, (dockerfile.stage("role"),), inputs, make_parent({"Volumes": {volume: {}}}))


def test_a_stage_with_run_is_the_engines_and_the_rest_is_not(context: Context) -> None:
    inputs = StageInputs(context=context, locked=LOCKED)
    text = BASE + 'FROM base AS system\nRUN apt "$X"\nFROM system AS role\nCOPY code /app/\nUSER $BASE_HAS\n'
    split = split_stages(parse(text), "role", inputs)
    assert split.base is None
    assert split.engine_stage is not None
    assert split.engine_stage.name == "system"
    assert [stage.name for stage in split.stages] == ["role"]
    assert "RUN" in split.reasons["system"]


def test_a_base_without_a_digest_is_the_engines(context: Context) -> None:
    text = "FROM python:3.11 AS base\nENV A=1\nFROM base AS role\nCOPY code /app/\n"
    split = split_stages(parse(text), "role", StageInputs(context=context, locked=LOCKED))
    assert (split.base, split.stages) == (None, ())
    assert split.needs_engine == "stage role: FROM python:3.11: a base without a digest"


class _Debian:
    """Makes a layer of Debian packages out of nothing, which has /usr/bin/git."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, OpenedLibraries]] = []

    def layer(self, history: str, opened: OpenedLibraries) -> LayerSource:
        self.asked.append((history, opened))
        return LayerSource(descriptor=LAYER, diff_id=LAYER.digest, history=history, open=lambda: iter((b"",)))

    def tree(self, opened: OpenedLibraries) -> Node:
        del opened
        return make_folder(children={"usr": make_folder(children={"bin": make_folder(children={"git": FILE})})})


def test_debian_packages_are_a_layer_that_somebody_else_makes(context: Context, tmp_path: Path) -> None:
    locked = replace(LOCKED, debian=LockedDebian(requested=("git",)))
    script = apt_step.install_script(locked.variant, ("git",), ("libcudart.so.12",))
    text = BASE + f"FROM base AS role\nENV LD_LIBRARY_PATH=/cuda\nRUN {script}\nCOPY b.txt /usr/bin/git/\n"
    dockerfile, maker = parse(text), _Debian()
    inputs = StageInputs(context=context, locked=locked, libraries=("libcudart.so.12",), debian=maker)
    parent, stages = make_parent(tree=debian(usr=make_folder())), (dockerfile.stage("role"),)
    with pytest.raises(NeedsEngineError, match="/usr/bin/git is a file, no folder"):
        plan_stages(dockerfile, stages, inputs, parent)
    dockerfile = parse(text.replace("/usr/bin/git/", "/usr/bin/"))
    planned, sent = plan_stages(dockerfile, (dockerfile.stage("role"),), inputs, parent), list[LayerSource]()
    tools = LayerTools(
        cache=LayerCache(tmp_path), wheel_path=lambda _: Path(), find_interpreter=lambda _: None, ready=sent.append
    )
    image = build_image(planned, inputs, tools, parent=parent)
    assert [opened for _, opened in maker.asked] == [OpenedLibraries(("libcudart.so.12",), "/cuda")]
    assert [layer.history.split()[0] for layer in image.layers] == ["RUN", "COPY"]
    assert sent == list(image.layers)
    inputs = replace(inputs, locked=replace(locked, debian=LockedDebian(requested=("git",), engine="a script")))
    with pytest.raises(NeedsEngineError, match="RUN apt-get install: a script"):
        plan_stages(dockerfile, (dockerfile.stage("role"),), inputs, parent)
    inputs = replace(inputs, locked=locked)
    with pytest.raises(NeedsEngineError, match="/usr/x is a volume, where packages have files"):
        plan_stages(
            dockerfile, (dockerfile.stage("role"),), inputs, make_parent({"Volumes": {"/usr/x": {}}}, tree=debian())
        )


def _packages(
    context: Context,
    script: str | None = None,
    exclude: tuple[str, ...] = (),
    *,
    bases: tuple[str, str] = ("system",) * 2,
) -> str | None:
    text = script if script is not None else install_step.install_script(LOCKED, exclude)
    folder = install_step.context_folder(LOCKED)
    dockerfile = parse(
        BASE + "FROM base AS system\n"
        f"FROM {bases[0]} AS wheels\nCOPY {folder}/ /wheels/\nRUN {text}\n"
        f"FROM {bases[1]} AS packages\nCOPY --from=wheels /opt/venv /opt/venv\n"
        'ENV PATH="/opt/venv/bin:$PATH"\n'
    )
    try:
        return split_stages(dockerfile, "packages", StageInputs(context=context, locked=LOCKED)).reasons.get("packages")
    except NeedsEngineError as error:
        return error.message


def test_the_packages_step_is_known_by_its_exact_text(context: Context) -> None:
    assert _packages(context) is None
    script = install_step.install_script(LOCKED)
    for other in (script + "; \\\n    true", script.replace("--no-deps", ""), "true"):
        assert "not exactly" in (_packages(context, other) or "")
    assert "not exactly" in (_packages(context, exclude=("x",)) or "")


@pytest.mark.parametrize("bases", [("base", "system"), ("system", OTHER), (BASE.split()[1], OTHER)])
def test_wheels_that_another_image_installed_are_for_an_engine(context: Context, bases: tuple[str, str]) -> None:
    assert "starts from another image than this stage" in (_packages(context, bases=bases) or "")
    assert _packages(context, bases=(bases[0],) * 2) is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"User": "me"}, "runs as me"),
        ({"Env": ["PYTHONOPTIMIZE=1"]}, "PYTHONOPTIMIZE"),
        ({"Shell": ["pwsh", "-Command"]}, "pwsh"),
        ({"Shell": ["/bin/fish", "-c"]}, "fish"),
        ({"Shell": ["/bin/bash", "-lc"]}, "-lc"),
    ],
)
def test_images_on_which_the_script_would_do_something_else(
    context: Context, settings: dict[str, Any], why: str
) -> None:
    folder = install_step.context_folder(LOCKED)
    dockerfile = parse(
        BASE + f"FROM base AS wheels\nCOPY {folder}/ /wheels/\nRUN {install_step.install_script(LOCKED)}\n"
        "FROM base AS role\nCOPY --from=wheels /opt/venv /opt/venv\n"
    )
    with pytest.raises(NeedsEngineError, match=why):
        plan_stages(
            dockerfile, (dockerfile.stage("role"),), StageInputs(context=context, locked=LOCKED), make_parent(settings)
        )
    assert plan_stages(
        dockerfile, (dockerfile.stage("role"),), StageInputs(context=context, locked=LOCKED), make_parent()
    ).steps[0]


def test_folders_on_the_way_to_a_file_get_its_owner(make: Maker) -> None:
    found = read_tree(make("COPY --chown=7:8 b.txt /new/deep/\n"))
    assert {path: node.owner for path, node in found.items()} == dict.fromkeys(
        ("/new", "/new/deep", "/new/deep/b.txt"), (7, 8)
    )


def test_folders_below_a_copied_one_get_its_owner(make: Maker) -> None:
    found = read_tree(make("COPY code /x\nCOPY --chown=7 code /x\nCOPY b.txt /x/sub/\n"))
    owners = {path: node.owner for path, node in found.items() if path.startswith("/x")}
    assert owners == {
        "/x": (0, 0),
        "/x/a.py": (7, 7),
        "/x/sub": (7, 7),
        "/x/sub/run.sh": (7, 7),
        "/x/sub/b.txt": (0, 0),
    }


def test_sources_that_differ_at_a_path_are_the_engines(tmp_path: Path) -> None:
    for path in ("one/x", "two/x/y"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    make = Maker(scan(tmp_path), tmp_path)
    with pytest.raises(DependsOnBaseError, match="/app/x is a file or a link"):
        make("COPY one two /app/\n")
    with pytest.raises(DependsOnBaseError, match="/app/x is a folder"):
        make("COPY two one /app/\n")


def test_links_in_the_context_are_followed_and_wheels_stay_out(tmp_path: Path) -> None:
    folder = tmp_path / "links"
    (folder / "code" / "sub").mkdir(parents=True)
    (folder / "code" / "a.py").write_text("1")
    (folder / "code" / "inner").symlink_to("a.py")
    (folder / "to-code").symlink_to("code")
    (folder / "to-file").symlink_to("to-code/a.py")
    context = scan(folder).with_known("wheels/cpu/w.whl", sha256="0" * 64, size=5)
    make = Maker(context, tmp_path)
    everything = read_tree(make("COPY . /app\n"))
    assert {path for path in everything if "wheels" in path} == set()
    assert everything["/app/to-file"].kind == "link"
    found = read_tree(make("COPY to-* /all/\nCOPY to-file /one/name\nCOPY to-code/inner /two/\nCOPY to-code /three\n"))
    kinds = {path: node.kind for path, node in found.items() if node.kind != "folder"}
    names = ["/all/a.py", "/all/to-file", "/one/name", "/two/inner", "/three/a.py"]
    assert kinds == dict.fromkeys(names, "file") | {"/all/inner": "link", "/three/inner": "link"}
    with pytest.raises(NeedsEngineError, match="wheels as files"):
        make("COPY wheels /w\n")
    with pytest.raises(DependsOnBaseError, match="/app/code/inner is a link, and not to a folder"):
        make("COPY . /app\nCOPY to-file /app/code/inner\n")
