"use strict";
// Shows what was likely at each step. Texts are set as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tokens = document.getElementById("tokens");
  const detail = document.getElementById("detail");
  const cursor = document.getElementById("cursor");
  const nodes = [...tokens.querySelectorAll("b[data-n]")];
  const first = data.first;
  let pinned = null;
  let shown = null;

  const percent = (p) => p === null ? "–" : p > 0 && p < 0.0005 ? "<0.1 %" : (p * 100).toFixed(1) + " %";
  const ms = (value) => value === null ? "–" : value.toFixed(value < 1 ? 2 : 1) + " ms";
  const fixed = (value, digits, unit) => value === null ? "–" : value.toFixed(digits) + unit;
  const make = (tag, text, name) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (name) node.className = name;
    return node;
  };

  const pair = (list, name, value, type) => {
    list.append(make("dt", name), make("dd", value, type));
  };

  const row = (candidate, chosen, most) => {
    const [id, text, prob, final, dropped] = candidate;
    const line = make("tr", undefined, id === chosen ? "chosen" : "");
    const share = make("td", undefined, "share");
    const bar = make("span");
    bar.style.width = (100 * prob / most).toFixed(1) + "%";
    share.append(bar);
    const last = dropped ? make("td", dropped, "dropped") : make("td", percent(final));
    const name = make("td", (id === chosen ? "● " : "") + data.texts[text], "token");
    name.title = "id " + id;
    line.append(name, share, make("td", percent(prob)), last);
    return line;
  };

  const table = (step) => {
    const found = make("table");
    const head = make("tr");
    head.append(make("th", "candidate"), make("th"), make("th", "raw"), make("th", "final"));
    found.append(head);
    const most = Math.max(...step.candidates.map((one) => one[2]), 1e-9);
    for (const one of step.candidates) found.append(row(one, step.id, most));
    return found;
  };

  const show = (n) => {
    if (n === shown) return;
    shown = n;
    const step = data.steps[n - first];
    const values = make("dl", undefined, "values");
    detail.replaceChildren();
    if (n < first) {
      const [text, id, prob, rank] = data.prompt[n];
      detail.append(make("h3", "Prompt token " + n));
      pair(values, "token", text, "token");
      pair(values, "id", String(id));
      if (prob !== null) pair(values, "probability", percent(prob));
      if (rank) pair(values, "rank", String(rank));
      detail.append(values);
    } else {
      detail.append(make("h3", "Step " + (n - first)));
      pair(values, "picked", data.texts[step.text], "token");
      pair(values, "how", step.how + " · id " + step.id + (step.rank ? " · rank " + step.rank : ""));
      pair(values, "probability", percent(step.prob) + " raw · " + percent(step.final) + " final");
      pair(values, "entropy", fixed(step.entropy, 2, " bits"));
      pair(values, "margin", percent(step.margin));
      pair(values, "time", ms(step.ms) + " · forward " + ms(step.forward));
      detail.append(values);
      for (const [who, text] of step.notes) detail.append(make("p", "◆ " + who + ": " + text, "note"));
      if (step.candidates.length) detail.append(table(step));
      else detail.append(make("p", "The distribution of this step is lost.", "hint"));
      if (data.cut) detail.append(make("p", "the first " + data.cut + " candidates are kept here", "hint"));
    }
    for (const node of tokens.querySelectorAll(".at")) node.classList.remove("at");
    for (const node of tokens.querySelectorAll(`b[data-n="${n}"]`)) node.classList.add("at");
    if (cursor) {
      const x = data.x[n - first];
      cursor.setAttribute("visibility", x === undefined || x === null ? "hidden" : "visible");
      if (x !== undefined && x !== null) { cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); }
    }
  };

  const pin = (n) => {
    pinned = n;
    for (const node of tokens.querySelectorAll(".pinned")) node.classList.remove("pinned");
    if (n === null) return;
    const node = tokens.querySelector(`b[data-n="${n}"]`);
    if (node) { node.classList.add("pinned"); node.scrollIntoView({ block: "nearest" }); }
    show(n);
  };

  const of = (event) => {
    const node = event.target.closest("b[data-n]");
    return node ? Number(node.dataset.n) : null;
  };
  tokens.addEventListener("mouseover", (event) => { const n = of(event); if (n !== null) show(n); });
  tokens.addEventListener("mouseleave", () => { if (pinned !== null) show(pinned); });
  tokens.addEventListener("click", (event) => { const n = of(event); pin(n === pinned ? null : n); });
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") pin(null);
    if (!by || event.altKey || event.ctrlKey || event.metaKey || !nodes.length) return;
    event.preventDefault();
    const from = pinned ?? shown ?? first - by;
    pin(Math.min(Math.max(from + by, 0), first + data.steps.length - 1));
  });

  const scales = {
    prob: ["100 %", "0 %", (s) => s.prob === null ? 0 : 1 - s.prob],
    entropy: ["0 bits", data.most_entropy.toFixed(1), (s) => s.entropy === null ? 0 : s.entropy / data.most_entropy],
    rank: ["1", "100+", (s) => s.rank ? Math.min(Math.log10(s.rank) / 2, 1) : 0],
    ms: ["0 ms", data.most_ms.toFixed(1), (s) => s.ms === null ? 0 : Math.min(s.ms / data.most_ms, 1)],
  };
  const shade = (mode) => {
    const [low, high, level] = scales[mode];
    document.getElementById("low").textContent = low;
    document.getElementById("high").textContent = high;
    for (const node of nodes) {
      const step = data.steps[Number(node.dataset.n) - first];
      if (!step) continue;
      node.className = node.className.replace(/\bh\d\b/, "h" + Math.round(8 * level(step)));
    }
    for (const button of document.querySelectorAll("button[data-mode]"))
      button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
  };
  for (const button of document.querySelectorAll("button[data-mode]"))
    button.addEventListener("click", () => shade(button.dataset.mode));

  const goTo = () => {
    const wanted = /^#(\d+)$/.exec(location.hash);
    if (wanted && Number(wanted[1]) < data.steps.length) pin(first + Number(wanted[1]));
  };
  window.addEventListener("hashchange", goTo);
  goTo();
})();
