"""Ways to put a secret into an image: each ends with exit 3, before anything is sent. What it is, is shown nowhere."""

from __future__ import annotations

import base64
import json

import pytest

from tests.faults.project import SPEC, Project
from tests.servers.fault_proxy import FaultProxy

pytestmark = pytest.mark.registry
VALUE = "q8Zt4rW2vLx9"
KEY = base64.b64encode(json.dumps({"type": "service_account", "key": VALUE}).encode()).decode()
_CELL = {"cells": [{"source": [f'wandb_api_key = "{VALUE}"\n']}]}
FILES: dict[str, str | bytes] = {
    "settings.yaml": f"db:\n  host: db\n  password: {VALUE}\n",
    "login.py": f'import os\nAPI_TOKEN: str = "{VALUE}"\n',
    "late.py": "# a comment\n" * 100_000 + f'client = connect(secret_key="{VALUE}")\n',
    "explore.ipynb": json.dumps(_CELL),
    "client.json": json.dumps({"clientSecret": VALUE}),
    "wide.ini": f"[login]\npasswd = {VALUE}\n".encode("utf-16"),
    "signing.txt": "-----BEGIN PGP PRIVATE " + f"KEY BLOCK-----\n\n{VALUE}\n",
    "hub.txt": "GOC" + f"SPX-{VALUE * 3}",
    "Main.java": f'props.put("db.password", "x"); String dbPassword = "{VALUE}";',
    "clone.sh": "git clone https://oauth2:glp" + f"at-{VALUE * 2}@example.com/x\n",
    "prod.tfstate": "{}",
    ".bash_history": "ls\n",
    ".envrc": f"export DB_PASSWORD={VALUE}\n",
    "dotenv": f"DB_PASSWORD={VALUE}\n",
    "env.txt": f"DB_PASSWORD={VALUE}\n",
    "env.bak": f"DB_PASSWORD={VALUE}\n",
    "settings.env.bak": f"API_KEY={VALUE}\n",
    "id_rsa.old": "x",
    "creds.txt": f"user: me\npassword: {VALUE}\n",
    ".wandb/settings": f"[default]\napi_key = {VALUE}\n",
    "pod.yaml": f"env:\n- name: DB_PASSWORD\n  value: {VALUE}\n",
    "pod.json": json.dumps({"env": [{"name": "DB_PASSWORD", "value": VALUE}]}),
    "notes.txt": f"curl -fsu me:{VALUE} https://example.com/x\n",
    "cookies.txt": f"# Netscape HTTP Cookie File\nexample.com\tTRUE\t/\tTRUE\t0\tsid\t{VALUE}\n",
    "users.csv": f"user,password\nme,{VALUE}\n",
    "long.txt": "a line of text\n" * 400_000 + "GOC" + f"SPX-{VALUE * 3}",
    "model.bin": bytes(100_000) + f" GOC{'SPX-'}{VALUE * 3} ".encode(),
    "huggingface/token": VALUE,
}
KEYS = {
    "curl": f'run: ["curl -fu robot:{VALUE} https://example.com/x.tgz | tar xz"]',
    "chpasswd": f"run: [\"echo 'root:{VALUE}' | chpasswd\"]",
    "netrc": f"run: [\"printf 'machine h login me password {VALUE}' > /root/.netrc\"]",
    "wandb": f'run_after_packages: ["wandb login --relogin {VALUE}"]',
    "aws": f'run: ["aws configure set aws_secret_access_key {VALUE}"]',
    "words": f'run: ["tool --api-key {VALUE} get"]',
    "header": f'args: ["--header=Authorization: Bearer {VALUE}"]',
    "shell": f'args: ["-c", "PGPASSWORD={VALUE} python -m trainer"]',
    "parts": f'env: {{DATABASE: "host=db user=me password={VALUE}"}}',
    "base64": f"env: {{GOOGLE: {KEY}}}",
    "camel": f"env: {{dbPassword: {VALUE}}}",
    "azure": 'env: {STORE: "AccountName=x;Account' + f'Key={VALUE * 4}=="}}',
}
LINES = {
    "expanded": f"ARG Q={VALUE}\nENV DB_PASSWORD=$Q",
    "default": f"ENV DB_PASSWORD=${{NOTHING:-{VALUE}}}",
    "two lines": f"RUN tool --api-key \\\n  {VALUE} get",
    "commented": f"RUN tool --password \\\n# the password\n  {VALUE} get",
    "bare": f"ENV DB_PASSWORD {VALUE}",
    "exec": f'CMD ["python", "--password", "{VALUE}"]',
    "health": f"HEALTHCHECK CMD curl --user me:{VALUE} http://localhost",
    "label": f'LABEL build="token={VALUE}"',
    "onbuild": f"ONBUILD ENV API_KEY={VALUE}",
    "sshpass": f"RUN sshpass -p {VALUE} scp me@host:/x /x",
    "shell": f'SHELL ["/bin/sh", "-c", "export TOKEN={VALUE}"]',
    "here": f"RUN <<EOF\ndocker login -u me -p {VALUE} example.com\nEOF",
    "folder": "WORKDIR /app/{{ 'gh' }}p_" + VALUE * 3,
}


def _push_is_refused(project: Project, proxy: FaultProxy, says: str) -> None:
    ended = project.refused("push", code=3, says=[says])
    assert VALUE not in ended.err + ended.out
    assert not {"POST", "PUT", "PATCH"} & {*proxy.methods()}


@pytest.mark.parametrize("name", FILES)
def test_in_a_file(pushing: Project, proxy: FaultProxy, name: str) -> None:
    pushing.write(f"trainer/{name}", FILES[name])
    _push_is_refused(pushing, proxy, f"looks like a secret in the build context: trainer/{name}")


@pytest.mark.parametrize("key", KEYS)
def test_in_the_spec(pushing: Project, proxy: FaultProxy, key: str) -> None:
    pushing.spec(SPEC + KEYS[key] + "\n", lock=False)
    _push_is_refused(pushing, proxy, "so it is not shown")


@pytest.mark.parametrize("line", LINES)
def test_in_what_a_template_prints(pushing: Project, proxy: FaultProxy, line: str) -> None:
    block = f"{{% block after_code %}}\n{LINES[line]}\n{{% endblock %}}"
    pushing.write("own.j2", f'{{% extends "base.Dockerfile.j2" %}}\n{block}')
    pushing.spec(SPEC + "template: own.j2\n")
    _push_is_refused(pushing, proxy, "of the Dockerfile that the template prints")


@pytest.mark.parametrize(
    "text",
    [
        "password = getpass.getpass()\ntoken = os.environ['HF_TOKEN']\napi_key: str = settings.api_key\n",
        'pad_token = "[PAD]"\nmask_token="<mask>"\nnext_token = "nextPageToken"\nSECRET = "OUR_SECRET"\n',
        'url = f"https://{user}:{password}@host"\nproxy = "http://user:password@proxy" or "ftp://anonymous:guest@x"\n',
        'parser.add_argument("--password", default="changeme", help="secret: ask the team")\n',
        'parser.add_argument("--token_file", default="token.json")\nkey = "image/encoded"\n',
    ],
)
def test_other_files_are_no_secrets(project: Project, text: str) -> None:
    for suffix in ("py", "ipynb"):
        project.write(f"trainer/more.{suffix}", text)
    assert project.run("show").code == 0


def test_other_tables_and_notes_are_no_secrets(project: Project) -> None:
    files = {
        "words.csv": "token,count\ninternational,5\nthe,9\n",
        "people.csv": "name,password_hint,key\nme,the usual one,7\n",
        "cookies.txt": "chocolate\noatmeal\n",
        "env.txt": "conda create -n train python=3.11\nexport PATH=/opt/bin\n",
        "keys.txt": "loss\naccuracy\n",
        "readme.txt": "curl -u user:password https://x; curl -u admin:admin https://x\ncurl https://h -u $USER:$PW\n",
        "pod.yaml": "env:\n- name: DB_PASSWORD_FILE\n  value: /run/x\n- name: MODE\n  value: fast\n",
        "pod2.yaml": "env:\n- name: DB_PASSWORD\n  valueFrom: {secretKeyRef: {name: db, key: password}}\n",
        "settings.bak": "rate = 0.1\n",
        ".wandb/settings": "[default]\nproject = digits\n",
    }
    for name, text in files.items():
        project.write(f"trainer/{name}", text)
    ended = project.run("show")
    assert ended.code == 0, ended.err


def test_other_values_are_no_secrets(project: Project) -> None:
    lines = [
        "git clone https://me:$TOKEN@example.com/x",
        'curl -fsSu "$(cat /run/secrets/login)" https://example.com',
        "apt-get install -y passwd && mkdir -p /home/token && docker-credential-x -v get",
    ]
    project.spec(f"{SPEC}run: {json.dumps(lines)}\nargs: [--pad-token=<pad>, --key, image/x]\n")
    assert project.run("show").code == 0
