"use strict";
(() => {
  // Copies the text of a block of commands.
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("code").textContent;
      const label = button.querySelector("span");
      try {
        await navigator.clipboard.writeText(text);
        label.textContent = "Copied";
      } catch {
        const selection = getSelection();
        selection.selectAllChildren(button.parentElement.querySelector("code"));
        label.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
      }
      setTimeout(() => { label.textContent = "Copy"; }, 2000);
    });
  }
  const field = document.getElementById("q");
  // A slash leads to the search, as on other sites.
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || target.matches("input, textarea, select")) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
  // Searches while one types: takes the results out of the page that the form would lead to.
  const form = field.form;
  let results = document.getElementById("results");
  if (!results) return;
  let timer = 0;
  let last = null;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const query = new URLSearchParams(new FormData(form));
      const address = "/?" + query;
      if (last) last.abort();
      last = new AbortController();
      try {
        const answer = await fetch(address, { headers: { Accept: "text/html" }, signal: last.signal });
        if (!answer.ok) return;
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("results");
        if (!fresh) return;
        results.replaceWith(document.adoptNode(fresh));
        results = fresh;
        history.replaceState(null, "", address);
      } catch (error) {
        if (error.name !== "AbortError") throw error;
      }
    }, 150);
  });
})();
