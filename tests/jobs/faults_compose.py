"""Faults in a Compose file, each a change of one good file; test_compose_program.py asks Compose itself."""

from __future__ import annotations

GOOD = """\
name: train
services:
  chief:
    image: busybox
    command: [sh, -c, "echo 1"]
    environment: {A: "1"}
    depends_on: [ps]
    volumes: [data:/data]
    networks: [inside]
    ports: ["8080:80"]
    restart: "no"
    stop_grace_period: 10s
    healthcheck: {test: [CMD, "true"], interval: 5s}
    mem_limit: 4gb
    deploy: {replicas: 1, resources: {limits: {cpus: "0.5", memory: 4g}}}
  ps: {image: busybox}
volumes: {data: {}}
networks: {inside: {}}
"""
FAULTS: tuple[tuple[str, str, str], ...] = (  # what it is about, the text, and what stands there instead
    ("service key", "    restart:", "    restarts:"),
    ("top key", "volumes: {data", "volume: {data"),
    ("environment as text", 'environment: {A: "1"}', "environment: A=1"),
    ("environment of numbers", 'environment: {A: "1"}', "environment: [1]"),
    ("integers in command", '[sh, -c, "echo 1"]', "[sleep, 1]"),
    ("command as mapping", '[sh, -c, "echo 1"]', "{sh: 1}"),
    ("unknown dependency", "depends_on: [ps]", "depends_on: [nobody]"),
    ("condition", "depends_on: [ps]", "depends_on: {ps: {condition: started}}"),
    ("circle", "  ps: {image: busybox}", "  ps: {image: busybox, depends_on: [chief]}"),
    ("undefined volume", "data:/data", "other:/data"),
    ("undefined network", "networks: [inside]", "networks: [outside]"),
    ("undefined secret", "    ports:", "    secrets: [token]\n    ports:"),
    ("undefined config", "    ports:", "    configs: [token]\n    ports:"),
    ("relative target", "data:/data", "data:inside"),
    ("restart", 'restart: "no"', "restart: sometimes"),
    ("port", '"8080:80"', '"2222:22222222"'),
    ("port as text", '"8080:80"', '"a:b"'),
    ("memory", "mem_limit: 4gb", "mem_limit: 4gigs"),
    ("limit of memory", "memory: 4g}", "memory: much}"),
    ("limit of CPUs", 'cpus: "0.5"', "cpus: two"),
    ("grace period", "stop_grace_period: 10s", "stop_grace_period: 10"),
    ("interval", "interval: 5s", "interval: 5"),
    ("test of health", 'test: [CMD, "true"]', "test: {a: b}"),
    ("replicas", "replicas: 1", "replicas: many"),
    ("deploy key", "replicas: 1", "replica: 1"),
    ("network mode", "    networks: [inside]", "    networks: [inside]\n    network_mode: host"),
    ("service name", "  ps: {image", '  "p s": {image'),
    ("container name", "    ports:", "    container_name: a b\n    ports:"),
    ("extends nobody", "  ps: {image: busybox}", "  ps: {extends: {service: nobody}}"),
    ("no image", "  ps: {image: busybox}", "  ps: {command: [a]}"),
    ("services as list", "  ps: {image: busybox}", "  ps: [busybox]"),
    ("ports as text", '["8080:80"]', "8080"),
    ("shm_size", "    ports:", "    shm_size: big\n    ports:"),
    ("GPUs", 'cpus: "0.5", memory: 4g}}', 'cpus: "1"}, reservations: {devices: [{count: 1, capabilities: gpu}]}}'),
    ("devices", "    ports:", "    devices: gpu\n    ports:"),
    ("labels", "    ports:", "    labels: [{a: b}]\n    ports:"),
    ("privileged", "    ports:", "    privileged: [true]\n    ports:"),
)
AT_START = {"relative target", "restart"}  # which Compose passes on, and the engine refuses
TAKEN: tuple[tuple[str, str], ...] = (  # changes that Compose takes
    ('restart: "no"', "restart: on-failure:3"),
    ("depends_on: [ps]", "depends_on: {ps: {condition: service_started}}"),
    ("    ports:", "    x-own: {a: 1}\n    ports:"),
    ('environment: {A: "1"}', "environment: [A=1, B]"),
    ('environment: {A: "1"}', "environment: {A: 1, B: true, C: }"),
    ('["8080:80"]', "[80, '127.0.0.1:8081:81/udp', {target: 82, published: '8082'}]"),
    ("volumes: [data:/data]", "volumes: ['${D-data}:/d', {type: volume, source: '${E-data}', target: /e}]"),
    ("volumes: [data:/data]", "volumes: [./src:/src:ro, {type: bind, source: /tmp, target: /t}]"),
    ("mem_limit: 4gb", "mem_limit: 4294967296\n    shm_size: 1gb"),
    ("stop_grace_period: 10s", "stop_grace_period: 1m30s"),
    ("networks: [inside]", "networks: {inside: {aliases: [a]}}"),
    ("networks: [inside]", "networks: [default, inside]"),
    ('[sh, -c, "echo 1"]', '"echo 1"'),
    ("replicas: 1", "mode: replicated\n      , replicas: 2"),
    ("image: busybox\n    command", "build: {context: ., args: {A: 1}}\n    command"),
    ("    ports:", "    gpus: all\n    ports:"),
    ("    ports:", "    ulimits: {nofile: {soft: 1, hard: 2}, memlock: -1}\n    ports:"),
)
