// Writes a picture of each kind of page in both themes and widths into the folder OUT.
import { mkdirSync } from "node:fs";
import { address, kinds, launch, open, themes, widths } from "./browser.mjs";

const out = process.env.OUT;
mkdirSync(out, { recursive: true });
const browser = await launch();
for (const [size, viewport] of Object.entries(widths)) {
  for (const colorScheme of themes) {
    const { context, page } = await open(browser, { viewport, colorScheme });
    for (const [kind, path] of Object.entries(kinds)) {
      await page.goto(`${address}${path}`, { waitUntil: "networkidle" });
      await page.screenshot({ path: `${out}/${kind}-${size}-${colorScheme}.png` });
      await page.screenshot({ path: `${out}/${kind}-${size}-${colorScheme}-full.png`, fullPage: true });
    }
    await context.close();
  }
}
await browser.close();
console.log(`the pictures are in ${out}`);
