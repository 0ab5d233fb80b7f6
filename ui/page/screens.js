// The screens: each is made from the answers that it names in `needs` ("?" before those that it can do without; a function
// makes one of the address), and from the address. A screen asks for what it shows, and not for all that there is.

import { dropped, drops, dropsOf } from "./dropped.js";
import { inAndOut, waysOf } from "./edges.js";
import { facts, h, panel, table, words } from "./dom.js";
import { by, bytes, clock, containers, counted, plural, policyOf, port, short, stateOf, within, wrapped } from "./model.js";
import { ask, command, grape, hostLink, MOST, network, none, several, state, to } from "./parts.js";
import { service, services, servicesOf } from "./services.js";
import { trellis } from "./trellis.js";

function health(data) {
  const { status: s, kinds } = data;
  const n = s.problems?.length ?? 0;
  const bad = n > 0 && s.problems.some((p) => p.severity !== "warning");
  return h("section.panel.health", { class: n === 0 ? "ok" : bad ? "bad" : "warn" },
    h("div.verdict", {}, h("h1", {}, n === 0 ? "All is well" : `Not well: ${plural(n, "problem")}`), s.name && h("p.dim", {}, `as ${s.name} sees it`)),
    s.node && h("div.counts", {}, [[`${s.hosts.part} of ${s.hosts.all}`, "hosts", "hosts"], [s.networks, "networks", "networks"], [data.map ? data.map.containers : s.endpoints.all, "containers", "containers"]]
      .map(([count, what, where]) => h("a", { href: `#/${where}` }, h("b", {}, count), what))),
    n > 0 && h("ol.problems", {}, s.problems.map((p) => {
      const kind = kinds.find((k) => k.code === p.code);
      return h("li", { class: p.severity }, h("b", {}, words(p.what)),
        p.do && h("p", {}, "To do: ", words(p.do)),
        h("details", {}, h("summary", {}, h("code", {}, p.code), p.severity === "warning" && " warning"),
          kind && h("p", {}, `It means: ${kind.means}. What comes first: `, words(kind.do), ".")));
    })),
    s.notes?.length > 0 && h("ul.notes", {}, s.notes.map((t) => h("li", {}, words(t)))));
}

const overview = {
  title: "Overview", needs: ["status", "kinds", ({ query }) => `?map?page=${Number(query.get("page") ?? 1)}`, "?networks", "?drops", "?services", "?clients", "?egresses"],
  draw(data, { width }) {
    const ready = data.map && data.networks;
    if (ready) data.nodes = data.map.hosts;
    return [health(data),
      ready && data.networks.length === 0 && panel("No network yet", h("p", {}, "Make one, on any host: ", h("code", {}, `docker network create -d ${data.status.driver || "grapevine"} --ipam-driver ${data.status.driver || "grapevine"} blue`))),
      ready && panel("Who is where", trellis(data, width - 34)),
      h("div.tiles", {}, ready && servicesOf(data, data.services), ready && waysOf(data, data.clients, data.egresses), ready && drops(data),
        panel("This host", facts([
          ["host", data.status.name], ["cluster", data.status.cluster], ["underlay", data.status.node && `${data.status.vtep}, MTU ${data.status.mtu}, ${wrapped(data.status)}`],
          ["switch", data.status.ovs && `${data.status.ovs} Open vSwitch, ${data.status.datapath} datapath`], ["fast path", data.status.fastPath],
          ["names", data.status.node && `${plural(data.status.names.queries, "question")}, ${data.status.names.answered.toLocaleString("en")} answered here`], ["agent", data.status.version],
        ]), h("p", {}, h("a.act", { href: "#/doctor" }, "Look for causes"), h("span.dim", {}, " takes seconds, sends packets to all hosts"))))];
  },
};

const doctor = {
  title: "Doctor", needs: ["doctor"], once: true,
  draw({ doctor: d }) {
    return [h("h1", {}, `What was looked at, on ${d.name}`), h("p.dim", {}, "What is wrong comes first."),
      table(["verdict", "what", "found", "to do"], d.checks.map((c) => h("tr", {}, h("td", {}, h("span.state", { class: { ok: "ok", wrong: "bad" }[c.verdict] ?? "warn" }, c.verdict)),
        h("td", {}, c.check), h("td.text", {}, words(c.what), c.code && [" ", h("code", {}, c.code)]), h("td.text", {}, words(c.do ?? ""))))), command("grapevine doctor")];
  },
};

const list = {
  title: "Containers", needs: ["status", "nodes", "networks", ({ query }) => ask("containers", { find: query.get("find") }), "?services", "?clients"],
  draw(data, { query }) {
    const wanted = query.get("find") ?? "";
    const { all, found, endpoints } = data.containers, some = containers(endpoints);
    return [h("h1", {}, wanted ? `${found} of ${plural(all, "container")} with ${wanted}` : plural(all, "container")),
      wanted && h("p", {}, h("a", { href: "#/containers" }, "all")),
      wanted && besides(data, wanted.toLowerCase().split(/\s+/)),
      table(["container", "network", "address", "host", "ports"], some.map((c) => [
        to("container", c.id, c.name), h("div.lines", {}, c.places.map((p) => h("span", {}, network(data, p.network)))), h("div.lines.mono", {}, c.places.map((p) => h("span", {}, p.addrs.join(", ")))),
        [hostLink(data, c.host), stateOf(data.nodes.find((n) => n.name === c.host)).mark !== "ok" && [" ", state(data.nodes.find((n) => n.name === c.host))]],
        h("span.mono", {}, c.places.flatMap((p) => p.ports ?? []).map(port).join(" "))])),
      found > some.length && h("p", {}, `${(found - some.length).toLocaleString("en")} more: find those that you want by a name, network, host or address.`), command("grapevine ps")];
  },
};

/** besides are services and clients that are found beside containers. */
function besides(data, wanted) {
  const has = (...text) => wanted.every((w) => text.join("\n").toLowerCase().includes(w));
  const found = [...(data.services ?? []).filter((s) => has(s.network, s.name, s.addrs, s.ports)).map((s) => [s.network, `#/service/${encodeURIComponent(`${s.network}/${s.name}`)}`, `service ${s.name}`]),
    ...(data.clients ?? []).filter((c) => has(c.network, c.name, c.addrs, c.host)).map((c) => [c.network, "#/edges", `client ${c.name}`])];
  return found.length > 0 && h("p.cloud", {}, found.slice(0, 40).map(([on, href, text]) => [h("a.chip", { href }, grape(data, on), text), " "]));
}

const container = {
  needs: ["status", "nodes", "networks", "names", ({ name }) => ask("container", { id: name }), "policies", "?drops", "?services"],
  draw(data) {
    const [c] = containers(data.container.endpoints), neighbours = data.container.neighbours ?? [];
    if (!c) return none("No such container");
    const host = data.nodes.find((n) => n.name === c.host);
    const lost = dropsOf(data, c);
    const about = data.policies.policies.filter((p) => !p.network || c.places.some((q) => q.network === p.network));
    return [h("h1", {}, c.name, " ", state(host)),
      panel("", facts([["id", h("code", {}, c.id.slice(0, 12))], ["host", hostLink(data, c.host)]]),
        c.places.map((p) => [h("h2.place", {}, network(data, p.network)), facts([
          ["addresses", h("span.mono", {}, [...p.addrs, ...(p.link_local ?? [])].join(", "))], ["MAC", h("span.mono", {}, p.mac)],
          ["answers to", several([c.name, ...(p.aliases ?? [])])], ["shared names", p.shared?.length && `containers of other hosts answer to ${p.shared.join(", ")} too`],
          ["published ports", h("span.mono", {}, (p.ports ?? []).map(port).join(" ")).textContent || (p.here ? "none" : "its own host says")],
          ["sends at most", p.egress], ["gets at most", p.ingress]])])),
      panel("May it reach ...", tracer(data, { from: `${c.places[0].network}/${c.name}` }), h("p.dim", {}, "Policies, networks, hosts and the tunnel, both ways.")),
      panel("Policies of its networks", about.length ? h("ul", {}, about.map((p) => h("li", {}, to("policy", policyId(p), p.network ? `${short(p.network)}/${p.name}` : p.name), h("span.dim", {}, ` ${p.kind}`)))) : h("p.dim", {}, "None: all on its networks may talk to it.")),
      panel("On the same networks: what is in the way to ...", neighbours.length ? h("p.cloud", {}, neighbours.map((o) => [h("a.chip", { href: `#/trace?from=${encodeURIComponent(`${o.network}/${c.name}`)}&to=${encodeURIComponent(`${o.network}/${o.name}`)}` }, grape(data, o.network), o.name), " "])) : h("p.dim", {}, "Nobody else.")),
      servicesOf(data, (data.services ?? []).filter((s) => s.replicas?.some((r) => c.places.some((p) => p.id === r.endpoint))), "Services it is behind"),
      lost.length > 0 && drops(data, lost, `Of its packets ${data.status.name}'s switch drops`), command(`grapevine show ${c.name}`)];
  },
};

const networks = {
  title: "Networks", needs: ["status", "networks"],
  draw(data) {
    return [h("h1", {}, plural(data.networks.length, "network")),
      table(["network", "VNID", "subnets", "containers", "hosts", "notes"], [...data.networks].sort(by((n) => n.name)).map((n) => [
        network(data, n.name), n.vnid, h("span.mono", {}, n.subnets.map((s) => s.prefix).join(", ")), h("a", { href: `#/containers?find=${encodeURIComponent(short(n.name))}` }, n.endpoints),
        n.hostCount, several([n.vnid === 0 && "reaches all", n.internal && "internal", (n.encrypted || n.encryption) && "encrypted", n.removed && "goes when unused", n.notes?.length && plural(n.notes.length, "note")].filter(Boolean))])), command("grapevine networks")];
  },
};

/** cloud is containers, some by name. */
function cloud({ found, endpoints }) {
  const some = containers(endpoints);
  return panel(plural(found, "container"), h("p.cloud", {}, some.map((c) => [h("a.chip", { href: `#/container/${c.id}` }, c.name), " "])), found > some.length && `and ${(found - some.length).toLocaleString("en")} more`);
}

const aNetwork = {
  needs: ["status", "nodes", "networks", ({ name }) => ask("containers", { network: name }), ({ name }) => ask("leased", { network: name }), "ring", "?services", "?clients", "?egresses"],
  draw(data, { name }) {
    const n = data.networks.find((n) => n.name === name);
    if (!n) return none("No such network");
    return [h("h1", {}, grape(data, name), short(n.name)),
      panel("", facts([["VNID", n.vnid === 0 ? "0: it reaches all networks, and they reach it" : n.vnid], ["subnets", n.subnets.map((s) => h("div", {}, h("span.mono", {}, s.prefix), ` gateway `, h("span.mono", {}, s.gateway)))],
        ["internal", n.internal && "nothing leads out of it"], ["encrypted", n.encryption], ["MTU", n.mtu], ["here", n.here ? "this host's Docker has it" : "this host's Docker has it not, or not yet"],
        ["removed", n.removed && "it goes when no host uses it"], ["notes", n.notes?.join("; ")], ["hosts", [several([...n.hosts].sort().map((x) => hostLink(data, x))), n.hostCount > n.hosts.length && ` and ${n.hostCount - n.hosts.length} more`]]])),
      servicesOf(data, data.services?.filter((s) => s.network === name)),
      waysOf(data, data.clients?.filter((c) => c.network === name), data.egresses?.filter((e) => e.networks.includes(name))),
      panel("Addresses", data.ring.filter((p) => p.network === name).map((p) => pool(data, p))),
      cloud(data.containers),
      command(`grapevine show ${short(n.name)}`)];
  },
};

const hosts = {
  title: "Hosts", needs: ["status", "nodes", "counts"],
  draw(data, { query }) {
    const wanted = query.get("find") ?? "", sick = (n) => (stateOf(n).mark === "ok" ? 1 : 0);
    const found = data.nodes.filter((n) => `${n.name}\n${n.vtep}\n${n.version}`.toLowerCase().includes(wanted.toLowerCase())).sort((a, b) => sick(a) - sick(b) || by((n) => n.name)(a, b));
    return [h("h1", {}, wanted ? `${found.length} of ${plural(data.nodes.length, "host")} with ${wanted}` : plural(data.nodes.length, "host")), h("p.dim", {}, `The path is that between ${data.status.name} and the host: a packet of containers', both ways. What is not well comes first.`),
      table(["host", "state", "path", "address", "MTU", "containers", "datapath", "agent"], found.slice(0, MOST).map((n) => [
        to("host", n.id, n.name), state(n), n.self ? "" : n.path || "not known", h("span.mono", {}, n.vtep), n.mtu,
        h("a", { href: `#/containers?find=${encodeURIComponent(n.name)}` }, data.counts[n.name] ?? 0), n.datapath, n.version])),
      found.length > MOST && h("p", {}, `${(found.length - MOST).toLocaleString("en")} more.`), command("grapevine nodes")];
  },
};

const aHost = {
  needs: ["status", "nodes", "networks", "ring", ({ name }) => ask("containers", { hostid: name }), "?clients", "?egresses"],
  draw(data, { name }) {
    const n = data.nodes.find((n) => n.id === name);
    if (!n) return none("No such host");
    return [h("h1", {}, n.name, " ", state(n)),
      panel("", facts([["id", h("code", {}, n.id)], ["path from here", n.self ? null : n.path || "not known"], ["address", h("span.mono", {}, `${n.vtep}, ${wrapped(n)}`)], ["gossip", h("span.mono", {}, n.gossip)],
        ["MTU", n.mtu], ["datapath", n.datapath], ["agent", n.version], ["networks", several([...new Set(data.containers.endpoints.map((e) => e.network))].sort().map((w) => network(data, w)))]])),
      waysOf(data, data.clients?.filter((c) => c.host === n.name), data.egresses?.filter((e) => e.holder === n.name)),
      panel("What it owns of the addresses", table(["of", "prefix", "part"], data.ring.flatMap((p) => p.shares.filter((s) => s.node === n.id).map((s) => [p.network ? network(data, p.network) : "the cluster", h("span.mono", {}, p.prefix), `${(100 * s.part).toFixed(1)}%`])))),
      cloud(data.containers),
      command(`grapevine show ${n.name}`)];
  },
};

const OWNERS = 24; // of a prefix, each with its name; the rest are drawn together

/** pool is a bar of a prefix: who owns which part, and a line where containers have addresses. */
function pool(data, p) {
  const index = new Map([...data.nodes].sort(by((n) => n.name)).map((n, i) => [n.id, 1 + (i % 6)]));
  const W = 1000, all = [...p.shares].sort((a, b) => b.part - a.part), named = all.slice(0, OWNERS), others = all.slice(OWNERS);
  const blocks = (shares) => shares.flatMap((s) => s.blocks.map((b) => ({ s, at: within(b, p.prefix) })).filter((b) => b.at));
  const together = new Map(); // by colour
  for (const { s, at: [from, end] } of blocks(others)) {
    const n = index.get(s.node) ?? 6;
    together.set(n, `${together.get(n) ?? ""}M${(from * W).toFixed(2)} 0h${Math.max(0.6, (end - from) * W).toFixed(2)}v26h-${Math.max(0.6, (end - from) * W).toFixed(2)}z`);
  }
  const at = data.leased.find((l) => l.prefix === p.prefix && p.network)?.at ?? [];
  return h("figure.pool", {}, h("figcaption", {}, p.network ? network(data, p.network) : "the cluster", " ", h("span.mono", {}, p.prefix)),
    h("svg:svg", { viewBox: `0 0 ${W} 26`, preserveAspectRatio: "none", role: "img", "aria-label": named.map((s) => `${s.host} ${(100 * s.part).toFixed(1)}%`).join(", ") },
      blocks(named).map((b) => h("svg:rect.share", { class: `n${index.get(b.s.node) ?? 6}`, x: b.at[0] * W, width: Math.max(0.6, (b.at[1] - b.at[0]) * W), height: 26 }, h("svg:title", {}, `${b.s.host}: ${b.s.blocks.join(", ")}`))),
      [...together].map(([n, d]) => h("svg:path.share", { class: `n${n}`, d })),
      at.length > 0 && h("svg:path.leased", { d: at.map((x) => `M${((x * W) / 1000).toFixed(2)} 15v11`).join("") })),
    h("p.legend", {}, named.map((s) => h("span", {}, h("i", { class: `grape n${index.get(s.node) ?? 6}` }), `${s.host} ${(100 * s.part).toFixed(1)}%`)),
      others.length > 0 && h("span", {}, `and ${plural(others.length, "host")} with ${(100 * others.reduce((n, s) => n + s.part, 0)).toFixed(1)}%`)));
}

const POOLS = 20; // on one screen
const addresses = {
  title: "Addresses", needs: ["status", "nodes", "networks", "leased", "ring"],
  draw(data) {
    return [h("h1", {}, "Who owns which addresses"), h("p.dim", {}, "A host hands out what it owns, and nothing else. A line is where containers have addresses."),
      panel("", data.ring.slice(0, POOLS).map((p) => pool(data, p)), data.ring.length > POOLS && h("p", {}, `${data.ring.length - POOLS} more: each network's screen has its own.`)), command("grapevine ring")];
  },
};

const policyId = (p) => (p.network ? `${p.network}/${p.name}` : p.name);

function onePolicy(data, p, open = false) {
  return h("section.panel", {}, h("h2", {}, p.network && grape(data, p.network), to("policy", policyId(p), p.network ? `${short(p.network)}/${p.name}` : p.name), h("span.dim", {}, ` ${p.kind}`)),
    facts([["is about", p.maySelect ? `${plural(p.selects, "container")}, and ${p.maySelect} of unknown labels` : plural(p.selects, "container")], ["applied on", `${p.author}, version ${p.version}`],
      ["mode", (p.mode === "try" && "only tried: nothing is denied by it") || (p.mode === "ignored" && "not enforced by this host")],
      ["would deny", p.mode === "try" && p.counted && `${plural(p.counted.wouldDeny, "connection")} so far, on this host`],
      ["on this host", p.mode !== "try" && p.counted && `let ${plural(p.counted.connections, "connection")} begin (${plural(p.counted.packets, "packet")}), denied ${plural(p.counted.deniedPackets, "packet")}`], ["notes", p.notes?.join("; ")],
      ["lost", p.lost?.length && `an edit of it was lost: grapevine policy get --lost ${policyId(p)}`]]),
    h("details", { open }, h("summary", {}, "YAML"), h("pre", { tabindex: "0" }, p.text)));
}

const policy = {
  needs: ["status", "policies", "networks", "names", "?drops"],
  draw(data, { name }) {
    const p = data.policies.policies.find((p) => policyId(p) === name);
    if (!p) return none("No such policy");
    const denied = (data.drops ?? []).filter((d) => d.rule && policyOf(d.rule) === name);
    return [h("h1", {}, "Policy ", name), onePolicy(data, p, true), drops(data, denied, "What its rules deny"), panel("May one reach another?", tracer(data, {})), command(`grapevine policy get ${name}`)];
  },
};

const policies = {
  title: "Policies", needs: ["status", "policies", "networks", "names"],
  draw(data) {
    const { policies: all, notes } = data.policies;
    return [h("h1", {}, all?.length ? plural(all.length, "polic").replace(/polic(s?)$/, (_, s) => (s ? "policies" : "policy")) : "No policies"),
      !all?.length && h("p", {}, "All containers of a network may talk to each other. ", h("code", {}, "grapevine policy allow web db:5432"), " writes one; docs/use/policy.md has recipes."),
      notes?.length > 0 && h("ul.notes", {}, notes.map((n) => h("li", {}, n))),
      (all ?? []).map((p) => onePolicy(data, p)),
      panel("May one reach another?", tracer(data, {})), command("grapevine policy list")];
  },
};

/** tracer asks for two ends. */
function tracer(data, { from = "", to = "" }) {
  const names = data.names ?? [];
  return h("form.tracer", { "data-do": "trace" },
    h("label", {}, "from ", h("input", { name: "from", value: from, required: true, placeholder: "web", list: names.length > 0 && "names", autocomplete: "off", spellcheck: "false" })),
    h("label", {}, "to ", h("input", { name: "to", value: to, required: true, placeholder: "db:5432", list: names.length > 0 && "names", autocomplete: "off", spellcheck: "false" })),
    h("button", {}, "Trace"),
    names.length > 0 && h("datalist", { id: "names" }, names.map((value) => h("option", { value }))));
}

const peer = (data, p) => [h("b", {}, p.name || p.addr), p.host && h("small", {}, [` ${p.addr} on ${short(p.network)}, host `, p.host])];
const rule = (r) => h("li", {}, h("code", {}, policyOf(r.rule) ? to("policy", policyOf(r.rule), r.rule) : r.rule), ` ${r.action}`, r.author && `, applied on ${r.author}`);

function decision(what, d) {
  return h("li", { class: d.allowed ? "ok" : "bad" }, h("b", {}, what), h("p", {}, d.why),
    h("ul", {}, (d.passed ?? []).map(rule), (d.rules ?? []).map(rule), (d.unknown ?? []).map((u) => h("li", {}, `not known: ${u}`))));
}

const echo = (name, e) => h("li", { class: e.lost ? "bad" : "ok" }, h("b", {}, name), h("p", {}, e.lost ? `${e.bytes} bytes ${e.lost}` : `${e.bytes} bytes, there and back in ${e.milliseconds.toFixed(2)} ms`));

/** led says what leads a connection elsewhere, before its packets are on their way. */
function led(l) {
  const end = (b) => [h("b", {}, b.name || b.addr), h("small", {}, ` ${b.addr}${b.port ? ` port ${b.port}` : ""}, host ${b.host}`), b.why && h("p", {}, b.why)];
  return panel(l.name || "On the way out",
    l.egress && h("p", {}, `egress ${l.egress.name}: `, l.egress.wrong || `${l.egress.addr}, which host ${l.egress.holder} holds`),
    l.backs?.length > 0 && h("ol.steps", {}, l.backs.map((b) => h("li", { class: b.in ? "ok" : "warn" }, end(b)))),
    l.kind && (l.notes ?? []).map((n) => h("p", {}, n)));
}

const trace = {
  title: "Trace", needs: ["status", "networks", "names"], once: true,
  more: ({ query }) => (query.get("from") && query.get("to") ? `trace?from=${encodeURIComponent(query.get("from"))}&to=${encodeURIComponent(query.get("to"))}` : null),
  draw(data, { query, more: t }) {
    const from = query.get("from") ?? "", dest = query.get("to") ?? "";
    const ping = t?.ping;
    return [h("h1", {}, "What is in the way?"), panel("", tracer(data, { from, to: dest }), h("p.dim", {}, "A container, network/container or address; behind the second a port: db:5432, db:53/udp.")),
      t && h("section.panel.health", { class: t.wrong ? "bad" : "ok" }, h("div.verdict", {}, h("h2", {}, t.verdict), t.do && h("p", {}, "To do: ", words(t.do)))),
      t?.led && led(t.led), t?.ways?.length > 1 && t.ways.filter((w) => !t.verdict.includes(w.verdict)).map((w) => h("p", {}, w.verdict)),
      t && !t.what && t.notTried.map((n) => h("p.dim", {}, `Not tried: ${n}`)),
      t?.what && panel("", h("p.ends", {}, peer(data, t.from), " → ", peer(data, t.to), h("span.chip", {}, t.what)),
        h("ol.steps", {}, decision("policies let it leave", t.egress), decision("policies let it enter", t.ingress),
          ping && (ping.error ? h("li.bad", {}, h("b", {}, `host ${ping.host}`), h("p", {}, ping.error)) : [echo(`underlay to ${ping.host}`, ping.underlay), echo(`tunnel to ${ping.host}`, ping.tunnel), echo("tunnel, full size", ping.full)])),
        (t.notes ?? []).map((n) => h("p", {}, n)), h("p.dim", {}, `Not tried: ${t.notTried.join("; ")}.`), command(`grapevine trace ${from} ${dest}`))];
  },
};

/** talker is an end of a connection. */
function talker(e, proto) {
  const name = e.name || (proto && e.port && e.addr.includes(":") ? `[${e.addr}]` : e.addr), text = proto ? `${name}${e.port && proto !== "icmp" ? `:${e.port}` : ""}/${proto}` : name;
  return [e.network ? to("container", e.addr, text) : text, e.host && h("small", {}, ` ${e.host}`)];
}

const traffic = {
  title: "Traffic", needs: ["status", "networks"],
  more: ({ query }) => ask("traffic", { all: query.get("all") === "true", only: query.get("only") }),
  draw(data, { query, more: t }) {
    const all = query.get("all") === "true", only = query.get("only") === "unanswered";
    const chip = (text, all, only, here) => [h("a.chip", { href: `#/traffic?all=${all}${only ? "&only=unanswered" : ""}`, "aria-current": here && "true" }, text), " "];
    const mark = (state) => ({ unanswered: "bad", refused: "bad", reset: "warn", open: "ok", answered: "ok" })[state];
    return [h("h1", {}, plural(t.found, "connection"), only && " without an answer"),
      h("p.cloud", {}, chip(`host ${data.status.name}`, false, only, !all), chip("all hosts", true, only, all), chip("all connections", all, false, !only), chip("without an answer", all, true, only), h("a.chip", { href: "#/drops" }, "dropped by the switch")),
      table(["from", "to", "state", "network", "sent", "came back", "began"], t.connections.map((c) => [
        talker(c.from), talker(c.to, c.proto), h("span.state", { class: mark(c.state) }, c.state), h("div.lines", {}, [...new Set([c.from.network, c.to.network])].map((n) => h("span", {}, n ? network(data, n) : "outside"))),
        h("span.mono", { title: plural(c.packets, "packet") }, bytes(c.bytes)), h("span.mono", { title: plural(c.backPackets, "packet") }, c.backPackets ? bytes(c.backBytes) : "-"), h("span.mono", {}, clock(c.first))])),
      t.found > t.connections.length && h("p", {}, `${(t.found - t.connections.length).toLocaleString("en")} more.`),
      counted(t).map((line) => h("p.dim", {}, line)), command(`grapevine traffic${all ? " --all" : ""}${only ? " --unanswered" : ""}`)];
  },
};

/** screens by the first word of the address; those with a title may be in the menu. */
export const screens = { "": overview, containers: list, networks, services, edges: inAndOut, hosts, addresses, policies, traffic, drops: dropped, trace, doctor, container, network: aNetwork, service, policy, host: aHost };
export const menu = ["", "containers", "services", "networks", "edges", "hosts", "addresses", "policies", "traffic", "trace"];
