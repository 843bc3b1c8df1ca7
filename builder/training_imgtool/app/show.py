"""Describes the plan of a build for `imgtool show`, as plain data and as text."""

from __future__ import annotations

from typing import Any

from training_imgtool.jobs import note_loss
from training_imgtool.plan.inputs import Inputs, RoleImage
from training_imgtool.resolve.frameworks import rules_of
from training_imgtool.resolve.versions.matrix import has_cuda_wheels, load_matrix


def as_data(inputs: Inputs) -> dict[str, Any]:
    """Returns every choice of the plan: versions, base images, wheels, and each stage's key and builder."""
    return {
        "name": inputs.spec.name,
        "spec": str(inputs.spec_file.path),
        "platform": inputs.spec.platform,
        "compression": inputs.spec.compression,
        "warnings": list(list_warnings(inputs)),
        "roles": [_role(inputs, image) for image in inputs.images],
    }


def list_warnings(inputs: Inputs) -> tuple[str, ...]:
    """Lists the warnings of the version matrix, and a warning about results that the job would lose."""
    spec = inputs.spec_file.spec
    return (*inputs.warnings, *note_loss(spec, spec.job.target))


def _role(inputs: Inputs, image: RoleImage) -> dict[str, Any]:
    variant = image.locked.variant
    wheels = image.locked.wheels
    return {
        "role": str(image.role),
        "tag": str(image.tag) if image.tag else None,
        "key": image.key,
        "accelerator": str(variant.accelerator),
        **variant.installed,
        "python": variant.python,
        "cuda": variant.cuda,
        "cudnn": variant.cudnn,
        "base": f"{image.recipe.base_name}@{image.recipe.base.digest}",
        "read_from": str(image.recipe.base),
        "wheels": len(wheels),
        "wheel_bytes": sum(wheel.size for wheel in wheels),
        "trimmed": [{"path": row.path, "bytes": row.size, "rule": row.rule} for row in image.trimmed],
        "needed": dict(image.needed),
        "entrypoint": list(image.recipe.entrypoint),
        "env": dict(image.recipe.env),
        "stages": _stages(image),
        "advice": _advice(inputs, image),
    }


def _advice(inputs: Inputs, image: RoleImage) -> str | None:
    """Suggests `cuda_from: wheels` for an image on a CUDA base, unless the user chose the base or a template."""
    spec, role = inputs.spec, image.role
    own = spec.base or spec.template or spec.roles[role].base or spec.roles[role].template
    matrix, variant = load_matrix(), image.locked.variant
    if rules_of(variant.framework).needs_index(matrix, variant.release):
        return None
    minor, release = matrix.release(variant.release, variant.framework)
    if spec.cuda_from != "base" or not variant.cuda or own or not has_cuda_wheels(minor, release):
        return None
    for_engine = any(stage.engine for stage in image.stages)
    engine = "needs no Docker Engine and " if for_engine and not spec.system_packages else ""
    return f"cuda_from: wheels {engine}makes a smaller image: no base of 2 GB, and no unused libraries"


def _stages(image: RoleImage) -> list[dict[str, Any]]:
    """Lists the stages of the image: whether imgtool or buildx makes each stage, and why a stage needs buildx."""
    return [
        {
            "stage": stage.name,
            "key": stage.key,
            "builder": "engine" if stage.engine else "direct",
            "why": stage.engine or None,
        }
        for stage in image.stages
    ]


def as_text(data: dict[str, Any]) -> str:
    """Formats the result of `as_data` as text."""
    lines = [f"{data['name']} ({data['platform']}) from {data['spec']}"]
    lines.append(f"layers: {data['compression']}")
    lines += [f"warning: {warning}" for warning in data["warnings"]]
    for role in data["roles"]:
        lines += ["", f"{role['role']}: {role['tag'] or role['key'][:32]}"]
        cuda = f", CUDA {role['cuda']}, cuDNN {role['cudnn']}" if role["cuda"] else ""
        python = f"Python {role['python']}, {role['accelerator']}{cuda}"
        lines += [
            f"  {role['framework']:10}  {role['package']} {role['release']}, {python}",
            f"  base        {role['base']}",
            f"  wheels      {role['wheels']}, {role['wheel_bytes'] / 1e6:.1f} MB",
            f"  starts      {' '.join(role['entrypoint'])}",
        ]
        lines += _trimmed_text(role)
        lines += [f"  env         {name}={value}" for name, value in role["env"].items()]
        lines += [f"  stage       {_stage_text(stage)}" for stage in role["stages"]]
        lines += [f"  advice      {role['advice']}"] if role["advice"] else []
    return "\n".join(lines) + "\n"


def _trimmed_text(role: dict[str, Any]) -> list[str]:
    """Formats the paths that the image omits, largest first, and those that stay because the user's code names them."""
    rows = sorted(role["trimmed"], key=lambda row: (-row["bytes"], row["path"]))
    total = sum(row["bytes"] for row in rows)
    lines = (
        [f"  trimmed     {total / 1e6:.1f} MB uncompressed that nothing opens (trim: false keeps it)"] if rows else []
    )
    lines += [f"              {row['bytes'] / 1e6:7.1f} MB  {row['path']}" for row in rows]
    return lines + [f"  keeps       {path}: {where} names it" for path, where in role["needed"].items()]


def _stage_text(stage: dict[str, Any]) -> str:
    why = f": {stage['why']}" if stage["why"] else ""
    return f"{stage['stage']:<9} {stage['key'][:12]}  {stage['builder']}{why}"
