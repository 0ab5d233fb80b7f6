# The root file system of the managed plugin; scripts/build-plugin builds it and
# makes the plugin. bin/grapevine is built beforehand (make build).
FROM debian:trixie-slim
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openvswitch-switch iptables kmod \
 && rm -rf /var/lib/apt/lists/*
COPY scripts/plugin-layout /tmp/
RUN sh /tmp/plugin-layout / && rm /tmp/plugin-layout
COPY scripts/plugin-entrypoint /usr/libexec/grapevine-plugin
COPY bin/grapevine /usr/bin/grapevine
ENTRYPOINT ["/usr/libexec/grapevine-plugin"]
