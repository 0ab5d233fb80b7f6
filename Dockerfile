# A Debian that has what the plugin's root file system is made of, where apt cannot get it: scripts/build-plugin
# takes its programs and what these load (scripts/layout), and adds the agent.
FROM debian:trixie-slim
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openvswitch-switch iptables nftables kmod netbase
