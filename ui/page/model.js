// What follows from the answers. Nothing here touches the page.

/** short is the name of a network, or the beginning of the ID that it has instead. */
export const short = (name) => name.replace(/^(provisional\/)?([0-9a-f]{12})[0-9a-f]{52}$/, "$1$2");
export const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const order = new Intl.Collator("en", { numeric: true }).compare;
export const by = (key) => (a, b) => order(key(a), key(b));

/** clock is a time as all of the page has it: the browser's, of 24 hours, and the day if it is another one. */
export function clock(time) {
  const at = new Date(time), two = (n) => String(n).padStart(2, "0");
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  return `${day}${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** how what containers send is wrapped, with the UDP port if it has one. */
export const wrapped = (of) => (of.encap === "gre" ? "GRE" : `${of.encap === "geneve" ? "Geneve" : "VXLAN"} port ${of.vxlanPort}`);

/** state of a host: ok, warn or bad, and in words. */
export function stateOf(node) {
  if (!node) return { mark: "bad", text: "unknown" };
  if (!node.alive) return { mark: "bad", text: "does not answer" };
  if (node.doubtful) return { mark: "warn", text: "silent just now" };
  if (node.path && node.path !== "ok") return { mark: "bad", text: node.path };
  return { mark: "ok", text: node.self ? "this host" : "alive" };
}

/** containers are endpoints by container, each with its places in networks, by name. */
export function containers(endpoints) {
  const all = new Map();
  for (const e of endpoints ?? []) {
    const id = e.container || e.id;
    if (!all.has(id)) all.set(id, { id, name: e.name || short(id).slice(0, 12), host: e.host, places: [] });
    all.get(id).places.push(e);
  }
  const list = [...all.values()].sort(by((c) => c.name));
  for (const c of list) c.places.sort(by((p) => p.network));
  return list;
}

/** port is a published port as `docker ps` shows it. */
export function port(p) {
  if (!p.more) return `${p.host}->${p.container}/${p.proto}`;
  const at = p.host.lastIndexOf(":");
  return `${p.host}-${Number(p.host.slice(at + 1)) + p.more}->${p.container}-${p.container + p.more}/${p.proto}`;
}

/** policyOf a rule is its policy: "shop/db ingress[0]" is of shop/db. Not all rules are of one that has a name. */
export const policyOf = (rule) => /^(\S+) (?:in|e)gress\b/.exec(rule)?.[1];

/** bytes as people read them. */
export function bytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000 || unit === "GB") return `${unit === "B" ? n : n.toFixed(1)} ${unit}`;
    n /= 1000;
  }
}

/** silent are hosts that counted nothing, together with those of the same reason. */
function silent(hosts) {
  const by = new Map();
  for (const x of hosts) by.set(x.error, [...(by.get(x.error) ?? []), x.name]);
  return [...by].map(([why, names]) => `Not counted on ${names.slice(0, 5).join(", ")}${names.length > 5 ? ` and ${plural(names.length - 5, "other host")}` : ""}: ${why}.`);
}

/** counted says who counted the traffic, since when, and what was not counted. */
export function counted(traffic) {
  const who = traffic.hosts.filter((x) => !x.error), lost = who.reduce((n, x) => n + x.lost, 0), left = who.reduce((n, x) => n + (x.left ?? 0), 0);
  const since = who.map((x) => x.since).sort().at(-1);
  return [`Counted on ${plural(who.length, "host")}${since ? ` since ${clock(since)}` : ""}; ${plural(lost, "packet")} lost${lost ? ", of more connections at once than there is room for" : ""}.`,
    ...(left ? [`The oldest ${left.toLocaleString("en")} counts were left out.`] : []), ...silent(traffic.hosts.filter((x) => x.error))];
}

/** hue of a network, 1 to 6: the same on all screens. */
export function hue(networks, name) {
  if (networks && !hues.has(networks)) hues.set(networks, new Map([...networks].sort(by((n) => n.name)).map((n, i) => [n.name, 1 + (i % 6)])));
  return hues.get(networks)?.get(name) ?? 1;
}
const hues = new WeakMap(); // by answer

/** number of an address, and how many bits it has. */
export function number(address) {
  if (!address.includes(":")) return [address.split(".").reduce((n, b) => (n << 8n) | BigInt(b), 0n), 32];
  const [head, tail] = address.split("::").map((half) => half.split(":").filter(Boolean));
  const all = tail ? [...head, ...Array(8 - head.length - tail.length).fill("0"), ...tail] : head;
  return [all.reduce((n, group) => (n << 16n) | BigInt(`0x${group}`), 0n), 128];
}

/** within is where a prefix or an address lies in another prefix: [from, to] of 0 to 1; null: outside. */
export function within(prefix, pool) {
  const [base, bits] = number(pool.split("/")[0]);
  const [first, its] = number(prefix.split("/")[0]);
  const size = 1n << BigInt(bits - Number(pool.split("/")[1]));
  const part = 1n << BigInt(its - Number(prefix.split("/")[1] ?? its));
  if (bits !== its || first < base || first >= base + size) return null;
  const share = (n) => Number((n * 1000000n) / size) / 1000000;
  return [share(first - base), share(first - base + part)];
}
