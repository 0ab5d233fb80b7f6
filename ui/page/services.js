// Services: a name of a network with an address of its own, and the containers behind it.

import { facts, h, panel, table } from "./dom.js";
import { by, plural, short, stateOf } from "./model.js";
import { command, grape, hostLink, network, none, several, state, to } from "./parts.js";

const idOf = (s) => `${s.network}/${s.name}`;
const sorted = (list) => [...(list ?? [])].sort(by(idOf));
const ready = (s) => (s.replicas ?? []).filter((r) => r.in).length;

/** healthOf is whether a service leads somewhere. */
function healthOf(s) {
  const all = s.replicas?.length ?? 0, n = ready(s);
  if (!all) return { mark: "bad", text: "no replica" };
  return { mark: n === all ? "ok" : n ? "warn" : "bad", text: `${n} of ${plural(all, "replica")}` };
}

/** dots are its replicas, one each: those that get connections are full. */
function dots(s) {
  const { mark, text } = healthOf(s), most = 24;
  return h("span.replicas", {}, (s.replicas ?? []).slice(0, most).map((r) => h("i", { class: r.in ? "ok" : "bad" })), h("span.state", { class: mark }, text));
}

const link = (data, s) => [grape(data, s.network), to("service", idOf(s), `${short(s.network)}/${s.name}`)];
const lines = (list) => h("div.lines", {}, (list ?? []).map((x) => h("span", {}, x)));

/** servicesOf is a panel of services, as long as there are any. */
export function servicesOf(data, list, title = "Services") {
  return list?.length > 0 && panel(title, h("ul.plain", {}, sorted(list).slice(0, 8).map((s) => h("li", {}, link(data, s), " ", h("span.mono", {}, `${s.addrs?.[0] ?? ""} ${s.ports.join(" ")}`), dots(s)))),
    list.length > 8 && h("p", {}, h("a", { href: "#/services" }, `and ${list.length - 8} more`)), command("grapevine service list"));
}

export const services = {
  title: "Services", needs: ["status", "networks", "services"],
  draw(data) {
    const all = sorted(data.services);
    return [h("h1", {}, all.length ? plural(all.length, "service") : "No services"),
      h("p", {}, all.length ? h("span.dim", {}, "Containers on its network call a service by its name; each new connection is led to one of its replicas.")
        : ["A service is one address for several containers. ", h("code", {}, "grapevine service create web --network blue --port 80:8080"), " makes one."]),
      all.length > 0 && table(["service", "address", "ports", "replicas", "notes"], all.map((s) => [
        link(data, s), h("span.mono", {}, lines(s.addrs)), h("span.mono", {}, lines(s.ports)), dots(s), lines(s.notes)])), command("grapevine service list")];
  },
};

export const service = {
  needs: ["status", "nodes", "networks", "services"],
  draw(data, { name }) {
    const s = data.services.find((s) => idOf(s) === name);
    if (!s) return none("No such service");
    const { mark, text } = healthOf(s);
    const labels = Object.entries(s.labels ?? {}).map(([k, v]) => `${k}=${v}`);
    return [h("h1", {}, s.name, " ", h("span.state", { class: mark }, text)),
      panel("", facts([["network", network(data, s.network)], ["addresses", h("span.mono", {}, (s.addrs ?? []).join(", "))], ["ports", h("span.mono", {}, s.ports.join(", "))],
        ["its replicas are", several([s.select && `what is called ${s.select}`, labels.length && `what has ${labels.join(", ")}`, !s.select && !labels.length && `what is called ${s.name}`].filter(Boolean))],
        ["affinity", s.affinity && "each container stays with one replica"], ["made on", s.author], ["notes", s.notes?.join("; ")]])),
      panel(text, s.replicas?.length ? table(["container", "new connections", "host", "address"], [...s.replicas].sort(by((r) => `${r.name} ${r.host}`)).map((r) => {
        const node = data.nodes.find((n) => n.name === r.host);
        return [to("container", r.endpoint, r.name), h("span.state", { class: r.in ? "ok" : "bad" }, r.in ? "gets them" : r.why || "none"),
          [hostLink(data, r.host), stateOf(node).mark !== "ok" && [" ", state(node)]], h("span.mono", {}, lines(r.addrs))];
      })) : h("p.dim", {}, `Nothing on ${short(s.network)} has that name or those labels: connections are refused.`)),
      command(`grapevine service show ${idOf(s)}`)];
  },
};
