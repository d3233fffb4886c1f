// The pages of `olm ui` in a real browser, beside a cluster with the extension OLM_UI_EXTENSION whose update waits for an
// approval. Run by test/tests/approval/ui.rs.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { address, axe, launch, open, themes, widths } from "./browser.mjs";

const name = process.env.OLM_UI_EXTENSION;
/** The address with the key. */
const entrance = process.env.OLM_UI_ENTRANCE;
/** Where pictures go; without it there are none. */
const out = process.env.OUT;
const pages = {
  overview: "/",
  waiting: "/?state=waiting",
  nothing: "/?q=nothing-of-the-kind",
  extension: `/extensions/${name}`,
  plan: `/extensions/${name}/plan`,
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
