"""Stand-ins for the services' programs, under the names that they are linked as; their services are JSON in $SERVICES.

$KILL, such as `create:before`, has the program kill the imgtool that runs it before or after the service did the verb;
`create:half` does the first part alone. Each call is noted in $SERVICES.calls.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

STATE = Path(os.environ["SERVICES"])
PROGRAM, *WORDS = [Path(sys.argv[0]).name, *sys.argv[1:]]


def load() -> dict[str, Any]:
    return json.loads(STATE.read_text()) if STATE.exists() else {}


def option(name: str) -> str:
    return WORDS[WORDS.index(name) + 1]


def verb() -> str:
    known = ("create", "get", "up", "ps", "list", "training", "cp", "launch", "queue")
    return next((word for word in WORDS if word in known), PROGRAM)


def parts() -> list[tuple[str, Any]]:  # noqa: PLR0911  a case per program
    """What the command adds to the service: names and objects."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if PROGRAM == "kubectl":
        file = option("--filename" if "--filename" in WORDS else "-f")
        documents = list(yaml.load_all(Path(file).read_text(), loader))
        return [(f"{item['kind']}/{item['metadata']['name']}", item) for item in documents]
    if PROGRAM == "docker":
        document = yaml.load(Path(option("--file")).read_text(), loader)
        rows = {
            name: ",".join(f"{key}={value}" for key, value in service["labels"].items())
            for name, service in document["services"].items()
        }
        return [
            (f"{document['name']}/{name}", {"Service": name, "State": "running", "ExitCode": 0, "Labels": labels})
            for name, labels in rows.items()
        ]
    if PROGRAM == "sbatch":
        lines = dict(
            line.removeprefix("#SBATCH --").split("=", 1)
            for line in Path(WORDS[-1]).read_text().splitlines()
            if line.startswith("#SBATCH --")
        )
        return [(str(40 + len(load())), {"name": lines["job-name"], "comment": lines["comment"], "state": "RUNNING"})]
    if PROGRAM == "sky":
        return [(str(1 + len(load())), {"job_name": option("--name"), "status": "RUNNING"})]
    if verb() == "training":
        job = yaml.load(Path(option("--config")).read_text(), loader)
        return [(job["jobId"], {"jobId": job["jobId"], "labels": job["labels"], "state": "RUNNING"})]
    if verb() == "cp":
        return [(option("cp"), {"package": True})]
    number = str(1 + len(load()))
    labels = dict(pair.split("=", 1) for pair in option("--labels").split(","))
    name = f"projects/p/locations/us-central1/customJobs/{number}"
    return [(number, {"name": name, "labels": labels, "state": "JOB_STATE_RUNNING", "createTime": number})]


def add() -> int:
    state, code = load(), 0
    added = parts()
    for name, item in added[:1] if os.environ.get("KILL") == f"{verb()}:half" else added:
        if name in state and PROGRAM == "kubectl":
            print(f"{name} already exists", file=sys.stderr)
            code = 1
        elif name in state and verb() == "training":
            return 1
        else:
            state[name] = item
    STATE.write_text(json.dumps(state))
    print("done")
    return code


def show() -> None:
    state = load()
    if PROGRAM == "kubectl" and "pods" in WORDS:
        pods = [item for item in state.values() if "replicas" in item]
        print(json.dumps({"kind": "List", "items": [pod for item in pods for pod in item["replicas"]]}))
        return
    if PROGRAM in {"kubectl", "docker"}:
        state = {name: state[name] for name, _ in parts() if name in state}
    if PROGRAM == "kubectl":
        print(json.dumps({"kind": "List", "items": list(state.values())}) if state else "")
    elif PROGRAM == "docker":
        print("\n".join(json.dumps(item) for item in state.values()))
    elif PROGRAM == "squeue":
        (name,) = [word.removeprefix("--name=") for word in WORDS if word.startswith("--name=")]
        own = {number: job for number, job in state.items() if job["name"] == name}
        lines = (f"{number}|{job['state']}|{job['comment']}|{job.get('exit', 0)}|" for number, job in own.items())
        print("\n".join(lines))
    elif PROGRAM == "sky":
        print(json.dumps([{"job_id": int(number), **job} for number, job in state.items()]))
    else:
        key, _, value = option("--filter").partition("=")
        rows = [item for item in state.values() if "package" not in item]
        print(json.dumps([row for row in rows if value == (row.get(key) or row["labels"].get("imgtool-job"))]))


def main() -> int:
    with Path(f"{STATE}.calls").open("a") as calls:
        calls.write(json.dumps([PROGRAM, *WORDS]) + "\n")
    shown = verb() in {"get", "ps", "list", "queue", "squeue"}
    kill, _, when = os.environ.get("KILL", "").partition(":")
    if kill == verb() and when == "before":
        os.kill(os.getppid(), signal.SIGKILL)
        return 0
    code = 0
    if shown:
        show()
    elif verb() not in {"delete", "stop", "kubectl", "docker"} and "cancel" not in WORDS:
        code = add()
    if kill == verb():
        os.kill(os.getppid(), signal.SIGKILL)
    return code


if __name__ == "__main__":
    sys.exit(main())
