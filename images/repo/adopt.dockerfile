# Make a repository's own image fit for a leaf: Python for the entry point, git, the host's certificates.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER root
COPY adopt.sh install_ca.py ca.pem /school/build/
RUN sh /school/build/adopt.sh && rm -rf /school/build
WORKDIR /workspace
ENTRYPOINT []
CMD ["/bin/sh"]
