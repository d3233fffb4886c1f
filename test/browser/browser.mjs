// A browser for the tests: Debian's Chromium, which talks to nobody but the server under test.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MODULES}/`);
const { chromium } = require("playwright-core");
export const axe = require("axe-core").source;

/** The server under test, without a slash at the end. */
export const address = process.env.ADDRESS;

export const widths = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 900 } };
export const themes = ["light", "dark"];

/** A page of each kind. */
export const kinds = {
  home: "/",
  search: "/?q=database&category=Database",
  nothing: "/?q=dtabase-xy",
  // On a phone they cover the page.
  filters: "/?q=a&category=Database&capability=Auto%20Pilot#filters",
  second: "/?catalog=showcase&cursor=24",
  newest: "/?sort=created",
  package: "/packages/showcase/harbour-db",
  manifests: "/packages/manifests/lantern",
  manual: "/packages/manifests/almanac",
  deprecated: "/packages/showcase/old-mill",
  versions: "/packages/showcase/harbour-db/versions",
  version: "/packages/showcase/harbour-db/versions/harbour-db.v1.4.0",
  missing: "/packages/showcase/none",
  refused: "/?sort=size",
};

export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync",
    ],
  });
}

/** A page in a profile of its own. `faults` collects what no page may do: requests to elsewhere, errors, dialogs. */
export async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: widths.desktop, ...options });
  const page = await context.newPage();
  const faults = [];
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== address) faults.push(`request to ${request.url()}`);
  });
  page.on("console", (message) => {
    // Chromium itself reports a page that is an error.
    const isStatus = /the server responded with a status of 40[04]/.test(message.text());
    if (["error", "warning"].includes(message.type()) && !isStatus) faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("popup", () => faults.push("a window opened"));
  return { context, page, faults };
}
