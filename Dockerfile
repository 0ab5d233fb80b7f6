# The plugin's root file system, but for the agent and the entry point, which
# scripts/build-plugin adds. (Without this image, that script uses debootstrap.)
FROM debian:trixie-slim AS debian
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openvswitch-switch iptables kmod
COPY scripts/plugin-layout /
RUN sh /plugin-layout /plugin-rootfs

FROM scratch
COPY --from=debian /plugin-rootfs /
