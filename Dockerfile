# The image of a release: the npm package's files on Node. Nothing is written at run time but the spool of front-end reports,
# where one is configured, so the root file system may be read-only. No shell is needed: a base without one does as well.
ARG NODE_IMAGE=node:24.21.0-bookworm-slim
ARG RUNTIME_IMAGE=${NODE_IMAGE}

FROM ${NODE_IMAGE} AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
# With the tools of the release, which stay in this stage. No dependency that it needs has an install script; those that would
# run are someone else's code.
RUN npm ci --ignore-scripts
COPY .meshrc.yaml LICENSE CHANGELOG.md SECURITY.md ./
COPY release ./release
COPY src ./src
COPY resolvers ./resolvers
COPY test ./test
RUN node release/package.ts --folder
# Volumes are owned as the folder below them is.
RUN install -d -o 1000 -g 1000 /build/state/readout

FROM ${RUNTIME_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Readout" \
      org.opencontainers.image.description="Serves the /api/v2 monitoring read API over Elasticsearch, OpenSearch and Prometheus" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV NODE_ENV=production
# Without it, memory that large requests took is kept by the allocator's arenas, one for each thread.
ENV MALLOC_ARENA_MAX=2
WORKDIR /app
COPY --from=build /build/dist/readout ./
COPY --from=build /build/state /var/lib
# The user `node` of the usual base, by number: Kubernetes refuses names where it must not run as root.
USER 1000:1000
EXPOSE 8080
# The configuration must listen on 0.0.0.0:8080; another port, and `admin.listen`, need another health check.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:8080/livez').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "--max-semi-space-size=12", "--v8-pool-size=2", "--disable-warning=ExperimentalWarning", "/app/src/readout.js"]
CMD ["serve", "--config", "/etc/readout/readout.yaml"]
