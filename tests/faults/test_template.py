"""Group T: what can be wrong with a user's template. Exit 3 with `template:line`; nothing is built or written."""

from __future__ import annotations

import pytest

from tests.faults.project import SPEC, Project


@pytest.mark.parametrize(("deep", "works"), [(60, True), (300, False)])
def test_a_long_chain_of_templates(project: Project, deep: int, works: bool) -> None:
    for number in range(deep):
        line = f"{{% block after_code %}}{{{{ super() }}}}ENV D{number}=1\n{{% endblock %}}"
        above = f"t{number + 1}.j2" if number + 1 < deep else "base.Dockerfile.j2"
        (project.folder / f"t{number}.j2").write_text(f'{{% extends "{above}" %}}\n{line}')
    project.spec(SPEC.replace("worker: {machine", "worker: {template: t0.j2, machine"))
    ended = project.run("render", "--role", "worker")
    if works:
        assert ended.code == 0, ended.err
        assert [f"ENV D{number}=1" in ended.out for number in range(deep)] == [True] * deep
    else:
        assert ended.code == 3, ended.err
        assert "includes or extends itself, or more than about 100 others" in ended.err
