// The trellis: a network is a vine across, a host a post, a container a grape where they cross.
// It is drawn the same for everyone who looks, and never moves by itself.

import { h } from "./dom.js";
import { by, hue, plural, short, stateOf } from "./model.js";

const LEFT = 150, HEAD = 74, GAP = 8, LINE = 30, MOST_HOSTS = 24, MOST_NETWORKS = 40, MOST_NAMED = 8;

/** draw is the trellis of what is known, in so many pixels of width. */
export function trellis(data, width) {
  const { hosts, page, pages, all } = data.map;
  const networks = [...data.networks].sort((a, b) => b.endpoints - a.endpoints).slice(0, MOST_NETWORKS).sort(by((n) => n.name));
  const named = hosts.length <= MOST_NAMED;
  const cells = cellsOf(data.map.cells, named ? data.clients ?? [] : []);
  const leaves = new Map((data.egresses ?? []).filter((e) => !e.labels?.length).flatMap((e) => e.networks.map((n) => [n, e])));
  const column = Math.max(named ? 150 : 34, Math.floor((width - LEFT - 16) / Math.max(1, hosts.length)));
  const W = LEFT + hosts.length * column + 8;
  let y = HEAD;
  const rows = networks.map((n) => {
    const cell = hosts.map((host) => layout(cells.get(`${host.name}\n${n.name}`) ?? { list: [], count: 0 }, column, named));
    const height = Math.max(named ? 52 : 44, leaves.has(n.name) ? 56 : 0, ...cell.map((c) => c.height + 16));
    const row = { n, y, height, cell };
    y += height + GAP;
    return row;
  });
  const H = Math.max(y, HEAD + 40);
  const fewer = data.networks.length - networks.length;
  return [
    h("div.wide", {}, h("svg:svg.trellis", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": "Networks as rows, hosts as columns" },
      hosts.map((host, i) => post(host, LEFT + i * column, column, H, named)),
      rows.map((r) => vine(data, r, W, leaves.get(r.n.name))),
      rows.map((r) => h("svg:g", { class: `n${hue(data.networks, r.n.name)}` }, r.cell.map((c, i) => grapes(c, r, hosts[i], LEFT + i * column, column)))))),
    h("p.legend", {}, "A row is a network, a column a host. ", named && data.clients?.length > 0 && "A dashed one is a laptop or a phone. ",
      pages > 1 && [...Array(pages).keys()].map((i) => h("a.chip", { href: `#/?page=${i + 1}`, "aria-current": i + 1 === page && "true" }, `hosts ${i * MOST_HOSTS + 1} to ${Math.min((i + 1) * MOST_HOSTS, all)}`)),
      fewer > 0 && h("a", { href: "#/networks" }, `and ${plural(fewer, "network")} more`)),
  ];
}

/** cellsOf are the containers and clients by host and network, and how many there are. */
function cellsOf(counted, clients) {
  const cells = new Map((counted ?? []).map((c) => [`${c.host}\n${c.network}`, { list: c.containers, count: c.count }]));
  for (const c of clients) {
    const key = `${c.host}\n${c.network}`;
    const { list, count } = cells.get(key) ?? { list: [], count: 0 };
    cells.set(key, { list: [...list, { ...c, client: true }], count: count + 1 });
  }
  return cells;
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** layout places the grapes of a cell: with names in lines, else as a bunch. */
function layout({ list, count }, column, named) {
  const room = column - 16;
  if (!named || count > 12) {
    const across = Math.max(2, Math.min(6, Math.floor((column - 8) / 9)));
    const most = across * 3;
    return { list, count, across, bunch: Math.min(count, most), more: count > most, height: Math.ceil(Math.min(count, most) / across) * 9 + (count > most ? 14 : 0) };
  }
  let x = 0, line = 0;
  const pills = list.map((c) => {
    const name = clip(c.name, Math.floor((room - 26) / 7));
    const w = Math.min(room, 28 + name.length * 7.2);
    if (x > 0 && x + w > room) [x, line] = [0, line + 1];
    const pill = { c, name, x, y: line * LINE, w };
    x += w + 6;
    return pill;
  });
  return { list, count, pills, height: (line + 1) * LINE };
}

function post(host, x, column, H, named) {
  const { mark, text } = stateOf(host);
  const middle = x + column / 2;
  const under = [host.vtep, host.self ? "this host" : mark === "ok" ? host.datapath : clip(text, Math.floor(column / 6.3))];
  return h("svg:a", { href: `#/host/${encodeURIComponent(host.id)}` },
    h("svg:rect.post", { class: mark, x: x + 4, y: 4, width: column - 8, height: H - 8, rx: 9 }),
    named
      ? [h("svg:circle.dot", { class: mark, cx: x + 20, cy: 22, r: 4.5 }), h("svg:text.host", { x: x + 31, y: 26.5 }, clip(host.name, Math.floor((column - 40) / 8))),
        under.map((line, i) => h("svg:text.small", { x: x + 16, y: 43 + i * 15, class: i && mark !== "ok" && mark }, line ?? ""))]
      : [h("svg:circle.dot", { class: mark, cx: middle, cy: 18, r: 4.5 }),
        h("svg:text.small.mid", { x: middle, y: 36 }, clip(host.name, Math.floor(column / 6.3))),
        host.self && h("svg:text.tag.mid", { x: middle, y: 50 }, "here"), mark !== "ok" && h("svg:text.small.mid", { x: middle, y: 50, class: mark }, mark === "bad" ? "gone" : "?")]);
}

function vine(data, { n, y, height }, W, egress) {
  const middle = y + height / 2, end = W - 8, step = (end - LEFT) / 4;
  const root = y + height + 1; // under the labels, and up beside them
  let d = `M8 ${root}H${LEFT - 20}C${LEFT - 8} ${root} ${LEFT - 12} ${middle} ${LEFT} ${middle}`;
  for (let i = 0; i < 4; i++) {
    const x = LEFT + i * step, sway = i % 2 ? 7 : -7;
    d += `C${x + step / 3} ${middle + sway} ${x + (2 * step) / 3} ${middle + sway} ${x + step} ${middle}`;
  }
  return h("svg:a", { class: `n${hue(data.networks, n.name)}`, href: `#/network/${encodeURIComponent(n.name)}` },
    h("svg:rect.band", { x: LEFT - 4, y, width: end - LEFT + 8, height, rx: 8 }),
    h("svg:path.vine", { d }),
    h("svg:text.netname", { x: 8, y: y + 19 }, clip(short(n.name), 15)),
    h("svg:text.small", { x: 8, y: y + 34 }, n.vnid === 0 ? "VNID 0, reaches all" : `VNID ${n.vnid}${n.internal ? ", internal" : ""}`),
    egress && h("svg:text.small", { x: 8, y: y + 48, class: !egress.holder && "bad" }, egress.holder ? leaving(egress.addrs?.[0] ?? "") : "leaves not: no egress"));
}

/** leaving is as much of it as there is room for. */
const leaving = (addr) => (addr.length > 12 ? clip(`as ${addr}`, 20) : `leaves as ${addr}`);

function grapes(cell, row, host, x, column) {
  if (!cell.count) return null;
  const top = row.y + (row.height - cell.height) / 2;
  if (cell.pills) {
    return cell.pills.map((p) => h("svg:a.grape", { class: p.c.client && "client", href: p.c.client ? "#/edges" : `#/container/${p.c.id}`, transform: `translate(${x + 10 + p.x} ${top + p.y})`, "aria-label": `${p.c.client ? "client" : "container"} ${p.c.name} on ${short(row.n.name)}, host ${host.name}` },
      h("svg:title", {}, p.c.name),
      h("svg:rect", { y: 3, width: p.w, height: 24, rx: 12 }), h("svg:circle", { cx: 12, cy: 15, r: 4 }), h("svg:text", { x: 21, y: 19 }, p.name)));
  }
  const size = 9;
  let d = "";
  for (let i = 0; i < cell.bunch; i++) { // all of a bunch are one path: what is drawn does not grow with containers
    const line = Math.floor(i / cell.across), inLine = Math.min(cell.across, cell.bunch - line * cell.across);
    const cx = x + column / 2 + ((i % cell.across) - (inLine - 1) / 2) * size;
    d += `M${cx - 3.6} ${top + 5 + line * size}a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0`;
  }
  const count = plural(cell.count, "container"), names = cell.list.map((c) => c.name).join(", ");
  return h("svg:a.bunch", { href: `#/containers?find=${encodeURIComponent(`${host.name} ${short(row.n.name)}`)}`, "aria-label": `${count} on ${short(row.n.name)}, host ${host.name}` },
    h("svg:title", {}, `${count}: ${clip(names, 300)}${cell.count > cell.list.length ? ", ..." : ""}`),
    h("svg:rect.area", { x: x + 6, y: row.y + 2, width: column - 12, height: row.height - 4 }), h("svg:path", { d }),
    cell.more && h("svg:text.small.mid", { x: x + column / 2, y: top + cell.height - 2 }, cell.count));
}
