// Two comforts; every page works without them.
"use strict";

// 1. The hint beside a bandwidth follows the chosen attachment point, and so does a number that nobody touched.
for (const attachment of document.querySelectorAll("[data-attachment]")) {
  const select = attachment.querySelector("select");
  const bandwidth = attachment.querySelector("input[name$=bandwidth_kbit]");
  const hint = attachment.querySelector("[data-limit]");
  if (!select || !bandwidth || !hint) continue;
  let before = select.selectedOptions[0]?.dataset.maximum;
  select.addEventListener("change", () => {
    const { maximum, name } = select.selectedOptions[0].dataset;
    if (bandwidth.value === before) bandwidth.value = maximum;
    before = maximum;
    const kbit = Number(maximum).toLocaleString("en").replaceAll(",", "\u00a0");
    hint.textContent = `Initial value and maximum at ${name}: ${kbit}\u00a0kbit/s.`;
  });
}

// 2. A page on which something is under way fetches itself anew and exchanges what changed, until all is settled.
const INTERVAL_MS = 2000;

async function refresh() {
  const live = document.querySelector("[data-live]");
  if (!live) return;
  if (!document.hidden) {
    try {
      const answer = await fetch(live.dataset.live, { redirect: "error" });
      if (answer.ok) exchange(live, new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      // The service is away: what the page shows stays, and the next attempt may do better.
    }
  }
  setTimeout(refresh, INTERVAL_MS);
}

function exchange(live, page) {
  for (const part of live.querySelectorAll("[data-part]")) {
    const fresh = page.getElementById(part.id);
    if (fresh && fresh.innerHTML !== part.innerHTML) part.replaceChildren(...document.adoptNode(fresh).childNodes);
  }
  if (!page.querySelector("[data-live]")) live.removeAttribute("data-live");
}

setTimeout(refresh, INTERVAL_MS);
