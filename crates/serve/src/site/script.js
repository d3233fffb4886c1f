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
  // Searches while one types: takes results and filters out of the page that the form would lead to. The links of the
  // filters keep the words, and their numbers fit them.
  const form = field.form;
  if (!document.getElementById("results")) return;
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
        for (const id of ["results", "filters"]) {
          const fresh = page.getElementById(id);
          const shown = document.getElementById(id);
          if (fresh && shown) shown.replaceWith(document.adoptNode(fresh));
        }
        document.title = page.title;
        history.replaceState(null, "", address);
      } catch (error) {
        if (error.name !== "AbortError") throw error;
      }
    }, 150);
  });
})();
