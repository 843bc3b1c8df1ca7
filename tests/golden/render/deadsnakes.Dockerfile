# Made by imgtool: change the spec or its template, not this file.

FROM docker.io/nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04@sha256:1868f4fdb1f2f5d88fd13a833fd7522e2fa3d0ffb9f3772a63f6edbe1406639d AS base

FROM base AS system
# Some CUDA images leave out the folder into which a node mounts its driver, and TensorFlow and cuDNN look into some
# folders of NVIDIA's wheels only: without them, images see no GPU.
ENV LD_LIBRARY_PATH="/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/usr/local/cuda/lib64"
# The base is pinned by its digest. Versions are not: a distribution keeps only its newest ones.
# hadolint ignore=DL3008
RUN set -eu; \
    export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install --yes --no-install-recommends ca-certificates; \
    /usr/lib/apt/apt-helper download-file \
        "https://keyserver.ubuntu.com/pks/lookup?op=get&search=0xF23C5A6CF475977595C89F51BA6932366A755776" \
        /etc/apt/trusted.gpg.d/deadsnakes.asc; \
    codename="$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)"; \
    echo "deb [signed-by=F23C5A6CF475977595C89F51BA6932366A755776] https://ppa.launchpadcontent.net/deadsnakes/ppa/ubuntu $codename main" \
        > /etc/apt/sources.list.d/deadsnakes.list; \
    apt-get update; \
    apt-get install --yes --no-install-recommends \
        python3.9 \
        python3.9-distutils; \
    /usr/bin/python3.9 -c 'import ctypes; [ctypes.CDLL(name) for name in ["libcudart.so.11.0", "libcudnn.so.8"]]'; \
    apt-get clean; \
    rm -rf /var/lib/apt/lists/* /var/log/apt/* /var/log/dpkg.log /var/log/alternatives.log \
        /var/cache/ldconfig/aux-cache

FROM system AS wheels
# hadolint ignore=DL3002
USER 0:0
RUN set -eu; \
    library="$(/usr/bin/python3.9 -IBSc 'import os; print(os.path.dirname(os.__file__))')"; \
    mkdir /stdlib; \
    { /usr/bin/python3.9 -I -B -m compileall -q -j 0 -x '/(?:(?:site|dist)-packages|tests?|idle_test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data)/|/sitecustomize\.py$' --invalidation-mode checked-hash "$library" >/dev/null || true; }; \
    find "$library" -name '*.pyc' -newer /stdlib -exec cp --parents -t /stdlib {} +
COPY wheels/gpu/ /wheels/
RUN set -eu; \
    mkdir -p /opt/venv/bin /opt/venv/lib/python3.9/site-packages; \
    ln -s /usr/bin/python3.9 /opt/venv/bin/python; \
    ln -s python /opt/venv/bin/python3; \
    ln -s python /opt/venv/bin/python3.9; \
    printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.9\n' > /opt/venv/pyvenv.cfg; \
    /opt/venv/bin/python /wheels/installer/pip-24.3.1-py3-none-any.whl/pip --isolated --no-cache-dir --disable-pip-version-check install --quiet --no-index --no-deps --no-compile --no-warn-script-location --root-user-action=ignore --require-hashes --find-links /wheels -r /wheels/requirements.txt; \
    { /opt/venv/bin/python -m compileall -q -f -j 0 -x /tests/ --invalidation-mode unchecked-hash /opt/venv/lib/python3.9/site-packages >/dev/null || true; }

FROM system AS packages
# Bytecode of the standard library, which most bases lack; without it, each process compiles it again.
COPY --from=wheels /stdlib/ /
COPY --from=wheels /opt/venv /opt/venv
# Unbuffered, so that a job's log has each line when it is printed, and the last ones when the job is killed.
ENV PATH="/opt/venv/bin:$PATH" PYTHONUNBUFFERED=1

FROM packages AS image
COPY code/trainer/ /app/trainer/
WORKDIR /app
LABEL dev.imgtool.tensorflow="2.10.1" \
      org.opencontainers.image.revision="0000000000000000000000000000000000000000" \
      org.opencontainers.image.title="mnist"
ENTRYPOINT ["/opt/venv/bin/dumb-init", "--single-child", "/opt/venv/bin/python", "-m", "trainer.task"]
LABEL dev.imgtool.key="0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
