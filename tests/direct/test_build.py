"""Whole images on a made-up base: which stages are taken on, and what the config and the layers then say."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from tests.direct.wheels import Node as TarNode
from tests.direct.wheels import tar_tree
from training_imgtool.context.context import Context, scan
from training_imgtool.core.errors import LocalFileError, NeedsEngineError, VerificationError
from training_imgtool.direct.build import Start, build_image, plan_stages
from training_imgtool.direct.files import Files
from training_imgtool.direct.image.docker_archive import load_archive
from training_imgtool.direct.image.image import DirectImage, read_config
from training_imgtool.direct.image.oci_layout import write_layout
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.layers.layers import MTIME
from training_imgtool.direct.stage_plan import Material, chain
from training_imgtool.direct.tree import FILE, Attributes, Kind, Node, folder
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.parse import parse
from training_imgtool.registry.manifests import (
    DOCKER_CONFIG,
    DOCKER_LAYER_GZIP,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_LAYER_GZIP,
    OCI_LAYER_ZSTD,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    parse_manifest,
    sha256_digest,
)

BASE_LAYER = b"not really a layer"
BASE = f"FROM example.com/base@sha256:{'1' * 64} AS base\n"
LOCKED = plans.locked()
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # what builders set where a base does not


def _base(settings: dict[str, Any] | None = None, *, oci: bool = False, layer: str = "") -> tuple[Manifest, bytes]:
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/bin", "A=1"], "Cmd": ["python3"], **(settings or {})},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "d" * 64]},
            "history": [{"created_by": "base"}],
            "variant": "kept",
        }
    ).encode()
    types = (OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST) if oci else (DOCKER_CONFIG, DOCKER_LAYER_GZIP, DOCKER_MANIFEST)
    document = {
        "schemaVersion": 2,
        "mediaType": types[2],
        "config": Descriptor(types[0], sha256_digest(config), len(config)).document(),
        "layers": [
            Descriptor(layer or types[1], sha256_digest(BASE_LAYER), len(BASE_LAYER)).document() | {"future": "field"}
        ],
    }
    return parse_manifest(json.dumps(document).encode(), types[2], "base"), config


@pytest.fixture
def context(tmp_path: Path) -> Context:
    folder = tmp_path / "spec"
    (folder / "code" / "sub").mkdir(parents=True)
    (folder / "code" / "a.py").write_text("print(1)\n")
    (folder / "code" / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "code" / "sub" / "run.sh").chmod(0o755)
    (folder / "b.txt").write_text("b")
    subprocess.run(["tar", "-C", folder, "-cf", folder / "packed.tar", "b.txt"], check=True)
    return scan(folder)


def _start(
    settings: dict[str, Any] | None = None, *, oci: bool = False, layer: str = "", tree: Node | None = None
) -> Start:
    """A base with the files of a Debian, or those of `tree`."""
    manifest, config = _base(settings, oci=oci, layer=layer)
    return Start(manifest=manifest, config=config, files=Files((lambda: tree or _debian(),)))


def _debian(**added: Node) -> Node:
    """What a small Debian has, and more at the top."""
    children = {name: folder() for name in ("etc", "home", "opt", "srv")}
    children |= {"lib": Node(Kind.LINK, target="usr/lib"), "root": folder(Attributes(0o700))}
    local = folder(children={"bin": folder(children={"python3.11": FILE})})
    children |= {"tmp": folder(Attributes(0o1777)), "wheels": folder()}
    children |= {"usr": folder(children={"lib": folder(closed=True), "local": local})}
    return folder(children=children | added)


class Maker:
    """Builds the last stage of a text that begins below `AS base`."""

    def __init__(self, context: Context, tmp_path: Path) -> None:
        self.context = context
        self.cache = tmp_path / "cache"

    def __call__(
        self, text: str, settings: dict[str, Any] | None = None, *, oci: bool = False, tree: Node | None = None
    ) -> DirectImage:
        dockerfile = parse(BASE + "FROM base AS role\n" + text)
        material = Material(context=self.context, locked=LOCKED)
        way = chain(dockerfile, "role", material)
        start = _start(settings, oci=oci, tree=tree)
        tools = LayerTools(cache=LayerCache(self.cache), wheel_path=lambda _: Path(), find_interpreter=lambda _: None)
        return build_image(dockerfile, way.stages, material, tools, start=start, created=86400)


@pytest.fixture
def make(context: Context, tmp_path: Path) -> Maker:
    return Maker(context, tmp_path)


def _settings(image: DirectImage) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(image.config)["config"]
    return settings


def _tree(image: DirectImage) -> dict[str, TarNode]:
    found: dict[str, TarNode] = {}
    for layer in image.layers:
        data = b"".join(layer.open())
        assert sha256_digest(data) == layer.descriptor.digest
        tar_tree(
            io.BytesIO(subprocess.run(["gzip", "-dc"], input=data, capture_output=True, check=True).stdout),
            found,
            mtime=MTIME,
        )
    return found


def test_config_and_manifest(make: Maker) -> None:
    image = make('COPY code/ /app/code/\nWORKDIR /app\nENV B="2 3" A=$A$A\nLABEL x.y="z"\nENTRYPOINT ["go"]\n')
    config, manifest = json.loads(image.config), json.loads(image.manifest)
    assert config["config"] == {
        "Env": ["PATH=/usr/bin:/bin", "A=11", "B=2 3"],
        "WorkingDir": "/app",
        "Labels": {"x.y": "z"},
        "Entrypoint": ["go"],
    }
    assert config["variant"] == "kept"
    assert config["created"] == "1970-01-02T00:00:00Z"
    layers = [line for line in config["history"] if not line.get("empty_layer")]
    assert len(layers) == len(manifest["layers"]) == len(config["rootfs"]["diff_ids"]) == 2
    assert manifest["layers"][0]["future"] == "field"
    assert {layer["mediaType"] for layer in manifest["layers"]} == {DOCKER_LAYER_GZIP}
    assert manifest["config"]["digest"] == sha256_digest(image.config)
    assert image.digest == sha256_digest(image.manifest)
    assert image.manifest_type == manifest["mediaType"] == DOCKER_MANIFEST
    assert make("COPY code/ /app/code/\n", oci=True).manifest_type == OCI_MANIFEST


def test_the_same_inputs_give_the_same_digest(make: Maker, context: Context, tmp_path: Path) -> None:
    text = "COPY code/ /app/code/\n"
    assert make(text).digest == make(text).digest == Maker(context, tmp_path / "other")(text).digest


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
        ("STOPSIGNAL 9", {}, {"StopSignal": "9"}),
        ("HEALTHCHECK NONE", {}, {"Healthcheck": {"Test": ["NONE"]}}),
        (
            'HEALTHCHECK --interval=1h2m3.5s --retries=4 CMD ["a", "b"]',
            {},
            {"Healthcheck": {"Test": ["CMD", "a", "b"], "Interval": 3_723_500_000_000, "Retries": 4}},
        ),
        ("HEALTHCHECK CMD a b", {}, {"Healthcheck": {"Test": ["CMD-SHELL", "a b"]}}),
        ("WORKDIR /root\nWORKDIR ..", {}, {"WorkingDir": "/"}),
        ("LABEL a=1 b=2", {"Labels": {"b": "0", "c": "3"}}, {"Labels": {"a": "1", "b": "2", "c": "3"}}),
        ("ENV PATH=/opt/venv/bin:$PATH", {}, {"Env": ["PATH=/opt/venv/bin:/usr/bin:/bin", "A=1"]}),
        ("ARG x=1\nENV y=$x", {"Env": ["PATH=/p"]}, {"Env": ["PATH=/p", "y=1"]}),
        ("ENV A=$PATH:x", {"Env": None}, {"Env": [f"PATH={PATH}", f"A={PATH}:x"]}),
    ],
)  # fmt: skip
def test_settings(make: Maker, text: str, settings: dict[str, Any], expected: dict[str, Any]) -> None:
    image = make(text + "\n", settings)
    assert {key: _settings(image).get(key) for key in expected} == expected
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
    assert {path: node.mode for path, node in _tree(make(text + "\n")).items()} == expected


def test_owners(make: Maker) -> None:
    found = _tree(make("COPY --chown=7:8 code/sub /mine\nCOPY b.txt /mine/\nCOPY --chown=9 b.txt /opt/\n"))
    owners = {path: node.owner for path, node in found.items()}
    assert owners == {"/mine": (7, 8), "/mine/run.sh": (7, 8), "/mine/b.txt": (0, 0), "/opt/b.txt": (9, 9)}


@pytest.mark.parametrize(
    ("text", "settings", "why"),
    [
        ("RUN true", {}, "line 3: RUN"),
        ("COPY --chown=me b.txt /app/", {}, "only an engine knows"),
        ("COPY --parents b.txt /app/", {}, "--parents"),
        ("COPY <<EOF /app/x\nhi\nEOF", {}, "heredoc"),
        ("COPY b.txt /app/.", {}, "engines differ"),
        ("COPY b.txt /usr/lib/x/", {}, "/usr/lib is too much"),
        ("COPY b.txt /lib/x/", {}, "/usr/lib is too much"),
        ("COPY b.txt /dev/x/", {}, "/dev"),
        ("COPY b.txt /opt/f\nCOPY code /opt/f", {}, "is a file"),
        ("COPY b.txt /opt/f\nCOPY b.txt /opt/f/", {}, "is a file"),
        ("COPY b.txt /opt/f\nWORKDIR /opt/f", {}, "is a file"),
        ("COPY b.txt /opt/sub\nCOPY code /opt", {}, "is a file or a link"),
        ("COPY code /opt/b.txt\nCOPY b.txt /opt/", {}, "is a folder"),
        ("COPY code/*.py b.txt /opt", {}, "several sources"),
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
        ("STOPSIGNAL ${A}x", {}, "STOPSIGNAL 1x"),
        ("ENV S=d\nARG S=g\nENV T=$S", {}, "ARG S: engines disagree"),
        ("CMD", {}, "empty CMD"),
        ("ENTRYPOINT []", {}, "empty ENTRYPOINT"),
        ("HEALTHCHECK CMD x", {"Healthcheck": {"Test": ["CMD", "y"], "Interval": 9}}, "what is left"),
        ("HEALTHCHECK --retries=2 CMD x\nHEALTHCHECK NONE", {}, "what is left"),
        ("ENV a=b", {"OnBuild": ["RUN x"]}, "ONBUILD"),
        ("ENV a=b", {"WorkingDir": "/gone"}, "no folder /gone"),
        ("COPY --chown=root b.txt /opt/", {}, "has no /etc/passwd"),
    ],
)
def test_what_is_for_an_engine(make: Maker, text: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(NeedsEngineError, match=why):
        make(text + "\n", settings)


BASES = {
    "link": {"app": Node(Kind.LINK, target="real"), "real": folder(Attributes(0o750, 5, 6))},
    "owned": {"app": folder(Attributes(0o700, 5, 5), children={"sub": folder(Attributes(0o777, 9, 9))})},
    "file": {"app": FILE},
    "dangling": {"app": Node(Kind.LINK, target="/no/where")},
    "loop": {"app": Node(Kind.LINK, target="app")},
    "unsure": {"app": folder(None)},
    "setgid": {"app": folder(Attributes(0o2755))},
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
    found = _tree(make(text + "\n", tree=_debian(**BASES[base])))
    assert {path: (found[path].mode, found[path].owner) for path in expected} == expected
    assert not any(path.startswith("/app") for path in found) or base == "owned"


@pytest.mark.parametrize(
    ("base", "text"),
    [
        ("file", "COPY code /app"),
        ("file", "COPY b.txt /app/"),
        ("file", "WORKDIR /app"),
        ("file", "COPY b.txt /app/x/y"),
        ("dangling", "COPY b.txt /app"),
        ("setgid", "COPY code /app/"),
        ("setgid", "WORKDIR /app/x"),
        ("file", "VOLUME /app"),
        ("loop", "COPY b.txt /app/"),
        ("unsure", "COPY b.txt /app/"),
    ],
)
def test_a_base_on_which_engines_fail_or_differ(make: Maker, base: str, text: str) -> None:
    with pytest.raises(NeedsEngineError):
        make(text + "\n", tree=_debian(**BASES[base]))


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (_debian(opt=folder(children={"venv": folder()})), "there already"),
        (_debian(opt=Node(Kind.LINK, target="data"), data=folder()), "link"),
        (_debian(opt=folder(Attributes(0o700))), "mode 755"),
        (_debian(wheels=FILE), "/wheels is a file"),
        (_debian(usr=folder()), "has no /usr/local/bin/python3.11"),
    ],
)
def test_a_base_without_room_for_the_environment(context: Context, tree: Node, why: str) -> None:
    text = (
        BASE + f"FROM base AS wheels\nCOPY {install_step.context_folder(LOCKED)}/ /wheels/\n"
        f"RUN {install_step.install_script(LOCKED)}\nFROM base AS role\nCOPY --from=wheels /opt/venv /opt/venv\n"
    )
    dockerfile, material = parse(text), Material(context=context, locked=LOCKED)
    assert chain(dockerfile, "role", material).start
    with pytest.raises(NeedsEngineError, match=why):
        plan_stages(dockerfile, (dockerfile.stage("role"),), material, _start(tree=tree))
    with pytest.raises(NeedsEngineError, match="is a volume"):
        plan_stages(dockerfile, (dockerfile.stage("role"),), material, _start({"Volumes": {"/opt": {}}}))


def test_a_stage_with_run_is_the_engines_and_the_rest_is_not(context: Context) -> None:
    material = Material(context=context, locked=LOCKED)
    text = BASE + 'FROM base AS system\nRUN apt "$X"\nFROM system AS role\nCOPY code /app/\nUSER $BASE_HAS\n'
    way = chain(parse(text), "role", material)
    assert way.start is None
    assert way.engine_stage is not None
    assert way.engine_stage.name == "system"
    assert [stage.name for stage in way.stages] == ["role"]
    assert "RUN" in way.reasons["system"]


def _packages(context: Context, script: str | None = None, exclude: tuple[str, ...] = ()) -> str | None:
    text = script if script is not None else install_step.install_script(LOCKED, exclude)
    folder = install_step.context_folder(LOCKED)
    dockerfile = parse(
        BASE + "FROM base AS system\n"
        f"FROM system AS wheels\nCOPY {folder}/ /wheels/\nRUN {text}\n"
        "FROM system AS packages\nCOPY --from=wheels /opt/venv /opt/venv\n"
        'ENV PATH="/opt/venv/bin:$PATH"\n'
    )
    try:
        return chain(dockerfile, "packages", Material(context=context, locked=LOCKED)).reasons.get("packages")
    except NeedsEngineError as error:
        return error.message


def test_the_packages_step_is_known_by_its_exact_text(context: Context) -> None:
    assert _packages(context) is None
    script = install_step.install_script(LOCKED)
    for other in (script + "; \\\n    true", script.replace("--no-deps", ""), "true"):
        assert "not exactly" in (_packages(context, other) or "")
    assert "not exactly" in (_packages(context, exclude=("x",)) or "")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"User": "me"}, "runs as me"),
        ({"Env": ["PYTHONOPTIMIZE=1"]}, "PYTHONOPTIMIZE"),
        ({"Shell": ["pwsh", "-Command"]}, "pwsh"),
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
        plan_stages(dockerfile, (dockerfile.stage("role"),), Material(context=context, locked=LOCKED), _start(settings))
    assert plan_stages(dockerfile, (dockerfile.stage("role"),), Material(context=context, locked=LOCKED), _start())[0]


def test_folders_on_the_way_to_a_file_get_its_owner(make: Maker) -> None:
    found = _tree(make("COPY --chown=7:8 b.txt /new/deep/\n"))
    assert {path: node.owner for path, node in found.items()} == dict.fromkeys(
        ("/new", "/new/deep", "/new/deep/b.txt"), (7, 8)
    )


def test_folders_below_a_copied_one_get_its_owner(make: Maker) -> None:
    found = _tree(make("COPY code /x\nCOPY --chown=7 code /x\nCOPY b.txt /x/sub/\n"))
    owners = {path: node.owner for path, node in found.items() if path.startswith("/x")}
    assert owners == {
        "/x": (0, 0),
        "/x/a.py": (7, 7),
        "/x/sub": (7, 7),
        "/x/sub/run.sh": (7, 7),
        "/x/sub/b.txt": (0, 0),
    }


def test_links_in_the_context_are_followed_and_wheels_stay_out(tmp_path: Path) -> None:
    folder = tmp_path / "links"
    (folder / "code" / "sub").mkdir(parents=True)
    (folder / "code" / "a.py").write_text("1")
    (folder / "code" / "inner").symlink_to("a.py")
    (folder / "to-code").symlink_to("code")
    (folder / "to-file").symlink_to("to-code/a.py")
    context = scan(folder).with_known("wheels/cpu/w.whl", sha256="0" * 64, size=5)
    make = Maker(context, tmp_path)
    everything = _tree(make("COPY . /app\n"))
    assert {path for path in everything if "wheels" in path} == set()
    assert everything["/app/to-file"].kind == "link"
    found = _tree(make("COPY to-* /all/\nCOPY to-file /one/name\nCOPY to-code/inner /two/\nCOPY to-code /three\n"))
    kinds = {path: node.kind for path, node in found.items() if node.kind != "folder"}
    names = ["/all/a.py", "/all/to-file", "/one/name", "/two/inner", "/three/a.py"]
    assert kinds == dict.fromkeys(names, "file") | {"/all/inner": "link", "/three/inner": "link"}
    with pytest.raises(NeedsEngineError, match="wheels as files"):
        make("COPY wheels /w\n")


def test_layers_are_never_there_twice(make: Maker) -> None:
    assert len(make("COPY b.txt /opt/\nCOPY b.txt /opt/\n").layers) == 1
    with pytest.raises(NeedsEngineError, match="the same layer"):
        make("COPY b.txt /opt/\nCOPY code /opt/\nCOPY b.txt /opt/\n")


def test_127_layers_are_the_limit(make: Maker) -> None:
    lines = [f"COPY b.txt /opt/{number}/\n" for number in range(127)]
    assert len(make("".join(lines[:126])).layers) == 126
    with pytest.raises(NeedsEngineError, match="127"):
        make("".join(lines))


def test_a_zstd_layer_below_makes_the_manifest_an_oci_one(context: Context, tmp_path: Path) -> None:
    with pytest.raises(NeedsEngineError, match="must not be pushed"):
        _assembled(context, tmp_path, "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", oci=True)
    image = _assembled(context, tmp_path, OCI_LAYER_ZSTD, oci=True)
    assert [layer["mediaType"] for layer in json.loads(image.manifest)["layers"]] == [OCI_LAYER_ZSTD, OCI_LAYER_GZIP]


def _assembled(context: Context, tmp_path: Path, layer: str, *, oci: bool) -> DirectImage:
    dockerfile = parse(BASE + "FROM base AS role\nCOPY b.txt /opt/\n")
    material = Material(context=context, locked=LOCKED)
    tools = LayerTools(cache=LayerCache(tmp_path / "c"), wheel_path=lambda _: Path(), find_interpreter=lambda _: None)
    return build_image(dockerfile, dockerfile.stages, material, tools, start=_start(oci=oci, layer=layer))


def test_a_base_that_contradicts_itself(context: Context) -> None:
    from training_imgtool.direct.image.image import assemble

    manifest, config = _base()
    broken = config.replace(b'["sha256:' + b"d" * 64 + b'"]', b"[]")
    with pytest.raises(VerificationError, match="different numbers of layers"):
        assemble(manifest, broken, {}, (), created=0)
    with pytest.raises(VerificationError, match="not JSON"):
        assemble(manifest, b"{", {}, (), created=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"Env": [1, 2]},
        {"Env": "x"},
        {"WorkingDir": ["/"]},
        {"Labels": ["a"]},
        {"Labels": {"a": 1}},
        {"Entrypoint": "x"},
        {"Cmd": {"a": "b"}},
        {"Volumes": ["/v"]},
        {"ExposedPorts": "80"},
        {"Healthcheck": ["NONE"]},
        {"Healthcheck": {"Test": "x"}},
        {"Healthcheck": {"Test": ["NONE"], "Interval": "9s"}},
        {"User": 5},
        {"OnBuild": "RUN x"},
        {"Shell": 1},
        {"User": "\ud800"},
    ],
)
def test_a_hostile_config_is_refused(make: Maker, settings: dict[str, Any]) -> None:
    with pytest.raises(VerificationError, match="config"):
        make("ENV a=b\nWORKDIR x\nLABEL c=d\nHEALTHCHECK CMD x\n", settings)


@pytest.mark.parametrize(
    "config",
    [
        b"[" * 200_000,
        b'{"rootfs": {"diff_ids": [5]}}',
        b'{"rootfs": {"diff_ids": "x"}}',
        b'{"rootfs": {"diff_ids": []}, "history": ["x"]}',
        b'{"rootfs": {"diff_ids": []}, "history": "x"}',
        b'{"rootfs": {"diff_ids": []}, "config": "x"}',
        b'{"rootfs": []}',
        b"5",
    ],
)
def test_what_is_no_config_is_refused(config: bytes) -> None:
    with pytest.raises(VerificationError, match="config"):
        read_config(config)


def test_load_archive(make: Maker) -> None:
    image = make("COPY code/ /app/\n")
    data = b"".join(load_archive({"a:1": image, "b:1": image}, lambda _: iter((BASE_LAYER,))))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = archive.getnames()
        listed = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
        assert len(names) == len(set(names)) == 4
        assert archive.extractfile(listed[0]["Layers"][0]).read() == BASE_LAYER  # type: ignore[union-attr]
        assert archive.extractfile(listed[0]["Config"]).read() == image.config  # type: ignore[union-attr]
    assert [one["RepoTags"] for one in listed] == [["a:1"], ["b:1"]]


def test_a_docker_image_as_an_oci_one(make: Maker) -> None:
    from training_imgtool.direct.image.image import as_oci

    docker, oci = make("COPY b.txt /opt/\n"), as_oci(make("COPY b.txt /opt/\n"))
    manifest = json.loads(oci.manifest)
    assert {layer["mediaType"] for layer in manifest["layers"]} == {OCI_LAYER_GZIP}
    assert manifest["config"]["mediaType"] == oci.config_descriptor.media_type == OCI_CONFIG
    assert oci.manifest_type == manifest["mediaType"] == OCI_MANIFEST
    assert oci.digest == sha256_digest(oci.manifest) != docker.digest
    assert (oci.config, oci.diff_ids) == (docker.config, docker.diff_ids)
    assert as_oci(oci) is oci


def test_layout(make: Maker, tmp_path: Path) -> None:
    image, folder = make("COPY code/ /app/\n", oci=True), tmp_path / "layout"
    platform = {"os": "linux", "architecture": "amd64"}
    read: list[Descriptor] = []

    def read_base(descriptor: Descriptor) -> Any:
        read.append(descriptor)
        return iter((BASE_LAYER,))

    write_layout(folder, {"master": image, "worker": image}, read_base, platform)
    write_layout(folder, {"master": image}, read_base, platform)
    assert len(read) == 1
    index = json.loads((folder / "index.json").read_bytes())
    names = [one["annotations"]["org.opencontainers.image.ref.name"] for one in index["manifests"]]
    assert sorted(names) == ["master", "worker"]
    for blob in (folder / "blobs/sha256").iterdir():
        assert sha256_digest(blob.read_bytes()) == f"sha256:{blob.name}"
    damaged = folder / "blobs/sha256" / sha256_digest(BASE_LAYER).removeprefix("sha256:")
    damaged.write_bytes(b"x" * len(BASE_LAYER))
    write_layout(folder, {"master": image}, read_base, platform)
    assert damaged.read_bytes() == BASE_LAYER
    damaged.unlink()
    with pytest.raises(VerificationError, match="came out as"):
        write_layout(folder, {"master": image}, lambda _: iter((b"other",)), platform)
    assert not damaged.exists()
    (folder / "index.json").write_text("{}")
    with pytest.raises(LocalFileError, match="not an OCI index"):
        write_layout(folder, {"master": image}, read_base, platform)


def test_a_file_that_changes_after_the_scan(make: Maker, tmp_path: Path) -> None:
    from training_imgtool.core.errors import InputError

    (tmp_path / "spec/b.txt").write_text("other")
    with pytest.raises(InputError, match="changed while reading"):
        make("COPY b.txt /opt/\n")
