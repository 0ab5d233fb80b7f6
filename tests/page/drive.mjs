// Drives a Chromium by playwright-core for browser.go: a command a line comes in, and an answer a line goes out.
import { createInterface } from "node:readline";

const { chromium } = await import(process.env.PLAYWRIGHT);
const browser = await chromium.launch({
	executablePath: process.env.CHROMIUM,
	args: [
		"--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--hide-scrollbars",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", // it reaches this machine and nothing else
	],
});
const context = await browser.newContext(); // tabs of one person
const patience = Number(process.env.PATIENCE);
context.setDefaultTimeout(patience);

const tabs = new Map();

async function tab(name) {
	const page = await context.newPage();
	const it = { page, devtools: await context.newCDPSession(page), complaints: [] };
	const complain = (kind, what) => it.complaints.push(`${kind}: ${what}`);
	page.on("console", (m) => complain(`console ${m.type()}`, `${m.text()} ${m.location().url}`));
	page.on("pageerror", (e) => complain("exception", e.stack ?? e.message));
	page.on("dialog", (d) => {
		complain("dialog", d.message());
		d.dismiss();
	});
	tabs.set(name, it);
	return null;
}

// What a tab does.
const does = {
	open: ({ page }, { url }) => page.goto(url),
	reload: ({ page }) => page.reload(),
	eval: ({ page }, { expression }) => page.evaluate(expression),
	// page.waitForFunction evaluates text in the page, which the page's policy forbids (trusted types).
	async until({ page }, { expression }) {
		for (const end = Date.now() + patience; ; await new Promise((f) => setTimeout(f, 20))) {
			const so = await page.evaluate(expression).catch((e) => { // it may be on its way to another document
				if (Date.now() > end) throw e;
			});
			if (so) return;
			if (Date.now() > end) throw new Error(`not within ${patience} ms`);
		}
	},
	click: ({ page }, { at }) => page.locator(at).click(),
	type: ({ page }, { at, text }) => page.locator(at).pressSequentially(text),
	press: ({ page }, { key }) => page.keyboard.press(key),
	async look({ page, devtools }, { width, height, scheme }) {
		await page.setViewportSize({ width, height });
		await page.emulateMedia({ colorScheme: scheme });
		await devtools.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
	},
	picture: async ({ page }) => (await page.screenshot({ fullPage: true })).toString("base64"),
	devtools: ({ devtools }, { method, params }) => devtools.send(method, params),
	complaints: (it) => it.complaints.splice(0),
};

// plain is what has a form in JSON, and is asked for.
const plain = new Set(["eval", "picture", "devtools", "complaints"]);

async function answer(line) {
	const { id, tab: name, verb, ...args } = JSON.parse(line);
	try {
		const value = verb === "tab" ? await tab(name) : await does[verb](tabs.get(name), args);
		return { id, value: plain.has(verb) ? value : null };
	} catch (e) {
		return { id, error: e.message };
	}
}

for await (const line of createInterface({ input: process.stdin })) {
	answer(line).then((a) => process.stdout.write(JSON.stringify(a) + "\n"));
}
await browser.close();
