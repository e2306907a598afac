// Comforts; every page works without them.
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

// 2. A page of what changes fetches itself anew and exchanges the parts that differ: soon while something is under way,
//    seldom otherwise, and not at all while nobody looks at it. What is typed, open or has the focus is left alone.
const BEHIND = { redirect: "error", headers: { "X-Requested-With": "fetch" } };
const live = document.querySelector("[data-live]");
let timer = 0;

async function refresh() {
  clearTimeout(timer);
  if (document.hidden || !live?.dataset.live) return;
  try {
    const answer = await fetch(live.dataset.live, BEHIND);
    if (answer.ok) exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The service is away: what the page shows stays, and the next attempt may do better.
  }
  wait();
}

function wait() {
  if (live?.dataset.live) timer = setTimeout(refresh, 1000 * (live.dataset.every || 10));
}

function exchange(page) {
  for (const part of live.querySelectorAll("[data-part]")) {
    const fresh = page.getElementById(part.id);
    if (!fresh || fresh.innerHTML === part.innerHTML || part.contains(document.activeElement)) continue;
    for (const open of part.querySelectorAll("details[id][open]")) page.getElementById(open.id)?.setAttribute("open", "");
    part.replaceChildren(...document.adoptNode(fresh).childNodes);
  }
  const fresh = page.querySelector("[data-live]");
  if (fresh) Object.assign(live.dataset, fresh.dataset);
  skew();
}

document.addEventListener("visibilitychange", refresh);
wait();

// 3. Countdowns go on between two fetches, by the service's clock.
let ahead = 0;

function skew() {
  if (live?.dataset.now) ahead = Date.parse(live.dataset.now) - Date.now();
}

function left(until) {
  let seconds = Math.max(0, Math.round((Date.parse(until) - Date.now() - ahead) / 1000));
  const parts = [];
  for (const [name, length] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    if (parts.length === 2 || (parts.length && seconds < length)) break;
    if (seconds < length) continue;
    parts.push(`${Math.floor(seconds / length)}\u00a0${name}`);
    seconds %= length;
  }
  return parts.join(" ") || "0\u00a0s";
}

skew();
setInterval(() => {
  for (const one of document.querySelectorAll("[data-until]")) {
    const text = left(one.dataset.until);
    if (one.textContent !== text) one.textContent = text;
    if (text === "0\u00a0s" && !one.dataset.over) {
      one.dataset.over = "1";
      refresh();
    }
  }
}, 1000);

// 4. What passes now: a small page of its own, fetched again when the next second was counted, while somebody looks.
const dials = document.querySelector("[data-dials]");
let next = 0;

async function dial() {
  clearTimeout(next);
  if (document.hidden || !dials) return;
  let due = 1000;
  try {
    const answer = await fetch(dials.dataset.dials, BEHIND);
    const page = new DOMParser().parseFromString(answer.ok ? await answer.text() : "", "text/html");
    due = Number(page.querySelector("[data-due]")?.dataset.due) || 5000;
    for (const part of document.querySelectorAll("[data-dial]")) {
      const fresh = page.getElementById(part.id);
      if (fresh) part.replaceChildren(...fresh.childNodes);
    }
  } catch {
    due = 5000;
  }
  next = setTimeout(dial, due);
}

document.addEventListener("visibilitychange", dial);
dial();

// 5. Who registers is offered the time zone of their browser.
for (const select of document.querySelectorAll("select[data-browser-zone]")) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if ([...select.options].some(option => option.value === zone)) select.value = zone;
}

// 6. While limits are typed, the page says what was understood and what it would do.
function preview(form, target, events, queryOf) {
  let pending = 0;
  let latest = 0;
  const show = async () => {
    const number = ++latest;
    try {
      const answer = await fetch(`${form.dataset.preview}?${queryOf()}`, BEHIND);
      const text = await answer.text();
      if (answer.ok && number === latest) target.innerHTML = text;
    } catch {
      // The service is away: Save will say so.
    }
  };
  form.addEventListener("input", event => {
    if (!event.target.matches(events)) return;
    clearTimeout(pending);
    pending = setTimeout(show, 300);
  });
  return show;
}

for (const form of document.querySelectorAll("form[data-preview]")) {
  const target = form.querySelector("#preview");
  const show = preview(form, target, "input, select", () => {
    const query = new URLSearchParams(new FormData(form));
    query.delete("csrfmiddlewaretoken");
    return query;
  });
  if (form.id === "timed-form" && !target.children.length) show();
  for (const preset of form.querySelectorAll("button[name=preset]")) {
    preset.addEventListener("click", event => {
      event.preventDefault();
      const fill = (names, value) => {
        const field = form.querySelector(names);
        field.value = value;
        if (value && field.closest("details")) field.closest("details").open = true;
      };
      fill("[name$=-bandwidth_kbit], [name=timed-to_user]", preset.dataset.to);
      fill("[name$=-from_user_kbit], [name=timed-from_user]", preset.dataset.from);
      show();
    });
  }
}

for (const row of document.querySelectorAll("[data-attachment]")) {
  const numbers = "[name$=_kbit], [name$=-attachment_point], [name$=-public_ip], [name$=-use_vpn]";
  preview(row, row.querySelector("[data-understood]"), numbers, () => {
    const query = new URLSearchParams({ row: row.dataset.attachment });
    for (const field of row.querySelectorAll(`${numbers}, [name$=-link_id]`)) {
      if (field.type !== "checkbox" || field.checked) query.set(field.name, field.value);
    }
    return query;
  });
}

// 7. The value and the time under the pointer, in the zone of the page's times. Without a script the table and the files have them.
let reading = null;

function read({ target, clientX }) {
  const plot = target.closest?.("svg[data-values]");
  if (reading?.parentNode !== plot) reading?.remove();
  if (!plot) return;
  const rates = plot.dataset.values.split(",");
  const box = plot.getBoundingClientRect();
  const at = Math.min(rates.length - 1, Math.floor(Math.max(0, clientX - box.left) / box.width * rates.length));
  const begin = new Date(Date.parse(plot.dataset.begins) + 1000 * plot.dataset.slot * at);
  const time = begin.toLocaleString("en-GB", { timeZone: plot.dataset.zone, dateStyle: "medium", timeStyle: "medium" });
  const isMbit = rates[at] >= 10000;
  const places = isMbit && rates[at] < 100000 ? 1 : 0;
  const form = { minimumFractionDigits: places, maximumFractionDigits: places };
  const rate = (rates[at] / (isMbit ? 1000 : 1)).toLocaleString("en", form).replaceAll(",", "\u00a0");
  reading ??= document.createElementNS(plot.namespaceURI, "text");
  reading.setAttribute("class", "read");
  reading.setAttribute("x", "50%");
  reading.setAttribute("y", "50%");
  reading.textContent = `${time}: ${rates[at] ? `${rate}\u00a0${isMbit ? "Mbit" : "kbit"}/s` : "no data"}`;
  plot.append(reading);
}

document.addEventListener("pointermove", read);
document.addEventListener("pointerdown", read);
