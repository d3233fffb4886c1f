// The pages of `olm ui` in a real browser, beside a cluster with the extension OLM_UI_EXTENSION whose update waits for an
// approval. Run by test/tests/approval/ui.rs.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { address, axe, launch, open, themes, widths } from "./browser.mjs";

const name = process.env.OLM_UI_EXTENSION;
/** The address with the key. */
const entrance = process.env.OLM_UI_ENTRANCE;
/** An extension of a package whose publisher is hostile. */
const hostile = process.env.OLM_UI_HOSTILE;
/** Where pictures go; without it there are none. */
const out = process.env.OUT;
const pages = {
  overview: "/",
  waiting: "/?state=waiting",
  nothing: "/?q=nothing-of-the-kind",
  extension: `/extensions/${name}`,
  plan: `/extensions/${name}/plan`,
  hostile: `/extensions/${hostile}`,
  refused: `/extensions/${hostile}/plan`,
  catalogs: "/catalogs",
  missing: "/extensions/nobody",
};

let browser;
before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });

/** A test in a browser that has the key; whatever it does, it asks no other server, logs no error and changes nothing. */
function journey(title, options, run) {
  test(title, { timeout: 120_000 }, async () => {
    const { context, page, faults } = await open(browser, options);
    page.on("request", (request) => {
      if (request.method() !== "GET") faults.push(`${request.method()} ${request.url()}`);
    });
    try {
      await page.goto(entrance);
      assert.equal(page.url(), `${address}/`, "the key does not stay in the address");
      await run(page, context);
      assert.deepEqual(faults, []);
    } finally {
      await context.close();
    }
  });
}

journey("from the overview to the change that waits, its plan and the command to approve it", { javaScriptEnabled: false }, async (page) => {
  const row = page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
  assert.match(await row.innerText(), /Change waits[\s\S]*1\.0\.0[\s\S]*1\.0\.1[\s\S]*held back by Approval/);
  await page.getByRole("navigation", { name: "States" }).getByRole("link", { name: /^Change waits/ }).click();
  await row.getByRole("link").click();
  await page.waitForURL(`**${pages.extension}`);
  assert.match(await page.locator("h1").innerText(), /1\.0\.0/);
  assert.match(await page.getByRole("heading", { name: /^Change waits/ }).innerText(), /1\.0\.0 to 1\.0\.1/);
  const approve = new RegExp(`^olm approve ${name} --digest [0-9a-z:]+$`, "m");
  const [command] = (await page.locator("main").innerText()).match(approve);
  await page.getByRole("link", { name: "Show the plan" }).click();
  await page.waitForURL(`**${pages.plan}`);
  const plan = await page.locator("main").innerText();
  assert.equal(plan.match(approve)[0], command, "the plan that waits is the one to approve");
  assert.match(plan, new RegExp(`${name}: 1\\.0\\.0 -> 1\\.0\\.1`));
  await page.getByRole("navigation", { name: "Where this page is" }).getByRole("link", { name }).click();
  await page.waitForURL(`**${pages.extension}`);
});

journey("the page of an extension shows its history, conditions and events", {}, async (page) => {
  await page.goto(`${address}${pages.extension}`);
  const rows = (label) => page.getByRole("region", { name: label }).locator("tbody tr");
  assert.match(await rows("History").first().innerText(), /^1\s+1\.0\.0\s/);
  const conditions = await rows("Conditions").allInnerTexts();
  assert.ok(conditions.some((row) => /^Installed\s+True/.test(row)), conditions.join("\n"));
  assert.ok(await rows("Events").count() > 0, "there are events");
  assert.match(await page.getByRole("complementary", { name: "Facts" }).innerText(), /Package[\s\S]*Namespace[\s\S]*Age/i);
});

journey("a search finds extensions by name, and an empty one says how to go on", {}, async (page) => {
  await page.getByLabel("Search extensions").fill(name.slice(0, -1));
  await page.keyboard.press("Enter");
  await page.waitForURL("**/?q=*");
  assert.equal(await page.getByRole("link", { name, exact: true }).count(), 1);
  await page.goto(`${address}${pages.waiting}`);
  await page.getByLabel("Search extensions").fill(name);
  await page.keyboard.press("Enter");
  await page.waitForURL("**q=*");
  assert.equal(new URL(page.url()).searchParams.get("state"), "waiting", "a search keeps the state");
  await page.goto(`${address}${pages.nothing}`);
  await page.getByRole("link", { name: "Show all" }).click();
  await page.waitForURL(`${address}/`);
});

journey("the keyboard alone leads from the overview to the plan that waits, and shows where it is", {}, async (page) => {
  /** Steps on until the focus is on the link of this text; each stop on the way has an outline. */
  const reach = async (text) => {
    for (let stop = 0; stop < 80; stop += 1) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const it = document.activeElement;
        const outline = [getComputedStyle(it), getComputedStyle(it, "::after")].map((style) => style.outlineStyle).join(" ");
        return { text: it.textContent.trim(), tag: it.localName, outline };
      });
      assert.notEqual(at.tag, "body", `${text} is not reached`);
      assert.match(at.outline, /solid/, `stop ${stop}: ${at.text.slice(0, 100)}`);
      if (at.tag === "a" && at.text === text) return;
    }
    assert.fail(`${text} is not among the first stops`);
  };
  await page.keyboard.press("Tab");
  const skip = page.getByRole("link", { name: "Skip to content" });
  assert.ok((await skip.boundingBox()).y >= 0, "it shows");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "content");
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "q");
  await page.keyboard.type(name);
  await page.keyboard.press("Enter");
  await page.waitForURL("**/?q=*");
  await reach(name);
  await page.keyboard.press("Enter");
  await page.waitForURL(`**${pages.extension}`);
  await reach("Show the plan");
  await page.keyboard.press("Enter");
  await page.waitForURL(`**${pages.plan}`);
  // The keyboard scrolls what is wider than its frame, and leaves it.
  const stops = new Set();
  for (let stop = 0; stop < 80; stop += 1) {
    await page.keyboard.press("Tab");
    const tag = await page.evaluate(() => document.activeElement.localName);
    stops.add(tag);
    if (tag === "body") break;
  }
  assert.ok(stops.has("pre") && stops.has("body"), `${[...stops]}`);
});

// The width of A4 between its margins.
journey("paper gets the content alone, and all of it", { viewport: { width: 718, height: 1000 } }, async (page) => {
  await page.emulateMedia({ media: "print" });
  for (const kind of ["overview", "extension", "plan", "hostile", "catalogs"]) {
    await page.goto(`${address}${pages[kind]}`);
    for (const away of [".top", ".bottom", ".skip", ".copy"]) {
      const shown = await page.locator(away).evaluateAll((all) => all.filter((it) => it.checkVisibility()).length);
      assert.equal(shown, 0, `${kind}: ${away}`);
    }
    assert.ok(await page.locator("main h1").isVisible(), kind);
    const cut = await page.evaluate(() => [...document.querySelectorAll("main *")]
      .filter((it) => it.checkVisibility() && it.scrollWidth > it.clientWidth + 1 && !["visible", "clip"].includes(getComputedStyle(it).overflowX))
      .map((it) => `${it.localName}.${it.className} ${it.scrollWidth} > ${it.clientWidth}`));
    assert.deepEqual(cut, [], `${kind}: nothing scrolls on paper`);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${kind} is ${wide} pixels wider than the paper`);
  }
  await page.goto(`${address}${pages.extension}`);
  const text = await page.locator("main").innerText();
  for (const part of ["olm approve", "History", "Conditions", "Events"]) assert.ok(text.includes(part), part);
});

journey("what a hostile publisher writes is shown as text and runs nothing", { viewport: widths.phone }, async (page) => {
  for (const kind of ["overview", "hostile", "refused", "catalogs"]) {
    const answer = await page.goto(`${address}${pages[kind]}`);
    assert.equal(answer.status(), 200, kind);
    const found = await page.evaluate(() => ({
      pwned: typeof pwned,
      scripts: document.scripts.length,
      frames: frames.length,
      elements: document.querySelectorAll("main :is(img, iframe, object, embed, style, link, base, b)").length,
      handlers: [...document.querySelectorAll("*")].flatMap((it) => [...it.attributes])
        .filter((it) => it.name.startsWith("on") || (it.name === "href" && /^\s*(javascript|data):/i.test(it.value))).map((it) => it.name),
    }));
    assert.deepEqual(found, { pwned: "undefined", scripts: 1, frames: 0, elements: 0, handlers: [] }, kind);
  }
  await page.goto(`${address}${pages.hostile}`);
  const rows = async (label) => (await page.getByRole("region", { name: label }).locator("tbody tr").allInnerTexts()).join("\n");
  assert.match(await rows("Conditions"), /<script>pwned=1<\/script>/, "the message of a deprecation");
  assert.match(await rows("Bundles of the catalogs"), /<img src=x onerror=pwned=1>/, "the name of a bundle");
  assert.match(await rows("Events"), /<iframe srcdoc=/, "the message of an event");
});

journey("pages have nothing that changes the cluster", {}, async (page) => {
  for (const [kind, path] of Object.entries(pages)) {
    await page.goto(`${address}${path}`);
    const found = await page.evaluate(() => ({
      methods: [...new Set([...document.forms].map((form) => form.method))],
      sources: [...document.scripts].filter((script) => script.src).length,
      addresses: [...document.querySelectorAll("[href], [src], [action]")].map((it) => new URL(it.href ?? it.src ?? it.action, location.href).origin),
    }));
    assert.deepEqual(found.methods, ["get"], kind);
    assert.equal(found.sources, 0, kind);
    assert.deepEqual([...new Set(found.addresses)], [address], kind);
  }
});

test("without the key there are no pages", async () => {
  const { context, page } = await open(browser);
  for (const path of Object.values(pages)) assert.equal((await page.goto(address + path)).status(), 403, path);
  assert.doesNotMatch(await page.locator("body").innerText(), new RegExp(name));
  await context.close();
});

for (const [size, viewport] of Object.entries(widths)) {
  for (const colorScheme of themes) {
    journey(`every page is accessible and fits: ${size}, ${colorScheme}`, { viewport, colorScheme, reducedMotion: "reduce" }, async (page) => {
      const faults = [];
      if (out) mkdirSync(out, { recursive: true });
      for (const [kind, path] of Object.entries(pages)) {
        await page.goto(`${address}${path}`);
        if (out) {
          await page.screenshot({ path: `${out}/ui-${kind}-${size}-${colorScheme}.png` });
          await page.screenshot({ path: `${out}/ui-${kind}-${size}-${colorScheme}-full.png`, fullPage: true });
        }
        await page.evaluate(axe);
        const found = await page.evaluate(() => axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
        faults.push(...found.violations.flatMap((violation) => violation.nodes.map((node) => `${kind}: ${violation.id}: ${node.html} ${node.failureSummary}`)));
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 0) faults.push(`${kind} is ${wide} pixels wider than the screen`);
      }
      assert.deepEqual(faults, []);
    });
  }
}
