"""Source archives whose build backend is their own, so that a build needs nothing from an index."""

from __future__ import annotations

import io
import tarfile

BACKEND = """
import os, zipfile

NAME, VERSION, REQUIRES = {name!r}, {version!r}, {requires!r}

def build_wheel(folder, settings=None, metadata=None):
    body()
    file = f"{{NAME}}-{{VERSION}}-{tag}.whl"
    info = f"{{NAME}}-{{VERSION}}.dist-info"
    with zipfile.ZipFile(os.path.join(folder, file), "w", zipfile.ZIP_DEFLATED) as wheel:
        zipfile.time.time = lambda: 315532800  # SOURCE_DATE_EPOCH, as real backends read it
        wheel.writestr(f"{{NAME}}.py", CONTENT)
        wheel.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: {tag}\\n")
        head = f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: {{VERSION}}\\n"
        wheel.writestr(f"{{info}}/METADATA", head + "".join(f"Requires-Dist: {{r}}\\n" for r in REQUIRES))
        wheel.writestr(f"{{info}}/RECORD", "")
    return file

CONTENT = "x = 1\\n"

def body():
    global CONTENT
    {body}
"""


def source_archive(
    name: str,
    version: str,
    *,
    requires: tuple[str, ...] = (),
    body: str = "pass",
    tag: str = "py3-none-any",
    files: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> bytes:
    """A .tar.gz whose backend needs `needs`, runs `body`, which may set CONTENT (the module's text), makes a wheel."""
    stream = io.BytesIO()
    own = source_files(name, version, requires=requires, body=body, tag=tag)
    own["pyproject.toml"] = own["pyproject.toml"].replace("[]", str(list(needs)), 1)
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for path, content in [*own.items(), *((file, "") for file in files)]:
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    return stream.getvalue()


def source_files(
    name: str, version: str, *, requires: tuple[str, ...] = (), body: str = "pass", tag: str = "py3-none-any"
) -> dict[str, str]:
    """The files of a project, by path, whose backend runs `body` and writes a wheel."""
    text = BACKEND.format(name=name, version=version, requires=requires, tag=tag, body=body.replace("\n", "\n    "))
    pyproject = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    return {"backend.py": text, "pyproject.toml": pyproject}
