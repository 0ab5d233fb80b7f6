// Where the cluster ends: who comes in from outside, and with which address its networks leave.

import { h, panel, table } from "./dom.js";
import { by, clock, containers, port, stateOf } from "./model.js";
import { command, hostLink, network, several, state, to } from "./parts.js";

const hostState = (data, name) => {
  const node = data.nodes.find((n) => n.name === name);
  if (!node) return name;
  return [hostLink(data, name), stateOf(node).mark !== "ok" && [" ", state(node)]];
};

const heard = (c) => {
  if (c.lost) return h("span.state.bad", {}, c.lost);
  if (!c.here) return h("span.dim", {}, `host ${c.host} knows`);
  return c.seen ? h("span.state.ok", {}, `${clock(c.seen)}${c.at ? `, from ${c.at}` : ""}`) : h("span.state", {}, "never");
};

const holder = (data, e) => (e.holder ? hostState(data, e.holder) : h("span.state.bad", {}, "nobody: nothing of its networks leaves"));
const gateway = (e, g) => h("span.chip", { "aria-current": g.host === e.holder && "true" }, g.host, !g.known ? ": there is no such host" : !g.alive && ": does not answer");

/** labelled says which containers leave by an egress, if not all of its networks do. */
const labelled = (e) => e.labels?.length ? h("span.dim", {}, ` with ${e.labels.join(" and ")}`) : null;

/** waysOf is a panel of some clients and egress addresses, as long as there are any. */
export function waysOf(data, clients = [], egresses = [], title = "In and out") {
  if (!clients.length && !egresses.length) return null;
  return panel(title, h("ul.plain", {},
    clients.slice(0, 8).map((c) => h("li", {}, h("b", {}, c.name), h("span.dim", {}, " comes in at "), hostLink(data, c.host), h("span.dim", {}, " to "), network(data, c.network), " ", heard(c))),
    egresses.slice(0, 8).map((e) => h("li", {}, several(e.networks.map((n) => network(data, n))), labelled(e), h("span.dim", {}, e.networks.length > 1 ? " leave as " : " leaves as "), h("b.mono", {}, (e.addrs ?? []).join(", ")), h("span.dim", {}, e.holder ? " by " : " "), holder(data, e)))),
    h("p.command", {}, h("a", { href: "#/edges" }, "All ways in and out")));
}

export const inAndOut = {
  title: "In and out", needs: ["status", "nodes", "networks", "containers?published", "?clients", "?egresses"],
  draw(data) {
    const clients = [...(data.clients ?? [])].sort(by((c) => c.name)), egresses = [...(data.egresses ?? [])].sort(by((e) => e.name));
    const published = containers(data.containers.endpoints.filter((e) => e.ports?.length));
    return [h("h1", {}, "In and out"), h("p.dim", {}, "Who comes in from outside, and with which address networks leave."),
      panel("Clients: laptops and phones", clients.length
        ? table(["client", "network", "address", "comes in at", "heard"], clients.map((c) => [c.name, network(data, c.network), h("span.mono", {}, (c.addrs ?? []).join(", ")), hostState(data, c.host), heard(c)]))
        : h("p", {}, "None. ", h("code", {}, "grapevine client add laptop --network blue"), " lets one in, by WireGuard."), command("grapevine client list")),
      panel("Egress addresses", egresses.length
        ? table(["egress", "networks", "leave as", "held by", "in this order", "notes"], egresses.map((e) => [e.name, h("div.lines", {}, e.networks.map((n) => h("span", {}, network(data, n))), labelled(e)), h("span.mono", {}, (e.addrs ?? []).join(", ")), holder(data, e),
          (e.gateways ?? []).map((g) => [gateway(e, g), " "]), [e.quorum && h("p", {}, "only with a quorum"), (e.notes ?? []).map((n) => h("p", {}, n))]]))
        : h("p", {}, "None: each host's containers leave with its own address. ", h("code", {}, "grapevine egress create mail --network blue --address 192.0.2.25"), " gives networks one."), command("grapevine egress list")),
      panel(`Published ports of ${data.status.name}`, published.length
        ? table(["port", "container", "network"], published.flatMap((c) => c.places.map((p) => [h("div.lines.mono", {}, p.ports.map((x) => h("span", {}, port(x)))), to("container", c.id, c.name), network(data, p.network)])))
        : h("p.dim", {}, "None."), h("p.dim", {}, "Other hosts know theirs."), command("grapevine ps"))];
  },
};
