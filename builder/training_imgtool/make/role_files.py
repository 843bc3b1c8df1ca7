"""Lists the files that the role's own (last) stage adds to the image, as the direct builder lays them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from training_imgtool.oci.direct.files import ASSUMED, list_parents
from training_imgtool.oci.direct.layout import lay_out
from training_imgtool.oci.layers import tar_writer
from training_imgtool.oci.layers.layers import MTIME
from training_imgtool.oci.layers.tarhead import Kind
from training_imgtool.plan.inputs import RoleImage

_MUCH = 8 << 20  # bytes of code


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file, folder or link in an image: its entry in a layer, and the hash of its content."""

    item: tar_writer.Item
    sha256: str

    @property
    def is_folder(self) -> bool:
        """Whether the file is a folder."""
        return self.item.entry.kind is Kind.FOLDER

    def held(self) -> PlacedFile:
        """Returns the same file with its content in memory; raises InputError if the content has changed."""
        item = self.item
        if item.blocks is None:
            return self
        return replace(self, item=replace(item, data=b"".join(item.blocks()), blocks=None))

    def is_like(self, other: PlacedFile | None) -> bool:
        """Tells whether two files have the same type, attributes and content."""
        return other is not None and (self.item.entry, self.sha256) == (other.item.entry, other.sha256)


Files = Mapping[str, PlacedFile]


def list_role_files(image: RoleImage) -> Files | None:
    """Maps absolute paths to the files that the role's own stage puts there; None if only an engine knows the files."""
    if image.recipe.template is not None:
        return None
    layer = lay_out((*image.recipe.files, *image.recipe.code), ASSUMED)
    return {f"/{item.entry.path}": PlacedFile(item, sha256) for item, sha256 in layer.contents}


def choose_files(built: Files, wanted: Files) -> Files:
    """Chooses the files to copy into a container: all, or, if they are large, those that differ between the images."""
    if sum(file.item.entry.size for file in wanted.values()) < _MUCH:
        return wanted
    chosen = {path for path, file in wanted.items() if not file.is_like(built.get(path))}
    above = {folder for path in chosen for folder in list_parents(path)}
    return {path: file for path, file in wanted.items() if path in chosen or path in above}


def write_tar(files: Iterable[PlacedFile], mtime: int | None) -> Iterator[bytes]:
    """Yields a tar with the files, as the layer contains them; raises InputError if a file has changed."""
    ordered = sorted(files, key=lambda file: file.item.entry.path)
    return tar_writer.write_tar((file.item for file in ordered), mtime or MTIME)
