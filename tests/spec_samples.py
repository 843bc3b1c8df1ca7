"""Specs that are right and specs that are wrong, for the reader's tests and the schema's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HEAD = "name: m\ntensorflow: 2.15.1\nroles: {master: {}}\n"  # a case begins in line 4
JAX = HEAD.replace("tensorflow: 2.15.1", "jax: 0.10.2")
TORCH = HEAD.replace("tensorflow: 2.15.1", "torch: 2.13.0")
LONG_TAG = "x" * 129


def make_folder(folder: Path) -> Path:
    """A folder with what the samples name: a trainer, requirements, a template."""
    (folder / "trainer").mkdir(parents=True)
    for name in ("trainer/__init__.py", "trainer/task.py", "requirements.txt", "my.Dockerfile.j2"):
        (folder / name).touch()
    return folder


GOOD: dict[str, str] = {
    "smallest": HEAD,
    "JAX": JAX + 'cuda: "13"\n',
    "PyTorch": TORCH + "cuda: 12.6\naccelerator: gpu\n",
    "roles without a value": "name: m\ntensorflow: 2.15.1\nroles:\n  master:\n  worker: {}\n  ps: ~\n",
    "numbers unquoted": HEAD + "python: 3.11\nuser: 1000\nenv: {A: 2.10, B: 0755, C: 12e5678, D: on, E: 22:22}\n",
    "keys without a value": HEAD + "base:\nregistry: ~\nargs: null\nenv:\ntrainer:\njob:\n",
    "byte order mark": "\ufeff" + HEAD,
    "CRLF": HEAD.replace("\n", "\r\n"),
    "anchors": HEAD.replace("{master: {}}", "{master: &m {machine: a}, worker: *m}"),
    "quoted numbers": HEAD.replace("{master: {}}", '{master: {count: "1"}, worker: {count: "3"}}'),
    "paths": HEAD + "requirements: ./requirements.txt\ntemplate: my.Dockerfile.j2\ntrainer: {source: trainer/}\n",
    "a module of a package": HEAD + "trainer: {module: some_package.main}\n",
    "model's tokens are no secrets": HEAD + 'env: {PAD_TOKEN: "[PAD]", MAX_TOKEN: 512}\nargs: [--eos-token, </s>]\n',
    "where a secret is": HEAD + "env: {API_KEY: projects/p/secrets/s, DB_PASSWORD_FILE: /run/pw, SECRET: $X}\n",
    "a secret that is none": HEAD + "env: {DB_PASSWORD: none-at-all}\nallow_secrets: [env.DB_PASSWORD]\n",
    "a runtime version": "name: m\ntensorflow: 2.11.0\nroles: {}\njob: {runtime_version: 2.11, scale_tier: BASIC}\n",
    "everything": """\
name: mnist
registry: us-central1-docker.pkg.dev/my-project/training
tensorflow: "2.15.1"
python: "3.10"
accelerator: gpu
base: nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04
cuda_from: base
system_packages: [libgomp1, "libssl3=3.0.11-1~deb12u2"]
requirements: requirements.txt
trainer: {source: trainer, module: trainer.task}
args: ["--epochs=10"]
env: {TF_CPP_MIN_LOG_LEVEL: "1"}
user: "1000:1000"
template: my.Dockerfile.j2
platform: linux/amd64
exclude: [tensorflow/include]
compression: gzip
roles:
  master: {machine: n1-standard-16, gpus: {type: NVIDIA_TESLA_V100, count: 2}, disk: {type: pd-ssd, size_gb: 200}}
  worker: {machine: n1-standard-16, gpus: {type: NVIDIA_TESLA_V100, count: 2}, count: 9, env: {A: b}}
  ps: {machine: n1-highmem-8, count: 3, accelerator: cpu, args: [], cpus: "4", memory: 16Gi}
  evaluator: {accelerator: tpu, tpu: {type: TPU_V3}, tolerations: [{key: a, operator: Exists}]}
job:
  target: ai-platform
  region: us-central1
  job_dir: gs://my-bucket/mnist
  scheduling: {max_wait: 3600s, max_running: 7200s, priority: 5, restart_on_worker_restart: true}
  service_account: trainer@my-project.iam.gserviceaccount.com
  labels: {team: vision}
  web_access: false
  hyperparameters: {goal: MAXIMIZE, params: [{name: rate, type: DOUBLE, min: 0.1, max: "1"}]}
""",
}


@dataclass(frozen=True)
class Bad:
    """A wrong spec, and what must be said: the place (line:column), the key, words of the message and of the hint."""

    text: str
    at: str
    field: str
    message: str
    hint: str = ""
    in_schema: bool = True  # whether the editor's schema refuses it too

    @property
    def label(self) -> str:
        """A name for the test's report."""
        return f"{self.field} {self.message}"[:70].replace("/", "|")


def _case(text: str, at: str, field: str, message: str, hint: str = "", *, in_schema: bool = True) -> Bad:
    return Bad(HEAD + text, at, field, message, hint, in_schema)


def _roles(text: str, at: str, field: str, message: str, hint: str = "", *, in_schema: bool = True) -> Bad:
    return Bad("name: m\ntensorflow: 2.15.1\n" + text, at, field, message, hint, in_schema)


_HIDDEN = "it is not shown"
_NOT_ENV = "is not the name of an environment variable"
_NEWLINE = "the character U+000A is not allowed in a value (character 2)"

BAD: tuple[Bad, ...] = (
    # Keys
    _case("imagess: x\n", "4:1", "imagess", "unknown key 'imagess'", "allowed here: name, registry, tensorflow"),
    _case("pyhton: 3.11\n", "4:1", "pyhton", "unknown key 'pyhton'", "did you mean python?"),
    _case("system-packages: [git]\n", "4:1", "system-packages", "unknown key", "did you mean system_packages?"),
    Bad(
        JAX.replace("jax:", "jax[cuda12]:"),
        "2:1",
        "jax[cuda12]",
        "unknown key 'jax[cuda12]'",
        "did you mean jax? `accelerator: gpu` brings CUDA",
    ),
    _case("password: hunter2\n", "4:1", "password", "unknown key 'password'"),
    _case('"py\u202ethon": 3.11\n', "4:1", "py?thon", "unknown key 'py\\u202ethon'", "did you mean python?"),
    _case("ghp_hunter2hunter2hunter2: x\n", "4:1", "(a secret)", "unknown key (a secret)"),
    _case("job: {trgt: vertex}\n", "4:7", "job.trgt", "unknown key 'trgt'", "did you mean target?"),
    _roles("", "1:1", "roles", "missing: expected a mapping with master, worker, ps or evaluator"),
    _roles("roles:\n", "3:1", "roles", "expected a mapping with master, worker, ps or evaluator, found nothing"),
    Bad("name: m\nroles: {master: {}}\n", "1:1", "tensorflow", "missing: expected one framework, such as `tensorflow"),
    Bad(HEAD + "jax: 0.10.2\n", "4:6", "jax", "found tensorflow and jax: expected one framework"),
    Bad(HEAD + 'cuda: "13"\n', "4:7", "cuda", "the release of TensorFlow decides its CUDA", "leave", in_schema=False),
    Bad(JAX + "cuda: 12.6\n", "4:7", "cuda", "expected 12 or 13 with JAX, found '12.6'", in_schema=False),
    Bad(TORCH + "cuda: 13\n", "4:7", "cuda", "expected MAJOR.MINOR, such as 12.6 with PyTorch", in_schema=False),
    Bad(TORCH.replace("2.13.0", "2.13.0+cpu"), "2:8", "torch", "without the name of a build"),
    Bad(
        TORCH.replace("}}", "}, ps: {}}"),
        "3:21",
        "roles.ps",
        "PyTorch has no role ps: its processes exchange gradients among themselves",
        in_schema=False,
    ),
    Bad(JAX + "cuda_from: base\n", "4:12", "cuda_from", "JAX takes CUDA from wheels alone", "leave", in_schema=False),
    Bad(
        JAX.replace("}}", "}, ps: {}}"),
        "3:21",
        "roles.ps",
        "JAX has no role ps: all of its processes compute",
        "make them workers",
        in_schema=False,
    ),
    Bad("name:\ntensorflow: 2.15.1\nroles: {master: {}}\n", "1:1", "name", "found nothing"),
    # Roles
    _roles(
        "roles: {}\n", "3:1", "roles", "expected a master or workers, found no role", "master, worker, ps, evaluator"
    ),
    _roles("roles: {ps: {}}\n", "3:1", "roles", "expected a master or workers, found ps", "add `master: {}`"),
    _roles("roles: {chief: {}}\n", "3:9", "roles.chief", "unknown key 'chief'", "did you mean master?"),
    _roles("roles:\n  wokrer: {}\n  master:\n", "4:3", "roles.wokrer", "unknown key", "did you mean worker?"),
    _roles(
        "roles: {master: {count: 3}}\n",
        "3:25",
        "roles.master.count",
        "expected 1, found 3",
        "further replicas are workers",
    ),
    _roles("roles: {master: {replicas: 3}}\n", "3:18", "roles.master.replicas", "unknown key", "did you mean count?"),
    _roles("roles: {master: {gpus: {count: 2}}}\n", "3:18", "roles.master.gpus.type", "missing", "NVIDIA_TESLA_V100"),
    _roles(
        "roles: {master: {gpus: 2}}\n",
        "3:24",
        "roles.master.gpus",
        "expected a mapping with type or count, found '2'",
        "write {type: TYPE, count: 2}",
    ),
    _roles(
        "roles: {master: {gpus: {type: T4}, tpu: {type: V3}}}\n",
        "3:36",
        "roles.master.tpu",
        "not both",
        in_schema=False,
    ),
    _roles(
        "roles: {master: {gpus: {type: T4}, accelerator: cpu}}\n",
        "3:49",
        "roles.master.accelerator",
        "expected gpu, since the role has gpus, found 'cpu'",
        in_schema=False,
    ),
    # Numbers, booleans, choices
    _roles(
        "roles: {master: , worker: {count: two}}\n",
        "3:35",
        "roles.worker.count",
        "expected a whole number, at least 0, found 'two'",
    ),
    _roles(
        "roles: {master: , worker: {count: 1_0}}\n",
        "3:35",
        "roles.worker.count",
        "found '1_0'",
        "write a whole number",
        in_schema=False,
    ),
    _roles("roles: {master: , worker: {count: -1}}\n", "3:35", "roles.worker.count", "at least 0, found '-1'"),
    _case(
        "job: {web_access: yes}\n",
        "4:19",
        "job.web_access",
        "expected true or false, found 'yes'",
        "write true",
        in_schema=False,
    ),
    _case(
        "job: {hyperparameters: {goal: MAXIMIZE, metric: m, params: [], algorithm: GRID}}\n",
        "4:75",
        "job.hyperparameters.algorithm",
        "expected GRID_SEARCH or RANDOM_SEARCH, found 'GRID'",
    ),
    _case("accelerator: gqu\n", "4:14", "accelerator", "expected cpu, gpu or tpu, found 'gqu'", "did you mean gpu?"),
    _case("platform: linux/arm\n", "4:11", "platform", "expected linux/amd64 or linux/arm64", "linux/arm64"),
    _case(
        "job: {target: vertexx}\n", "4:15", "job.target", "expected ai-platform, vertex, tfjob", "did you mean vertex?"
    ),
    _case("job: {scheduling: {max_running: 2h}}\n", "4:33", "job.scheduling.max_running", "seconds with an s"),
    _roles(
        "roles: {master: {tolerations: [{operator: In}]}}\n",
        "3:43",
        "roles.master.tolerations[0].operator",
        "expected Exists or Equal, found 'In'",
    ),
    # Text
    Bad(HEAD.replace("2.15.1", "2.15"), "2:13", "tensorflow", "such as \"2.15.1\", found '2.15'"),
    Bad(HEAD.replace(": m", ": Mnist"), "1:7", "name", "expected lower-case letters and digits", ""),
    Bad(
        HEAD.replace(": m", ": " + "a" * 250) + "registry: localhost:5000\n",
        "1:7",
        "name",
        "longer than 255",
        "",
        in_schema=False,
    ),
    _case("python: 3.11.4\n", "4:9", "python", "expected MAJOR.MINOR, such as 3.11, found '3.11.4'"),
    _case("system_packages: ['a; rm -rf /']\n", "4:19", "system_packages[0]", "expected a Debian package's name"),
    _case("exclude: [a, tensorflow/../..]\n", "4:14", "exclude[1]", "expected a path below site-packages"),
    _case('env: {A: "x\\nRUN curl evil"}\n', "4:10", "env.A", _NEWLINE, "one line", in_schema=False),
    _case("env:\n  A: |\n    x\n", "5:6", "env.A", _NEWLINE, "`|` and `>` keep line breaks", in_schema=False),
    _case('args: ["x\\0"]\n', "4:8", "args[0]", "the character U+0000 is not allowed", in_schema=False),
    _case('job: {id: "x\\u202ey"}\n', "4:11", "job.id", "the character U+202E is not allowed", in_schema=False),
    _case(f"args: [{'x' * 40_000}]\n", "4:8", "args[0]", "at most 32768 characters, found 40000", in_schema=False),
    # Lists and mappings
    _case("args: --epochs=3\n", "4:7", "args", "expected a list, found '--epochs=3'", "write ['--epochs=3']"),
    _case("args: [a, ~]\n", "4:11", "args[1]", "expected a value, found nothing", 'write "~"'),
    _case("args: [[a]]\n", "4:8", "args[0]", "expected text, found a list"),
    _case("requirements: [pandas]\n", "4:1", "requirements", "found a list", "python_packages takes"),
    _case("python_packages: [--pre]\n", "4:19", "python_packages[0]", "expected a requirement", ""),
    _case("env: [A=b]\n", "4:1", "env", "expected a mapping (`key: value` lines), found a list"),
    _case("env: {A: }\n", "4:7", "env.A", "expected a value, found nothing", 'write "" for an empty text'),
    _case("env: {1A: x}\n", "4:7", "env.1A", _NOT_ENV),
    _case('env: {"A\\nRUN x": y}\n', "4:7", "env.A?RUN x", _NEWLINE),
    _case(
        "env: {TF_CONFIG: x}\n", "4:7", "env.TF_CONFIG", "a spec cannot set TF_CONFIG: the service sets it", "remove it"
    ),
    _roles(
        "roles: {master: {env: {PATH: x}}}\n", "3:24", "roles.master.env.PATH", "the image puts /opt/venv/bin first"
    ),
    _case("job: {env: {LD_LIBRARY_PATH: x}}\n", "4:13", "job.env.LD_LIBRARY_PATH", "CUDA's libraries"),
    _case("env:\n" + "".join(f"  A{n}: x\n" for n in range(1001)), "4:1", "env", "at most 1000 variables, found 1001"),
    _case("trainer: trainer.task\n", "4:10", "trainer.source", "there is no 'trainer.task' next to", in_schema=False),
    _case("trainer: [train.py]\n", "4:1", "trainer", "expected a mapping with source, module"),
    # Names in registries
    _case("registry: https://x.org/y\n", "4:11", "registry", "expected HOST/PATH", "remove https://"),
    _case("registry: ann:pw@x.org/y\n", "4:11", "registry", "the value is not shown", "docker login", in_schema=False),
    _case("registry: a/b/\n", "4:11", "registry", "without a '/' at either end, found 'a/b/'"),
    _case(
        "registry: us-docker.pkg.dev/p\n",
        "4:11",
        "registry",
        "expected LOCATION-docker.pkg.dev/PROJECT/REPO, found 'us-docker.pkg.dev/p'",
        "us-central1",
        in_schema=False,
    ),
    _case("registry: host:99999999/a\n", "4:11", "registry", "is not a registry host: expected HOST", in_schema=False),
    _case("registry: gcr.io\n", "4:11", "registry", "expected gcr.io/PROJECT, found 'gcr.io'", in_schema=False),
    _case(f"base: a:{LONG_TAG}\n", "4:7", "base", "is not a tag: expected 1 to 128", in_schema=False),
    _case("base: a@sha256:12\n", "4:7", "base", "'sha256:12' is not a digest"),
    _roles("roles: {master: {base: UP/x}}\n", "3:24", "roles.master.base", "not a repository path", in_schema=False),
    # Paths
    _case("requirements: /etc/passwd\n", "4:15", "requirements", "inside the spec's folder", "copy"),
    _case(
        "requirements: requirement.txt\n",
        "4:15",
        "requirements",
        "there is no 'requirement.txt' next to the spec",
        "did you mean requirements.txt?",
        in_schema=False,
    ),
    _case("requirements: trainer\n", "4:15", "requirements", "expected a file, found a folder", in_schema=False),
    _case(
        "trainer: {source: trianer}\n", "4:19", "trainer.source", "there is no 'trianer'", "trainer?", in_schema=False
    ),
    _case("trainer: .\n", "4:10", "trainer", "'.' has no task.py", "trainer: {source: FOLDER", in_schema=False),
    _case("trainer: {source: requirements.txt}\n", "4:19", "trainer.source", "expected a folder", in_schema=False),
    _case("trainer: {script: tsk.py}\n", "4:19", "trainer.script", "no trainer/tsk.py", "task.py?", in_schema=False),
    _case("trainer: {script: ../x.py}\n", "4:19", "trainer.script", "expected a file in", in_schema=False),
    _case("trainer: {module: a.b, script: c.py}\n", "4:32", "trainer.script", "a module and a script", in_schema=False),
    _case(
        "trainer: {module: trainer.tsk}\n",
        "4:19",
        "trainer.module",
        "there is no trainer/tsk.py",
        "did you mean trainer.task?",
        in_schema=False,
    ),
    _case(
        "template: templates/x.j2\n", "4:11", "template", "there is no 'templates' next to the spec", in_schema=False
    ),
    # Secrets
    _case(
        "env: {DB_PASSWORD: hunter2}\n",
        "4:20",
        "env.DB_PASSWORD",
        _HIDDEN,
        "env.DB_PASSWORD in allow_secrets",
        in_schema=False,
    ),
    _case(
        "env: {A: https://u:hunter2@h/x}\n",
        "4:10",
        "env.A",
        "a URL with a password, so it is not shown",
        "",
        in_schema=False,
    ),
    _case("env: {'https://u:hunter2@h/x': a}\n", "4:7", "env.(a secret)", "the key looks like a URL with a password"),
    _case("args: [--token, hunter2hunter2]\n", "4:17", "args[1]", _HIDDEN, in_schema=False),
    _case("args: [--api-key=hunter2]\n", "4:8", "args[0]", _HIDDEN, in_schema=False),
    _case("args: --password=hunter2\n", "4:7", "args", "expected a list, found a secret"),
    _case("job: {labels: {a: AKIAHUNTER2HUNTER2AB}}\n", "4:19", "job.labels.a", "an AWS access key", in_schema=False),
    _case('args: ["-----BEGIN RSA PRIVATE KEY-----"]\n', "4:8", "args[0]", "a private key", in_schema=False),
    _case("registry: https://u:hunter2@h/x\n", "4:11", "registry", "a URL with a password", in_schema=False),
)
