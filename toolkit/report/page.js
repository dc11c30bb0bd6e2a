"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const NS = "http://www.w3.org/2000/svg";
const short = (value) => (value >= 0.0005 || value === 0 ? value.toFixed(3) : value.toExponential(0));

function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children); // strings become text nodes, so a token cannot become markup
  return node;
}

function drawing(name, attributes, title) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (title) {
    const label = document.createElementNS(NS, "title");
    label.textContent = title;
    node.append(label);
  }
  return node;
}

// ------------------------------------------------------------------ speed-up at another draft cost

function speedups() {
  const cost = Number(byId("cost").value);
  if (!(cost >= 0)) return;
  for (const cell of document.querySelectorAll("[data-depth]")) {
    const calls = 1 + Number(cell.dataset.depth) * cost;
    const ends = [cell.dataset.low, cell.dataset.high].map((end) => (Number(end) / calls).toFixed(2));
    cell.textContent = ends[0] === ends[1] ? ends[0] : ends.join(" to ");
  }
}

// ------------------------------------------------------------------------------------- contexts

const colour = (place, count) => `hsl(${Math.round((360 * place) / count)} 62% 52%)`;

function show() {
  const context = data.explorer[Number(byId("context").value)];
  const n = Number(document.querySelector("input[name=drafts]:checked").value);
  const plan = context.plans.find((item) => item.n === n);
  byId("where").textContent = `${context.place}; the token that follows is ${context.next}`;
  byId("before").textContent = context.before === null ? "(not in the trace)" : `… ${context.before}`;
  const power = [..."⁰¹²³⁴⁵⁶⁷⁸⁹"][n];
  byId("cut").textContent =
    `H holds ${plan.cut_size} tokens: q(H) = ${plan.cut_target.toFixed(4)}, ` +
    `p(H) = ${plan.cut_draft.toFixed(4)}. Optimum: 1 + q(H) − p(H)${power} = ` +
    `${plan.acceptance.toFixed(4)}; one draft: ${context.overlap.toFixed(4)}.`;
  rows(context, plan);
  partition(context, plan);
}

function rows(context, plan) {
  const most = Math.max(...context.target, ...context.draft, ...plan.selection);
  const body = byId("rows");
  body.replaceChildren();
  context.tokens.forEach((token, i) => {
    const cells = ["target", "draft", "selection"].map((name) => {
      const value = name === "selection" ? plan.selection[i] : context[name][i];
      const fill = element("span", { class: "fill", style: `width:${(100 * value) / most}%` });
      const cell = element("span", { class: `cell ${name}` }, fill, element("span", {}, short(value)));
      return element("td", { "data-value": value }, cell);
    });
    const swatch = element("span", {
      class: "swatch", style: `background:${colour(i, context.tokens.length)}`, "aria-hidden": "true",
    });
    const name = element("th", { scope: "row", title: token }, swatch, element("span", { class: "token" }, token));
    body.append(element("tr", {}, name, ...cells, element("td", {}, plan.cut[i] ? "H" : "–")));
  });
}

function partition(context, plan) {
  const picture = drawing("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img" });
  const said = [];
  let start = 0;
  for (const piece of plan.pieces) {
    const names = piece.owners.map((i) => context.tokens[i]);
    const words = names.length ? names.join(" and ") : "other tokens";
    const title = `${words}: ${start.toFixed(3)} to ${piece.end.toFixed(3)}`;
    // Owners that share a piece are drawn below each other.
    const shares = piece.owners.length || 1;
    for (let i = 0; i < shares; i++) {
      const fill = piece.owners.length ? colour(piece.owners[i], context.tokens.length) : "var(--line)";
      picture.append(drawing("rect", {
        x: 1000 * start, width: 1000 * (piece.end - start), y: (100 * i) / shares, height: 100 / shares, fill,
      }, title));
    }
    said.push(title);
    start = piece.end;
  }
  picture.setAttribute("aria-label", `Partition of the unit interval: ${said.length} pieces, listed below`);
  byId("partition").replaceChildren(picture);
  byId("pieces").replaceChildren(...said.map((title) => element("li", { class: "token" }, title)));
}

function step(by) {
  const list = byId("context");
  list.selectedIndex = (list.selectedIndex + by + list.length) % list.length;
  show();
}

data.explorer.forEach((context, i) => {
  const words = `${i + 1}. ${context.place}: ${context.next}`;
  byId("context").append(element("option", { value: i }, words));
});
byId("context").addEventListener("change", show);
byId("previous").addEventListener("click", () => step(-1));
byId("next").addEventListener("click", () => step(1));
for (const radio of document.querySelectorAll("input[name=drafts]")) radio.addEventListener("change", show);
byId("cost").addEventListener("input", speedups);
show();
