# The product's image. tools/image packs the same one without Docker, for tests; tests/image holds the two together.
#   docker build --build-arg VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) --build-arg REVISION=$(git rev-parse HEAD) --tag bmq:VERSION .
FROM debian:bookworm-slim AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log \
    && echo "bmq:x:10001:10001:bmq:/tmp:/usr/sbin/nologin" >>/etc/passwd \
    && echo "bmq:x:10001:" >>/etc/group

FROM base AS build
ARG UV_VERSION=0.13.9
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && python3 -m venv /build/uv \
    && /build/uv/bin/pip install --quiet --disable-pip-version-check uv==$UV_VERSION
WORKDIR /build
# Dependencies change seldom: a layer of their own.
COPY requirements-runtime.lock ./
RUN /build/uv/bin/uv pip install --quiet --no-cache --no-deps --python /usr/bin/python3 --target /opt/bmq/dependencies \
        --require-hashes --only-binary :all: --requirements requirements-runtime.lock \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/bmq/dependencies
COPY core core
COPY admin admin
COPY resources resources
COPY audit audit
COPY backup backup
COPY services/controller services/controller
COPY services/broker services/broker
COPY services/proxy services/proxy
COPY node node
COPY databus databus
COPY cli cli
COPY operator operator
RUN /build/uv/bin/uv pip install --quiet --no-cache --no-deps --no-sources --python /usr/bin/python3 --target /opt/bmq/packages \
        ./core ./admin ./resources ./audit ./backup ./services/controller ./services/broker ./services/proxy ./node ./databus ./cli ./operator \
    && rm -rf /opt/bmq/packages/bin /opt/bmq/packages/.lock \
    && rm /opt/bmq/packages/*.dist-info/direct_url.json /opt/bmq/packages/*.dist-info/uv_cache.json \
    && sed -i '/direct_url.json\|uv_cache.json/d' /opt/bmq/packages/*.dist-info/RECORD \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/bmq/packages
ARG VERSION=unknown
COPY tools/packed_image/sbom.py ./
COPY --from=base /usr/lib/os-release debian/etc/os-release
COPY --from=base /var/lib/dpkg/status debian/var/lib/dpkg/status
RUN mkdir -p /usr/share/doc/bmq \
    && python3 sbom.py --version "$VERSION" --python /opt/bmq/dependencies --debian debian >/usr/share/doc/bmq/sbom.cdx.json

FROM base
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="bmq" \
      org.opencontainers.image.description="A message queue that speaks the Kafka protocol and keeps its data in object storage" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /opt/bmq/dependencies /opt/bmq/dependencies
COPY --from=build /opt/bmq/packages /opt/bmq/packages
COPY --from=build /usr/share/doc/bmq /usr/share/doc/bmq
COPY LICENSE /usr/share/doc/bmq/LICENSE
COPY tools/rootfs /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/bmq/packages:/opt/bmq/dependencies \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp
WORKDIR /tmp
USER 10001:10001
ENTRYPOINT ["bmq"]
