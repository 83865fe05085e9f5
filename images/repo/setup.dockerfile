# A repository's dependencies. The tree of base_sha lies at /workspace while the setup commands run, and is gone
# afterwards: a leaf mounts its own worktree there. What is installed elsewhere stays.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT
ARG NPM_CONFIG_REGISTRY
ARG GOPROXY
ARG GOSUMDB
USER root
ENV GOPATH=/opt/school/go GOTOOLCHAIN=local CARGO_HOME=/opt/school/cargo \
    PATH=${PATH}:/opt/school/home/.local/bin:/opt/school/go/bin:/opt/school/cargo/bin
COPY packages.sh packages.txt /school/build/
RUN sh /school/build/packages.sh /school/build/packages.txt
COPY setup.json run_setup.py /school/build/
ADD tree.tar /workspace/
WORKDIR /workspace
RUN "$(test -x /school/bin/python3 && echo /school/bin/python3 || echo python3)" /school/build/run_setup.py \
 && rm -rf /school/build
# A leaf has no network: cargo and go shall not wait for it.
ENV CARGO_NET_OFFLINE=true GOPROXY=off
