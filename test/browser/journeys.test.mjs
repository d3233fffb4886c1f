// What people do on the pages, in a real browser.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { address, axe, kinds, launch, open, themes, widths } from "./browser.mjs";

let browser;
before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });

/** A test with a page of its own; whatever it does, it loads nothing from elsewhere and logs no error. */
function journey(name, options, run) {
  test(name, async () => {
    const { context, page, faults } = await open(browser, options);
    try {
      await run(page, context);
      assert.deepEqual(faults, []);
    } finally {
      await context.close();
    }
  });
}

const count = (page) => page.locator(".headline .count strong").innerText();

journey("a search shows its results while one types, and leads to a package", {}, async (page) => {
  await page.goto(`${address}/`);
  const loads = [];
  page.on("framenavigated", () => loads.push(page.url()));
  await page.keyboard.press("/");
  await page.keyboard.type("anchor data");
  await page.waitForFunction(() => document.querySelector(".count strong").textContent === "1");
  assert.equal(new URL(page.url()).searchParams.get("q"), "anchor data");
  assert.equal(await page.locator(".card h2").innerText(), "Anchor Database");
  await page.locator(".card").click();
  await page.waitForURL("**/packages/showcase/anchor-database");
  assert.match(await page.locator("h1").innerText(), /^Anchor Database 1\.0\.0/);
});

journey("filters keep the words that one types, and count what fits them", {}, async (page) => {
  await page.goto(`${address}/`);
  await page.getByLabel("Search packages").pressSequentially("anchor");
  await page.waitForFunction(() => document.querySelector("h1").textContent.includes("anchor"));
  assert.match(await page.title(), /^anchor · Packages/);
  const all = await count(page);
  const security = page.locator("#filters").getByRole("link", { name: /^Security/ });
  const fitting = await security.locator(".number").innerText();
  assert.ok(Number(fitting) < Number(all), `${fitting} of ${all}`);
  await security.click();
  await page.waitForURL("**category=Security*");
  assert.equal(new URL(page.url()).searchParams.get("q"), "anchor");
  assert.equal(await count(page), fitting);
  await page.goto(`${address}/?q=anchor&category=Security&deprecated=false&sort=created`);
  await page.getByRole("link", { name: "Clear all" }).click();
  assert.equal(new URL(page.url()).search, "?q=anchor&sort=created", "words and order stay");
  assert.equal(await count(page), all);
});

journey("packages are listed by date, and filters keep the order", {}, async (page) => {
  await page.goto(`${address}/?catalog=showcase`);
  await page.getByRole("link", { name: "Newest" }).click();
  await page.waitForURL("**sort=created*");
  const days = await page.locator(".card time").allInnerTexts();
  assert.ok(days.length > 5 && new Set(days).size > 1, `${days}`);
  assert.deepEqual(days, [...days].sort().reverse());
  await page.locator("#filters").getByRole("link", { name: /^Database/ }).click();
  assert.equal(new URL(page.url()).searchParams.get("sort"), "created");
  await page.getByRole("link", { name: "Name", exact: true }).click();
  assert.equal(new URL(page.url()).searchParams.get("sort"), null);
});

journey("a command is copied", { permissions: ["clipboard-read", "clipboard-write"] }, async (page) => {
  await page.goto(`${address}${kinds.package}`);
  const button = page.getByRole("button", { name: "Copy" }).first();
  await button.click();
  await page.getByText("Copied").waitFor();
  const text = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(text, "olm install harbour-db --catalog showcase --wait");
});

journey("without scripts one searches, filters, turns pages and installs", { javaScriptEnabled: false }, async (page) => {
  await page.goto(`${address}/?catalog=showcase`);
  const all = Number(await count(page));
  assert.ok(all > 48, `${all} packages`);
  assert.equal(await page.locator(".card").count(), 24);
  await page.getByRole("link", { name: "Next" }).click();
  assert.match(await page.locator(".paging").innerText(), /Page 2 of 3/);
  await page.getByRole("link", { name: "Previous" }).click();
  const security = page.locator("#filters").getByRole("link", { name: /^Security/ });
  const number = await security.locator(".number").innerText();
  await security.click();
  assert.equal(await count(page), number);
  await page.locator("#filters").getByRole("link", { name: /^Auto Pilot/ }).click();
  assert.ok(Number(await count(page)) < Number(number));
  assert.equal(await page.locator(".chips li").count(), 4, "catalog, category, capability, and clear");
  await page.locator(".chips").getByRole("link", { name: /Capability level/ }).click();
  assert.equal(await count(page), number);
  await page.goto(`${address}/?catalog=showcase`);
  await page.getByLabel("Kind or group of a provided API").fill("Backup");
  await page.getByRole("button", { name: "Apply" }).click();
  assert.equal(await page.locator(".card h2").innerText(), "Harbour DB");
  await page.getByLabel("Search packages").fill("harbour");
  await page.getByRole("button", { name: "Search" }).click();
  assert.equal(new URL(page.url()).searchParams.get("api"), "Backup", "a search keeps the filters");
  await page.locator(".card a").first().click();
  await page.getByText("With kubectl").click();
  assert.match(await page.locator("#install .steps").innerText(), /kind: ClusterExtension[\s\S]*olm rbac harbour-db/);
  assert.equal(await page.getByRole("button", { name: "Copy" }).count(), 0, "no button that does nothing");
  const picture = page.locator(".graph svg");
  const fit = async () => {
    const before = await picture.boundingBox();
    await page.getByText("Fit", { exact: true }).click();
    return [before.height, (await picture.boundingBox()).height];
  };
  const [small, same] = await fit();
  assert.equal(same, small, "a picture that fits keeps its size");
  await page.getByRole("link", { name: "Draw more" }).click();
  await page.waitForURL("**/versions#updates");
  const [long, fitting] = await fit();
  assert.ok(long > small && fitting < long, "a long picture fits");
});

journey("a version is reached from the graph and from the table, and names its updates", {}, async (page) => {
  await page.goto(`${address}${kinds.package}`);
  await page.locator(".graph").getByRole("link", { name: "1.11.1" }).click();
  await page.waitForURL("**/versions/harbour-db.v1.11.1");
  assert.match(await page.locator("#channels").innerText(), /stable[\s\S]*1\.9\.1[\s\S]*1\.11\.0[\s\S]*>=1\.5\.0 <1\.11\.1/);
  assert.match(await page.locator("#install code").nth(1).innerText(), /^olm install harbour-db --version 1\.11\.1 --catalog showcase --wait$/);
  await page.getByRole("link", { name: "All versions" }).click();
  assert.equal(await page.locator(".versions tbody tr").count(), 26);
  await page.locator(".versions").getByRole("link", { name: "1.0.0", exact: true }).click();
  assert.match(await page.locator(".notice").innerText(), /1\.0\.0 loses backups/);
});

journey("a bundle that carries its manifests shows its permissions", {}, async (page) => {
  await page.goto(`${address}${kinds.manifests}`);
  assert.match(await page.locator("#permissions").innerText(), /In the whole cluster[\s\S]*nodes[\s\S]*deployments/);
  assert.match(await page.locator(".facts").innerText(), /Full Lifecycle[\s\S]*All namespaces[\s\S]*1\.29\.0/);
});

journey("the feed is well-formed and lists the versions", {}, async (page) => {
  await page.goto(`${address}${kinds.package}`);
  const feed = await page.getByRole("link", { name: "Feed of new versions" }).getAttribute("href");
  const found = await page.evaluate(async (feed) => {
    const answer = await fetch(feed);
    const xml = new DOMParser().parseFromString(await answer.text(), "application/xml");
    return { type: answer.headers.get("content-type"), faults: xml.querySelectorAll("parsererror").length, entries: xml.querySelectorAll("entry").length, newest: xml.querySelector("entry > title").textContent, updated: xml.querySelector("updated").textContent };
  }, feed);
  assert.deepEqual(found, { type: "application/atom+xml; charset=utf-8", faults: 0, entries: 26, newest: "Harbour DB 1.12.1", updated: "2026-01-21T09:30:00Z" });
});

journey("the keyboard reaches the content at once, and shows where it is", {}, async (page) => {
  await page.goto(`${address}/`);
  await page.keyboard.press("Tab");
  const skip = page.getByRole("link", { name: "Skip to content" });
  assert.ok((await skip.boundingBox()).y >= 0, "it shows");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "content");
  for (let stop = 0; stop < 40; stop += 1) {
    await page.keyboard.press("Tab");
    const outline = await page.evaluate(() => {
      const at = document.activeElement;
      if (at === document.body) return "end";
      return [getComputedStyle(at), getComputedStyle(at, "::after")].map((style) => style.outlineStyle).join(" ");
    });
    assert.match(outline, /solid|end/, `stop ${stop}`);
  }
});

journey("on a phone the filters open and close without a script", { viewport: widths.phone, javaScriptEnabled: false }, async (page) => {
  await page.goto(`${address}/`);
  assert.equal(await page.locator("#filters").isVisible(), false);
  await page.getByRole("link", { name: "Filters" }).click();
  await page.locator("#filters").getByRole("link", { name: /^Database/ }).click();
  assert.equal(await page.locator("#filters").isVisible(), false);
  assert.match(await page.locator(".chips").innerText(), /Category: Database/);
});

journey("paper gets the content alone", {}, async (page) => {
  await page.goto(`${address}${kinds.package}`);
  await page.emulateMedia({ media: "print" });
  for (const away of [".top", ".tabs", ".bottom"]) assert.equal(await page.locator(away).isVisible(), false, away);
  assert.ok(await page.locator("#install").isVisible());
  await page.goto(`${address}${kinds.manual}`);
  await page.emulateMedia({ media: "print" });
  const end = page.getByText("The end of the manual.");
  assert.equal(await page.locator(".long").getAttribute("open"), null);
  const cut = await page.locator(".long").evaluate((long) => [getComputedStyle(long, "::details-content").maxHeight, long.querySelector("summary").checkVisibility()]);
  assert.deepEqual(cut, ["none", false], "a long description is whole");
  assert.ok((await end.boundingBox()).height > 0);
});

for (const [size, viewport] of Object.entries(widths)) {
  for (const colorScheme of themes) {
    journey(`every kind of page is accessible and fits: ${size}, ${colorScheme}`, { viewport, colorScheme, reducedMotion: "reduce" }, async (page) => {
      for (const [kind, path] of Object.entries(kinds)) {
        await page.goto(`${address}${path}`);
        await page.evaluate(() => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
        await page.evaluate(axe);
        const found = await page.evaluate(() => axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
        const faults = found.violations.flatMap((violation) => violation.nodes.map((node) => `${violation.id}: ${node.html} ${node.failureSummary}`));
        assert.deepEqual(faults, [], kind);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${kind} is ${wide} pixels wider than the screen`);
      }
    });
  }
}

journey("a hostile catalog is shown and runs nothing", { viewport: widths.phone }, async (page) => {
  const search = await (await page.request.get(`${address}/api/v1/search?catalog=hostile&limit=200`)).json();
  assert.equal(search.items.length, search.total);
  assert.ok(search.total >= 12, `${search.total} packages`);
  const paths = ["/?catalog=hostile", `/?q=${encodeURIComponent("\"><script>pwned=1</script>")}`, `/?category=${encodeURIComponent("<img src=x onerror=pwned=1>")}`];
  for (const { name } of search.items) {
    const path = `/packages/hostile/${encodeURIComponent(name)}`;
    paths.push(path, `${path}/versions`, `${path}/versions/${encodeURIComponent(name === "evil" ? "evil.v1.0.0" : `${name}.v1`)}`);
  }
  for (const path of paths) {
    const answer = await page.goto(address + path);
    assert.equal(answer.status(), 200, path.slice(0, 200));
    const found = await page.evaluate(() => ({
      pwned: typeof pwned,
      scripts: document.scripts.length,
      frames: frames.length,
      wide: document.documentElement.scrollWidth - innerWidth,
      handlers: [...document.querySelectorAll("*")].flatMap((it) => [...it.attributes])
        .filter((it) => it.name.startsWith("on") || (it.name === "href" && /^\s*(javascript|data):/i.test(it.value))).map((it) => it.name),
    }));
    assert.deepEqual(found, { pwned: "undefined", scripts: 1, frames: 0, wide: found.wide, handlers: [] }, path.slice(0, 200));
    assert.ok(found.wide <= 0, `${path.slice(0, 200)} is ${found.wide} pixels wider than the screen`);
  }
  for (const { name } of search.items) {
    const answer = await page.request.get(`${address}/packages/hostile/${encodeURIComponent(name)}/feed.xml`);
    const faults = await page.evaluate((text) => new DOMParser().parseFromString(text, "application/xml").querySelectorAll("parsererror").length, await answer.text());
    assert.equal(faults, 0, `the feed of ${name.slice(0, 100)}`);
  }
});

test("a hostile icon that is opened by its address runs nothing and loads nothing", async () => {
  const { context, page, faults } = await open(browser);
  const refused = [];
  page.on("requestfailed", (request) => refused.push(`request to ${request.url()}: ${request.failure().errorText}`));
  const answer = await page.goto(`${address}/packages/hostile/evil/icon`);
  assert.equal(answer.headers()["content-type"], "image/svg+xml");
  assert.match(await answer.text(), /<script>pwned=1/, "it is the icon of the catalog as it is");
  await page.waitForTimeout(500);
  assert.deepEqual(await page.evaluate(() => [document.documentElement.localName, typeof pwned]), ["svg", "undefined"]);
  // Chromium reports what the policy kept from happening, also requests that it never sent.
  const others = faults.filter((fault) => !/Content Security Policy|sandbox/.test(fault) && !refused.includes(`${fault}: csp`));
  assert.deepEqual(others, []);
  assert.ok(faults.length > others.length, "the policy was needed");
  await context.close();
});
