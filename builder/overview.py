"""The plan as plain data and as text, for `imgtool show`."""

from __future__ import annotations

from typing import Any

from builder.inputs import Inputs, RoleImage


def as_data(inputs: Inputs) -> dict[str, Any]:
    """Every choice made: versions, bases, wheels, stages with their keys and how each will be made."""
    return {
        "name": inputs.plan.name,
        "spec": str(inputs.spec_file.path),
        "platform": inputs.plan.platform,
        "warnings": list(inputs.plan.warnings),
        "roles": [_role(image) for image in inputs.images],
    }


def _role(image: RoleImage) -> dict[str, Any]:
    variant = image.plan.locked.variant
    wheels = image.plan.locked.wheels
    return {
        "role": str(image.role),
        "tag": str(image.tag) if image.tag else None,
        "key": image.key,
        "accelerator": str(variant.accelerator),
        "tensorflow": f"{variant.package} {variant.tensorflow}",
        "python": variant.python,
        "cuda": variant.cuda,
        "cudnn": variant.cudnn,
        "base": f"{image.plan.base_name}@{image.plan.base.digest}",
        "read_from": str(image.plan.base),
        "wheels": len(wheels),
        "wheel_bytes": sum(wheel.size for wheel in wheels),
        "entrypoint": list(image.plan.entrypoint),
        "env": dict(image.plan.env),
        "stages": [
            {"stage": stage.name, "key": image.keys[stage.name or str(stage.index)], "steps": len(stage.instructions)}
            for stage in image.dockerfile.stages
            if stage.instructions
        ],
    }


def as_text(data: dict[str, Any]) -> str:
    """The same for people."""
    lines = [f"{data['name']} ({data['platform']}) from {data['spec']}"]
    lines += [f"warning: {warning}" for warning in data["warnings"]]
    for role in data["roles"]:
        lines += ["", f"{role['role']}: {role['tag'] or role['key'][:32]}"]
        cuda = f", CUDA {role['cuda']}, cuDNN {role['cudnn']}" if role["cuda"] else ""
        lines += [
            f"  tensorflow  {role['tensorflow']}, Python {role['python']}, {role['accelerator']}{cuda}",
            f"  base        {role['base']}",
            f"  wheels      {role['wheels']}, {role['wheel_bytes'] / 1e6:.1f} MB",
            f"  starts      {' '.join(role['entrypoint'])}",
        ]
        lines += [f"  env         {name}={value}" for name, value in role["env"].items()]
        lines += [f"  stage       {s['stage']:<9} {s['key'][:12]}  {s['steps']} steps" for s in role["stages"]]
    return "\n".join(lines) + "\n"
