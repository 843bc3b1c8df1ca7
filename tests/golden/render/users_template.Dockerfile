# Made by imgtool: change the spec or its template, not this file.

FROM docker.io/library/python:3.11-slim-bookworm@sha256:3d51109efa94d44a06c5232bd6f9bf9a62210e714749563bb911359264e375d2 AS base

FROM base AS system
# A tool for reading what the trainer logs.
RUN printf '%s\n' cpu > /etc/variant

FROM system AS wheels
# hadolint ignore=DL3002
USER 0:0
RUN set -eu; \
    library="$(/usr/local/bin/python3.11 -IBSc 'import os; print(os.path.dirname(os.__file__))')"; \
    mkdir /stdlib; \
    { /usr/local/bin/python3.11 -I -B -m compileall -q -j 0 -x '/(?:(?:site|dist)-packages|tests?|idle_test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data)/|/sitecustomize\.py$' --invalidation-mode checked-hash "$library" >/dev/null || true; }; \
    find "$library" -name '*.pyc' -newer /stdlib -exec cp --parents -t /stdlib {} +
COPY wheels/cpu/ /wheels/
RUN set -eu; \
    mkdir -p /opt/venv/bin /opt/venv/lib/python3.11/site-packages; \
    ln -s /usr/local/bin/python3.11 /opt/venv/bin/python; \
    ln -s python /opt/venv/bin/python3; \
    ln -s python /opt/venv/bin/python3.11; \
    printf 'home = /usr/local/bin\ninclude-system-site-packages = false\nversion = 3.11\n' > /opt/venv/pyvenv.cfg; \
    /opt/venv/bin/python /wheels/installer/pip-24.3.1-py3-none-any.whl/pip --isolated --no-cache-dir --disable-pip-version-check install --quiet --no-index --no-deps --no-compile --no-warn-script-location --root-user-action=ignore --require-hashes --find-links /wheels -r /wheels/requirements.txt; \
    { /opt/venv/bin/python -m compileall -q -f -j 0 -x /tests/ --invalidation-mode unchecked-hash /opt/venv/lib/python3.11/site-packages >/dev/null || true; }

FROM system AS packages
# Bytecode of the standard library, which most bases lack; without it, each process compiles it again.
COPY --from=wheels /stdlib/ /
COPY --from=wheels /opt/venv /opt/venv
# Unbuffered, so that a job's log has each line when it is printed, and the last ones when the job is killed.
ENV PATH="/opt/venv/bin:$PATH" PYTHONUNBUFFERED=1

FROM packages AS image
COPY code/trainer/ /app/trainer/
WORKDIR /app
COPY code/extra/ /opt/extra/
ENV A="1"

ENV VARIANT="cpu"
LABEL dev.imgtool.tensorflow="2.15.1" \
      org.opencontainers.image.revision="0000000000000000000000000000000000000000" \
      org.opencontainers.image.title="mnist"
ENTRYPOINT ["/opt/venv/bin/dumb-init", "--single-child", "/opt/venv/bin/python", "-m", "trainer.task"]
